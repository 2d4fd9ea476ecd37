"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The data folder; TOLLHOUSE_DATA_DIR, or the platform's own, unless given.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The configuration file; TOLLHOUSE_CONFIG, or tollhouse.yaml in the data folder, "
        "unless given.",
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="Talk to the server at this address; TOLLHOUSE_BASE_URL unless given. "
        "Without either the data folder's own server is meant.",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help="The key for the server at the base URL. Other users of the machine can "
        "see it here; TOLLHOUSE_API_KEY keeps it to yourself.",
    ),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="PostgreSQL instead of the SQLite file in the data folder. A password is better "
        "given in TOLLHOUSE_DATABASE_URL.",
    ),
]
Account = Annotated[
    str | None,
    typer.Option(
        "--account",
        metavar="ID",
        help="The account that is meant, where there are several; needs an operator.",
    ),
]

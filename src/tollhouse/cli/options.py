"""Options that several commands have."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.output import one_line

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
        metavar="ACCOUNT",
        help="The account that is meant, by id or name; TOLLHOUSE_ACCOUNT, or what `tollhouse "
        "accounts use` chose, unless given. Needs an operator.",
    ),
]
OneAccount = Annotated[
    str | None,
    typer.Option("--account", metavar="ACCOUNT", help="Only this account, by id or name."),
]
"""Where every account is meant unless one is given."""


class Switch(StrEnum):
    """Something that an operator switches."""

    ON = "on"
    OFF = "off"


Programme = Annotated[
    Switch | None,
    typer.Option("--programme", help="Switch interns and vaults on or off; for an operator."),
]
VaultWrites = Annotated[
    Switch | None,
    typer.Option(
        "--vault-writes",
        help="Whether secrets may be stored and deleted. Their use continues. For an operator.",
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to this file, which appears when it is complete; - is standard output.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
PlainHttp = Annotated[
    Switch | None,
    typer.Option(
        "--plain-http",
        help="Whether its programs and interns may reach hosts without TLS; default: off.",
    ),
]


def yes_to(question: str) -> Any:  # noqa: ANN401 - an annotation that only typer reads
    """Return the option `--yes` of a command that deletes, which asks on a terminal without it.

    Args:
        question: With the names of the command's arguments in braces.
    """

    def confirmed(context: typer.Context, yes: bool) -> bool:
        if yes or not sys.stdin.isatty():
            return yes
        print(one_line(question.format(**context.params)), "[y/N] ", end="", file=sys.stderr)
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            message = "nothing was deleted"
            raise CommandFailed(message)
        return True

    return typer.Option("--yes", callback=confirmed, help="Do not ask for confirmation.")


def switches(
    programme: Switch | None, vault_writes: Switch | None, plain_http: Switch | None = None
) -> dict[str, bool]:
    """Return the fields of a body that were given."""
    given = {
        "intern_programme": programme,
        "vault_writes": vault_writes,
        "plain_http": plain_http,
    }
    return {name: value is Switch.ON for name, value in given.items() if value is not None}

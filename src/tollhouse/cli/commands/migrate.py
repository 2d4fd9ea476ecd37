"""`tollhouse migrate`: the database's schema."""

import json
from typing import Annotated

import typer

from tollhouse.cli.client import load_settings
from tollhouse.cli.options import Config, DatabaseUrl, DataDir, Json
from tollhouse.cli.output import write
from tollhouse.cli.target import Folder

PENDING = 1


def migrate(
    check: Annotated[
        bool,
        typer.Option(
            "--check", help=f"Change nothing; exit code {PENDING} if migrations are pending."
        ),
    ] = False,
    data_dir: DataDir = None,
    config: Config = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Bring the database to the schema of this program.

    `tollhouse serve` does this itself on SQLite. On PostgreSQL run it before a new release starts.
    """
    from tollhouse.apps import migrate as work

    settings = load_settings(Folder(data_dir, config), database_url=database_url)
    current = work.is_current(settings)
    if not (current or check):
        work.migrate(settings)
    up_to_date = current or not check
    if as_json:
        write(json.dumps({"up_to_date": up_to_date, "migrated": up_to_date and not current}))
    elif not up_to_date:
        write("migrations are pending: run `tollhouse migrate`")
    else:
        write("the database was up to date" if current else "the database is up to date now")
    raise typer.Exit(0 if up_to_date else PENDING)

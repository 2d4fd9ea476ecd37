"""`tollhouse bootstrap`: the first account, without a server."""

import json
from typing import Annotated

import typer

from tollhouse.cli.client import load_settings
from tollhouse.cli.options import Config, DatabaseUrl, DataDir, Json
from tollhouse.cli.output import write
from tollhouse.cli.target import Folder


def bootstrap(
    new_keys: Annotated[
        bool,
        typer.Option("--new-keys", help="If an account exists already, make new keys for it."),
    ] = False,
    data_dir: DataDir = None,
    config: Config = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Make database, account, workspace, credits and keys without starting a server.

    It does what the first start of `tollhouse serve` does, which then shows no keys any more.
    """
    import asyncio
    from dataclasses import asdict

    from tollhouse.apps.local import bootstrap_once

    settings = load_settings(Folder(data_dir, config), database_url=database_url)
    made = asdict(asyncio.run(bootstrap_once(settings, new_keys=new_keys)))
    if as_json:
        write(json.dumps(made))
        return
    width = max(map(len, made))
    lines = [f"{name.replace('_', ' '):<{width}}  {value}" for name, value in made.items()]
    note = "Keep the keys now: only their hashes are stored, and nobody can show them again."
    write("\n".join([*lines, "", note]))

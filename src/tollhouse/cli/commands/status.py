"""`tollhouse status`: whether a server runs, where, and whether it is ready."""

import asyncio
import os
from typing import Any

import typer

from tollhouse.cli.client import answers, data_dir_of
from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.json_objects import parsed
from tollhouse.cli.options import BaseUrl, Config, DataDir, Json
from tollhouse.cli.output import Record, show, style
from tollhouse.cli.target import Flags, Remote, choose, origin
from tollhouse.storage.data_folder import DataFolder

SECONDS = 10.0


def status(
    base_url: BaseUrl = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Say whether a server runs, where, and whether it is ready; it needs no key.

    Ends with exit code 1 where none runs, or it is not ready.
    """
    target = choose(Flags(base_url=base_url, data_dir=data_dir, config=config), os.environ)
    if isinstance(target, Remote):
        found: dict[str, Any] = {"address": target.base_url.removesuffix("/v1")}
        running = True
    else:
        folder = DataFolder(data_dir_of(target))
        running = answers(folder.control_socket)
        owner = folder.owner() if running else None
        found = {
            "data_dir": str(folder.path),
            "address": None if owner is None or owner.address is None else origin(owner.address),
            "pid": None if owner is None else owner.pid,
        }
    address = found["address"] if running else None
    told: dict[str, object] = {} if address is None else asyncio.run(_readiness(address))
    state = told.get("status") or ("not reached" if running else "not running")
    show(
        Record({"status": state, **found, "problems": told.get("problems")}),
        style(as_json=as_json),
    )
    if state != "ready":
        raise typer.Exit(CommandFailed.exit_code)


async def _readiness(address: str) -> dict[str, object]:
    """Return what a server says of itself; nothing where it does not answer as one."""
    import httpx2

    try:
        async with httpx2.AsyncClient(timeout=SECONDS) as http:
            return parsed((await http.get(f"{address}/readyz")).content)
    except httpx2.RequestError:
        return {}

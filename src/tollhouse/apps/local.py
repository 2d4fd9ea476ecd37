"""The control plane without a server: for a command on this machine, while nobody serves.

    local_gate        lock, schema, gateway; the command talks to it as to a server's socket
    bootstrap_once     lock, schema, first account; what the first start of a server does

On SQLite the lock on the data folder makes this process the file's one writer, who books what a
killed server left in the journal first. PostgreSQL needs no lock: its own transactions keep several
processes apart, and the journal in the folder may be a running server's.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from tollhouse.apps.blobs import open_blobs
from tollhouse.apps.bootstrap import OPERATOR, Bootstrapped, bootstrap_if_empty, is_empty
from tollhouse.apps.bootstrap import new_keys as make_keys
from tollhouse.apps.control import build_control, build_control_plane
from tollhouse.apps.core import Core, bring_up_to_date, build_core
from tollhouse.apps.gateway import build_gateway, build_request_gates
from tollhouse.apps.process import keep_memory_private
from tollhouse.apps.startup import database_url, read_catalog
from tollhouse.apps.vault import open_keys
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.pages import Window
from tollhouse.observability.logging import configure_logging
from tollhouse.storage.data_folder import DataFolder
from tollhouse.storage.failures import shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import sqlalchemy as sa

    from tollhouse.api.request_gate import RequestGate
    from tollhouse.settings.sections import Settings


@asynccontextmanager
async def local_gate(settings: Settings) -> AsyncGenerator[RequestGate]:
    """Give the ASGI application of a control socket, on a data folder that was bootstrapped.

    Raises:
        StartError: Another process holds the folder, its database cannot be used, or there is
            no account in it. Nothing was made.
    """
    # Standard error is for the command's own one line.
    configure_logging("error", settings.logging.format)
    if not settings.server.core_dumps:
        keep_memory_private()
    catalog = read_catalog(settings, SystemClock())
    folder = DataFolder(settings.data_dir)
    url = database_url(settings, folder)
    _require_file(url)
    with _held(folder, url):
        core = build_core(url, settings)
        try:
            await bring_up_to_date(core.database)
            await _require_account(core)
            keys = await open_keys(settings.vault, core, folder)
            blobs = open_blobs(settings.blobs, folder, core.ids)
            gateway = build_gateway(settings, core, catalog, folder, keys)
        except BaseException:
            await core.database.close()
            raise
        try:
            components = build_control(settings, gateway, blobs)
            gateway.control.open(build_control_plane(settings, gateway, components))
            if _is_ours(url):
                await gateway.accounting.recovery.recover()
            _, local = build_request_gates(settings, gateway)
            yield local
        finally:
            await gateway.close()


async def bootstrap_once(settings: Settings, *, new_keys: bool) -> Bootstrapped:
    """Make the first account of an installation, with its workspace, credits and keys.

    Where there is one already, `new_keys` makes keys for the first one instead of refusing.

    Raises:
        StartError: There is an account already, another process holds the folder, or the
            database cannot be used.
    """
    # Standard error is for the command's own one line.
    configure_logging("error", settings.logging.format)
    folder = DataFolder(settings.data_dir)
    url = database_url(settings, folder)
    with _held(folder, url):
        core = build_core(url, settings)
        try:
            await bring_up_to_date(core.database)
            async with core.database.writing() as write:
                made = await bootstrap_if_empty(write, core.identity, core.accounting, settings)
                if made is not None:
                    return made
                if not new_keys:
                    raise StartError(
                        f"{shown(url)} has an account already: make a key with "
                        "`tollhouse keys create NAME`, or both keys anew with --new-keys"
                    )
                account = (await core.identity.accounts(write, OPERATOR, Window(limit=1))).items[0]
                workspace = await core.identity.default_workspace(write, account.id)
                return await make_keys(write, core.identity, account.id, workspace.id)
        finally:
            await core.database.close()


def _held(folder: DataFolder, url: sa.URL) -> AbstractContextManager[object]:
    return folder if _is_ours(url) else nullcontext()


def _is_ours(url: sa.URL) -> bool:
    """Tell whether this process is the only one that uses the database and the data folder."""
    return url.get_backend_name() == "sqlite"


async def _require_account(core: Core) -> None:
    async with core.database.reading() as read:
        if await is_empty(read, core.identity):
            raise _never_bootstrapped(core.database.url)


def _require_file(url: sa.URL) -> None:
    if _is_ours(url) and not os.path.lexists(str(url.database)):
        raise _never_bootstrapped(url)


def _never_bootstrapped(url: sa.URL) -> StartError:
    return StartError(
        f"{shown(url)} has no account yet: run `tollhouse serve` or `tollhouse bootstrap` first, "
        "or name another data folder with --data-dir"
    )

"""The control plane without a server: for a command on this machine, while nobody serves.

    local_front        lock, schema, gateway; the command talks to it as to a server's socket
    bootstrap_once     lock, schema, first account; what the first start of a server does

On SQLite the lock on the data folder makes this process the file's one writer, who books what a
killed server left in the journal first. PostgreSQL needs no lock: its own transactions keep several
processes apart, and the journal in the folder may be a running server's.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from tollhouse.apps.bootstrap import OPERATOR, bootstrap_if_empty, is_empty, new_keys
from tollhouse.apps.core import bring_up_to_date, build_core
from tollhouse.apps.gateway import build_gateway
from tollhouse.apps.ground import database_url, read_catalog
from tollhouse.apps.process import keep_memory_private
from tollhouse.apps.vaulting import open_keys
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.pages import Window
from tollhouse.kernel.start import StartError
from tollhouse.observability.logging import configure_logging
from tollhouse.storage.data_folder import DataFolder
from tollhouse.storage.failures import shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractContextManager

    import sqlalchemy as sa

    from tollhouse.api.front import Front
    from tollhouse.apps.bootstrap import Bootstrapped
    from tollhouse.apps.core import Core
    from tollhouse.settings.sections import Settings
    from tollhouse.storage.transaction import Write


@asynccontextmanager
async def local_front(settings: Settings) -> AsyncGenerator[Front]:
    """Run the control plane on a data folder that was bootstrapped.

    Yields:
        The ASGI application that a server would put behind its control socket.

    Raises:
        StartError: Another process holds the folder, its database cannot be used, or there is
            no account in it. Nothing was made.
    """
    _log_errors_alone(settings)
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
            gateway = build_gateway(settings, core, catalog, folder, keys)
        except BaseException:
            await core.database.close()
            raise
        try:
            if _is_ours(url):
                await gateway.settler.recover()
            yield gateway.local
        finally:
            await gateway.close()


async def bootstrap_once(settings: Settings, *, new_keys: bool) -> Bootstrapped:
    """Make the first account of an installation, with its workspace, credits and keys.

    Args:
        settings: Where the database is, and how many credits are granted.
        new_keys: Where there is an account already, make keys for the first one instead of
            refusing.

    Raises:
        StartError: There is an account already, another process holds the folder, or the
            database cannot be used.
    """
    _log_errors_alone(settings)
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
                    raise _bootstrapped_before(url)
                return await _keys_of_first_account(write, core)
        finally:
            await core.database.close()


async def _keys_of_first_account(write: Write, core: Core) -> Bootstrapped:
    accounts = await core.identity.accounts(write, OPERATOR, Window(limit=1))
    account = accounts.items[0]
    workspace = await core.identity.default_workspace(write, account.id)
    return await new_keys(write, core.identity, account.id, workspace.id)


def _log_errors_alone(settings: Settings) -> None:
    # A command's standard error is for its own one line.
    configure_logging("error", settings.logging.format)


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
    if url.get_backend_name() == "sqlite" and not os.path.lexists(str(url.database)):
        raise _never_bootstrapped(url)


def _never_bootstrapped(url: sa.URL) -> StartError:
    return StartError(
        f"{shown(url)} has no account yet: run `tollhouse serve` or `tollhouse bootstrap` first, "
        "or name another data folder with --data-dir"
    )


def _bootstrapped_before(url: sa.URL) -> StartError:
    return StartError(
        f"{shown(url)} has an account already: make a key with `tollhouse keys create NAME`, "
        "or both keys anew with --new-keys"
    )

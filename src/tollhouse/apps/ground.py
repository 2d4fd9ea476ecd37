"""What a server holds before it is built: catalogue, port, folder, and a schema under way.

It loads little on purpose: a first start makes its schema in a child process while this one loads
the web framework and the data plane.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tollhouse.inference.catalog import build_catalog
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.start import StartError
from tollhouse.storage.data_folder import DataFolder, FolderInUse
from tollhouse.storage.migrate_child import upgrade_in_child
from tollhouse.storage.urls import parse_database_url, sqlite_url

if TYPE_CHECKING:
    from collections.abc import Generator
    from concurrent.futures import Future

    import sqlalchemy as sa

    from tollhouse.inference.catalog import Catalog
    from tollhouse.kernel.clock import Clock
    from tollhouse.settings.sections import Settings

_BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class Ground:
    """The port and the folder that are ours, and what will stand on them."""

    catalog: Catalog
    url: sa.URL
    listener: socket.socket
    folder: DataFolder
    schema: Future[None] | None
    """A new SQLite file's schema in the making; None where there is a file already."""

    @property
    def address(self) -> str:
        """Where the server will be, as a URL."""
        return _address(self.listener)

    async def schema_made(self) -> None:
        """Wait for a new file's schema.

        Raises:
            StartError: It could not be made.
        """
        if self.schema is not None:
            await asyncio.wrap_future(self.schema)


@contextmanager
def take_ground(settings: Settings) -> Generator[Ground]:
    """Take the port and the folder, once the catalogue is known to be right.

    Raises:
        StartError: A price is missing, the port or the folder is taken or cannot be used.
    """
    catalog = read_catalog(settings, SystemClock())
    folder = DataFolder(settings.data_dir)
    url = database_url(settings, folder)
    with _listen(settings.server.host, settings.server.port, folder) as listener:
        folder.lock(_address(listener))
        try:
            with _hold_database(url), ThreadPoolExecutor(max_workers=1) as thread:
                schema = thread.submit(asyncio.run, upgrade_in_child(url)) if _is_new(url) else None
                yield Ground(catalog, url, listener, folder, schema)
        finally:
            folder.release()


@contextmanager
def _hold_database(url: sa.URL) -> Generator[None]:
    """Keep an SQLite file from servers that have another data folder.

    Raises:
        StartError: Another server has it, or its folder cannot be written.
    """
    if url.get_backend_name() != "sqlite":
        yield
        return
    database = Path(str(url.database)).resolve()
    with ExitStack() as held:
        try:
            lock = held.enter_context(Path(f"{database}.lock").open("ab"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another server uses the database {database}: stop it, or choose another one"
            raise StartError(message) from None
        except OSError as error:
            message = f"the folder of the database {database} cannot be written ({error.strerror})"
            raise StartError(message) from None
        yield


def read_catalog(settings: Settings, clock: Clock) -> Catalog:
    """Return the catalogue of the settings; touches nothing.

    Raises:
        StartError: A model has no price.
    """
    by_slug = {provider.slug: provider for provider in settings.providers}
    return build_catalog(settings.models, by_slug, clock.now())


def database_url(settings: Settings, folder: DataFolder) -> sa.URL:
    """Return the URL of the database that the settings mean: the folder's SQLite file by default.

    Raises:
        StartError: The configured URL cannot be used.
    """
    if settings.database_url is None:
        return sqlite_url(folder.database)
    return parse_database_url(settings.database_url.reveal())


def _is_new(url: sa.URL) -> bool:
    return url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists()


def _listen(host: str, port: int, folder: DataFolder) -> socket.socket:
    """Take the port before anything is made."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        message = f"the host {host!r} cannot be listened on ({error.strerror}): use another --host"
        raise StartError(message) from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        _refuse_if_held(folder)
        message = (
            f"cannot listen on {host}:{port} ({error.strerror}): "
            "stop the other program, or choose another port with --port"
        )
        raise StartError(message) from None
    listener.setblocking(False)  # noqa: FBT003 - its only form
    return listener


def _refuse_if_held(folder: DataFolder) -> None:
    """Name the gateway that holds both the port and the folder: that says more."""
    if not folder.path.exists():
        return
    probe = DataFolder(folder.path)
    try:
        probe.lock()
    except FolderInUse:
        raise
    except StartError:
        return
    probe.release()


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

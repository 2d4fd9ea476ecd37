"""What a server acquires before it is built: catalogue, port, folder.

It loads little on purpose: a start that is refused is refused at once.
"""

from __future__ import annotations

import fcntl
import socket
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tollhouse.inference.catalog import Catalog, build_catalog
from tollhouse.kernel.clock import Clock, SystemClock
from tollhouse.kernel.errors import StartError
from tollhouse.storage.data_folder import DataFolder, FolderInUse
from tollhouse.storage.failures import parse_database_url, sqlite_url

if TYPE_CHECKING:
    from collections.abc import Generator

    import sqlalchemy as sa

    from tollhouse.settings.sections import Settings

_BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class StartupResources:
    """What a server holds from the beginning of its start to its end."""

    catalog: Catalog
    url: sa.URL
    listener: socket.socket
    folder: DataFolder

    @property
    def address(self) -> str:
        """The server's URL."""
        return _address(self.listener)


@contextmanager
def acquire_resources(settings: Settings) -> Generator[StartupResources]:
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
            with _hold_database(url):
                yield StartupResources(catalog, url, listener, folder)
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
        raise StartError(
            f"cannot listen on {host}:{port} ({error.strerror}): "
            "stop the other program, or choose another port with --port"
        ) from None
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

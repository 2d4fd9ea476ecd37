"""What a server acquires before it is built: catalogue, port, folder.

It loads little on purpose: a start that is refused is refused at once.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tollhouse.inference.catalog import Catalog, build_catalog
from tollhouse.kernel.clock import Clock, SystemClock
from tollhouse.kernel.errors import StartError
from tollhouse.storage.data_folder import DataFolder, FolderInUse
from tollhouse.storage.failures import parse_database_url, sqlite_url

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import sqlalchemy as sa

    from tollhouse.apps.bootstrap import Bootstrapped
    from tollhouse.settings.sections import Settings

_BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class StartupResources:
    """What a server holds from the beginning of its start to its end."""

    catalog: Catalog
    url: sa.URL
    listeners: Sequence[socket.socket]
    """Of the public port, one for each process that answers there."""
    folder: DataFolder
    address: str
    """The server's URL."""
    local: socket.socket | None = None
    """Of commands on this machine, for the control process of several."""
    locks: Sequence[int] = ()
    """Descriptors that hold the folder and the database."""


@dataclass(frozen=True, slots=True)
class Started:
    """What a person wants to know of a gateway that has just begun to serve."""

    address: str
    folder: DataFolder
    first: Bootstrapped | None
    """The keys of a first start; None where the folder had an account already."""
    example_model: str | None


@contextmanager
def acquire_resources(settings: Settings) -> Generator[StartupResources]:
    """Take the port and the folder, once the catalogue is known to be right.

    Raises:
        StartError: A price is missing, the port or the folder is taken or cannot be used.
    """
    catalog = read_catalog(settings, SystemClock())
    folder = DataFolder(settings.data_dir)
    url = database_url(settings, folder)
    with ExitStack() as listening:
        host, port, number = settings.server.host, settings.server.port, worker_count(settings)
        listeners = [listening.enter_context(_listen(host, port, folder, shared=False))]
        if number > 1:
            # That one made sure that nobody else listens there.
            port = listeners[0].getsockname()[1]
            listening.close()
            listeners = [
                listening.enter_context(_listen(host, port, folder, shared=True))
                for _ in range(number)
            ]
        address = _address(listeners[0])
        folder.lock(address)
        try:
            with _hold_database(url) as lock:
                locks = [each for each in (folder.lock_descriptor, lock) if each is not None]
                yield StartupResources(catalog, url, listeners, folder, address, locks=locks)
        finally:
            folder.release()


def worker_count(settings: Settings) -> int:
    """Return how many processes answer requests to models; with 1 there is no other one."""
    workers = settings.server.workers
    if workers != "auto":
        return workers
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def _hold_database(url: sa.URL) -> Generator[int | None]:
    """Keep an SQLite file from servers that have another data folder; yield the lock.

    Raises:
        StartError: Another server has it, or its folder cannot be written.
    """
    if url.get_backend_name() != "sqlite":
        yield None
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
        yield lock.fileno()


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


def _listen(host: str, port: int, folder: DataFolder, *, shared: bool) -> socket.socket:
    """Take the port before anything is made; `shared`: other sockets of ours may have it too."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        message = f"the host {host!r} cannot be listened on ({error.strerror}): use another --host"
        raise StartError(message) from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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


def control_listener(path: Path, kind: socket.SocketKind) -> socket.socket:
    """Listen on a Unix socket in the data folder, which only its owner can open.

    Raises:
        StartError: It cannot be made.
    """
    with suppress(FileNotFoundError):
        # The lock is ours: whoever left it there is gone.
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, kind)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartError(
            f"the control socket {path} cannot be made ({error.strerror or error}): "
            "choose a data folder with a shorter path, on a local disk"
        ) from None
    finally:
        os.umask(mask)
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

"""What runs on this machine for interns: sandbox, egress, route to the daemon; ended as one.

    boot ──> Running ──> reconciler keeps it ──> take_down

    request to the gateway ──(bearer token of a daemon)──> that daemon's socket

A daemon's token names its daemon, since no two are equal, and is recognized by its prefix, so that
one that is no longer valid is not taken for an API key. The daemon checks each request again.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from tollhouse.kernel.errors import Unauthenticated, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime
    from pathlib import Path

    from tollhouse.interns.runtimes.base import Sandbox
    from tollhouse.kernel.secret import Secret
    from tollhouse.vault.egress.service import EgressService


def request_head(asked: str, token: Secret, *fields: str) -> bytes:
    """Return the head of a daemon's request, with further header `fields`.

    `asked` is the method and the path. Its connection carries no other request.
    """
    first = (f"{asked} HTTP/1.1", "Host: daemon", f"Authorization: Bearer {token.reveal()}")
    return "".join(f"{line}\r\n" for line in (*first, *fields, "Connection: close", "")).encode()


_HEALTH_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE: Final = 0.5


async def wait_until_healthy(path: Path, token: Secret) -> None:
    """Wait until a daemon answers; the caller says how long."""
    pause = _PAUSE_SECONDS
    while not await is_healthy(path, token):
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def is_healthy(path: Path, token: Secret) -> bool:
    """Tell whether the daemon that listens on a socket answers as it should."""
    with suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_HEALTH_SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                writer.write(request_head("GET /healthz", token))
                await writer.drain()
                answer = await reader.readuntil(b"\r\n")
                return answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 "))
            finally:
                writer.transport.abort()
    return False


_MOST_CONNECTIONS: Final = 256
"""Of one intern at once."""
_BEARER: Final = b"bearer "


@dataclass(frozen=True, slots=True)
class ForwardedPort:
    """The way in to one intern."""

    path: Path
    """The socket that its daemon listens on."""
    token_hash: str
    memory_full: Callable[[], bool]
    """Tells whether what runs there uses all the memory that it may."""
    passing: set[asyncio.Task[None]] = field(default_factory=set)

    def enter(self, relayed: Callable[[Path], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Begin a connection, cancelled with the way in; raises `Unavailable` if there are many."""
        if len(self.passing) >= _MOST_CONNECTIONS:
            raise Unavailable("The intern has too many connections; try again.")
        task = asyncio.get_running_loop().create_task(relayed(self.path))
        self.passing.add(task)
        task.add_done_callback(self.passing.discard)
        return task


class PortForwarder:
    """The ways in to every intern that runs here."""

    def __init__(self) -> None:
        self._by_intern: dict[str, ForwardedPort] = {}
        self._by_token: dict[str, ForwardedPort] = {}

    async def open(
        self,
        intern_id: str,
        path: Path,
        token_hash: str,
        memory_full: Callable[[], bool] = lambda: False,
    ) -> None:
        """Open the way in to an intern, for its daemon's token (its SHA-256, in hex)."""
        await self.close(intern_id)
        port = ForwardedPort(path, token_hash, memory_full)
        self._by_intern[intern_id] = self._by_token[token_hash] = port

    async def close(self, intern_id: str) -> None:
        """Close the way in to an intern, with every connection through it."""
        port = self._by_intern.pop(intern_id, None)
        if port is None:
            return
        del self._by_token[port.token_hash]
        ending = tuple(port.passing)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def stop(self) -> None:
        """Close every way in."""
        for intern_id in tuple(self._by_intern):
            await self.close(intern_id)

    def of(self, authorization: bytes) -> ForwardedPort:
        """Return the way in that a header `Authorization` opens; raises `Unauthenticated`."""
        # Looked up by its hash: how long that takes tells nothing of a token.
        token_hash = sha256(authorization[len(_BEARER) :].strip()).hexdigest()
        port = self._by_token.get(token_hash)
        if port is None:
            raise Unauthenticated("Invalid or missing token of the daemon")
        return port


_LISTEN_BACKLOG: Final = 128
"""Connections that may wait until a daemon takes them."""
_NAME_DIGITS: Final = 12
"""Of the name of a socket: short, as paths of sockets must be."""


@dataclass(slots=True)
class RunningIntern:
    """What runs for one intern; parts that are not there yet, or not any more, are None."""

    intern_id: str
    egress: Path | None = None
    """The folder of its way out."""
    sandbox: Sandbox | None = None
    listener: Path | None = None
    """The socket that its daemon listens on."""
    is_forwarded: bool = False
    """Whether its daemon can be reached."""
    since: datetime | None = None
    """When its daemon was found to answer."""
    ended: asyncio.Task[str] | None = field(default=None, repr=False)
    """Done once the sandbox has ended."""
    ending: asyncio.Task[None] | None = field(default=None, repr=False)
    """Takes it down."""


@dataclass(slots=True)
class Sandboxes:
    """Everything that runs here for interns."""

    folder: Path
    """Where the sockets of daemons are."""
    egress: EgressService
    port_forwarder: PortForwarder
    _running: dict[str, RunningIntern] = field(default_factory=dict, init=False)

    def get(self, intern_id: str) -> RunningIntern | None:
        """Return what runs for an intern."""
        return self._running.get(intern_id)

    def socket_of(self, intern_id: str) -> Path | None:
        """Return the socket that an intern's daemon listens on; None where none runs here."""
        running = self._running.get(intern_id)
        return None if running is None else running.listener

    def all(self) -> tuple[str, ...]:
        """Return the interns for which something runs."""
        return tuple(self._running)

    def count(self) -> int:
        """Return how many sandboxes run."""
        return sum(each.sandbox is not None for each in self._running.values())

    def count_full(self) -> int:
        """Return how many of them can write no more, since their disk is full."""
        running = [each.sandbox for each in self._running.values()]
        return sum(sandbox is not None and sandbox.disk_full for sandbox in running)

    def sweep(self) -> None:
        """Remove the sockets that a killed server has left."""
        for path in self.folder.glob("*.sock"):
            path.unlink(missing_ok=True)

    def begin(self, intern_id: str) -> RunningIntern:
        """Return what is to run for an intern, of which nothing is there yet."""
        running = RunningIntern(intern_id)
        self._running[intern_id] = running
        return running

    def listen(self, running: RunningIntern) -> socket.socket:
        """Return the socket, made by us, that a daemon is to listen on; raises `OSError`."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = sha256(running.intern_id.encode()).hexdigest()[:_NAME_DIGITS]
        path = self.folder / f"{name}.sock"
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            listener.listen(_LISTEN_BACKLOG)
        except OSError:
            listener.close()
            raise
        running.listener = path
        return listener

    async def take_down(self, intern_id: str, seconds: float) -> None:
        """End all that runs for an intern; when this returns, nothing of it is left.

        Its programs have so many seconds. It goes on where its caller is cancelled, and whoever
        asks next waits for it.
        """
        running = self._running.get(intern_id)
        if running is None:
            return
        if running.ending is None or running.ending.done():
            running.ending = asyncio.create_task(self._take_down(running, seconds))
        elif running.sandbox is not None:
            await running.sandbox.stop(seconds)  # it may have less time now
        await asyncio.shield(running.ending)

    async def _take_down(self, running: RunningIntern, seconds: float) -> None:
        intern_id = running.intern_id
        try:
            if running.is_forwarded:
                await self.port_forwarder.close(intern_id)
            if running.sandbox is not None:
                await running.sandbox.stop(seconds)
        finally:
            if running.ended is not None:
                running.ended.cancel()
            if running.listener is not None:
                running.listener.unlink(missing_ok=True)
            await self.egress.close(intern_id)
            if self._running.get(intern_id) is running:
                del self._running[intern_id]

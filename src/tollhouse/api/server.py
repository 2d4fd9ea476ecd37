"""The HTTP server: it listens, and ends in order.

`connection.py` has the protocol of a connection. Whoever runs the server owns the signals.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import structlog

from tollhouse.api.connection import HttpConnection
from tollhouse.api.passing_connection import PassingConnection
from tollhouse.api.server_context import ServerContext
from tollhouse.kernel.concurrency import wait_for_event

if TYPE_CHECKING:
    import socket
    from collections import Counter
    from collections.abc import Callable, Sequence

    from tollhouse.api.address_table import AddressTable
    from tollhouse.api.asgi import App
    from tollhouse.api.exchange import RequestHandler
    from tollhouse.api.handover import Passing
    from tollhouse.api.websocket import WebSockets

_BACKLOG: Final = 2048
_POLL_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.25
_CANCELLED_SECONDS: Final = 1.0
"""How long a cancelled request may take to end."""
_log = structlog.get_logger(__name__)


class GatewayServer:
    """A server whose signals belong to the one who runs it."""

    def __init__(self, context: ServerContext, shutdown_seconds: float) -> None:
        self.listening = asyncio.Event()
        self._stopping = asyncio.Event()
        self._context = context
        self._shutdown_seconds = shutdown_seconds
        self._passing: Passing | None = None
        self._hands_over = False
        self._adopting: set[asyncio.Task[None]] = set()

    @property
    def held(self) -> Counter[str]:
        """Client address -> how many connections it holds open."""
        return self._context.held

    def pass_on(self, passing: Passing, table: AddressTable) -> None:
        """Hand connections over to other processes from now on, and count with them."""
        self._passing = passing
        self._context.table = table

    def adopt(self, connection: socket.socket, data: bytes = b"") -> None:
        """Take a connection that another process has accepted, and the bytes that it has read."""
        loop = asyncio.get_running_loop()

        async def take() -> None:
            with suppress(OSError):  # the client is gone
                await loop.connect_accepted_socket(lambda: self._connection(data), connection)

        connection.setblocking(False)  # noqa: FBT003 - its only form
        task = loop.create_task(take())
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)

    async def serve(
        self, sockets: Sequence[socket.socket], others: Sequence[socket.socket] = ()
    ) -> None:
        """Accept connections until `stop`, then wait until those that are used have ended.

        On the sockets of other processes it is looked now and then whether a connection waits: that
        process may be gone, or stopped.
        """
        loop = asyncio.get_running_loop()
        listeners = [
            await loop.create_server(self._connection, sock=each, backlog=_BACKLOG)
            for each in sockets
        ]
        self.listening.set()
        try:
            while not await wait_for_event(self._stopping, _LOOK_SECONDS if others else None):
                for each in others:
                    self._adopt_waiting(each)
        finally:
            for listener in listeners:
                listener.close()
            for each in (*sockets, *others):
                each.close()
        await self._drain()

    def stop(self, *, hand_over: bool = False) -> None:
        """Have `serve` return once the requests that have come are answered.

        The connections are closed then, or handed over to other processes.
        """
        self._hands_over = hand_over
        self._stopping.set()

    async def _drain(self) -> None:
        connections, tasks = self._context.connections, self._context.tasks
        for connection in tuple(connections):
            if not (self._hands_over and isinstance(connection, PassingConnection)):
                connection.shutdown()
        try:
            async with asyncio.timeout(self._shutdown_seconds):
                # uvicorn's WebSockets are in the sets.
                while connections or tasks or self._adopting:
                    if self._hands_over:
                        self._hand_over_idle()
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            _log.warning("shutdown_cut_short", connections=len(connections), requests=len(tasks))
            cancelled = tuple(tasks)
            for task in cancelled:
                task.cancel()
            if cancelled:
                await asyncio.wait(cancelled, timeout=_CANCELLED_SECONDS)
            for connection in tuple(connections):
                connection.transport.abort()

    def _adopt_waiting(self, listener: socket.socket) -> None:
        with suppress(OSError):  # as a rule none waits
            while True:
                self.adopt(listener.accept()[0])

    def _hand_over_idle(self) -> None:
        for connection in tuple(self._context.connections):
            if isinstance(connection, PassingConnection):
                connection.hand_over()

    def _connection(self, early: bytes = b"") -> HttpConnection:
        loop = asyncio.get_running_loop()
        if self._passing is None:
            return HttpConnection(self._context, loop)
        return PassingConnection(self._context, loop, self._passing, early)


def make_server(  # noqa: PLR0913 - the composition root calls it once
    app: App,
    *,
    handler: RequestHandler | None = None,
    limit_per_address: int,
    shutdown_seconds: float,
    min_body_rate: int = 0,
    takes_websocket: Callable[[Sequence[tuple[bytes, bytes]]], bool] = lambda _: False,
) -> GatewayServer:
    """Return a server for an ASGI application, and a handler that may answer before that is asked.

    A stop waits `shutdown_seconds` for responses under way. `min_body_rate` is in bytes a second, 0
    for none; `takes_websocket` tells with which headers a request may become a WebSocket.
    """
    connections: set[Any] = set()
    tasks: set[asyncio.Task[None]] = set()

    @cache
    def web_sockets() -> WebSockets:
        # Imported here: only terminals of interns need it, 50 ms and 3 MB with its libraries.
        from tollhouse.api.websocket import WebSockets  # noqa: PLC0415

        return WebSockets(app, connections, tasks)

    def open_websocket(
        transport: asyncio.Transport,
        head: bytes,
        date: tuple[bytes, bytes],
        on_lost: Callable[[], None],
    ) -> bool:
        return web_sockets().open(transport, head, date, on_lost)

    context = ServerContext(
        app,
        handler,
        limit_per_address,
        min_body_rate,
        takes_websocket,
        open_websocket,
        connections,
        tasks,
    )
    return GatewayServer(context, max(1.0, shutdown_seconds))

"""Connections that become WebSockets; uvicorn speaks their protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tollhouse.api.asgi import App

LARGEST_MESSAGE: Final = 262_144
"""Bytes of a WebSocket message; an intern's daemon takes no larger ones."""
PING_SECONDS: Final = 30.0
PONG_SECONDS: Final = 60.0
MOST_UNSENT: Final = 4_194_304
"""Bytes that may wait for the other end of a WebSocket: answers to its pings wait for nobody."""


class GatewayWebSocket(WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket; its address holds it until it ends."""

    on_lost: Callable[[], None]

    def data_received(self, data: bytes) -> None:
        """Take bytes; who sends pings and reads no answer is left."""
        super().data_received(data)
        if self.transport.get_write_buffer_size() > MOST_UNSENT:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the address its place back."""
        super().connection_lost(exc)
        self.on_lost()


class WebSockets:
    """Opens the WebSockets of an ASGI application."""

    def __init__(self, app: App, connections: set[Any], tasks: set[asyncio.Task[None]]) -> None:
        """Take the sets in which the server keeps what has to end before it does."""
        self._config: Any = uvicorn.Config(
            app=app,  # type: ignore[arg-type]
            http=GatewayWebSocket,  # never made: uvicorn serves no HTTP here
            ws=GatewayWebSocket,
            ws_max_size=LARGEST_MESSAGE,
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PONG_SECONDS,
            ws_per_message_deflate=False,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            proxy_headers=False,
        )
        self._state = ServerState()
        self._state.connections = connections
        self._state.tasks = tasks

    def open(
        self,
        transport: asyncio.Transport,
        head: bytes,
        date: tuple[bytes, bytes],
        on_lost: Callable[[], None],
    ) -> bool:
        """Hand a connection over, with the head of its handshake; false if that cannot be read.

        `on_lost` is called once the connection has ended.
        """
        self._state.default_headers = [date]
        protocol = GatewayWebSocket(self._config, self._state, {})
        protocol.on_lost = on_lost
        protocol.connection_made(transport)
        protocol.data_received(head)
        transport.set_protocol(protocol)
        return protocol.handshake_initiated

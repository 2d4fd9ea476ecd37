"""A connection with TLS on it: what arrives is decrypted, what leaves is encrypted."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from tollhouse.outbound.http.connection import Connection
from tollhouse.outbound.http.port import ConnectFailed, ConnectionLost

if TYPE_CHECKING:
    import asyncio
    import socket

    from tollhouse.outbound.http.connection import ConnectionOwner
    from tollhouse.outbound.http.port import UpstreamError
    from tollhouse.outbound.tls import TlsLayer


class TlsConnection(Connection):
    """A TCP connection that carries exchanges once its handshake is done."""

    _speaks_unasked = True  # it may be a session ticket

    def __init__(self, owner: ConnectionOwner, sock: socket.socket, tls: TlsLayer) -> None:
        """Belong to a pool; see `Connection`."""
        super().__init__(owner, sock)
        self._tls = tls
        self._handshake: asyncio.Future[UpstreamError | None] = self._loop.create_future()

    async def secured(self) -> None:
        """Wait for the handshake; an error closes the connection."""
        error = await self._handshake
        if error is not None:
            raise error

    def close(self, error: UpstreamError) -> None:
        """Drop the connection now; see `Connection`."""
        if not self._handshake.done():
            self._handshake.set_result(error)
        super().close(error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        super().connection_made(transport)
        self._write = self._encrypt
        self._shake_hands(b"")

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
        if self.closed:
            return
        try:
            if not self._handshake.done():
                self._shake_hands(data)
                if self.closed or not self._handshake.done():
                    return
                data = b""
            data = self._tls.decrypt(data)
        except ssl.SSLError as error:
            self.close(ConnectionLost(f"TLS broke: {_reason(error)}", sent=self._holds_place))
            return
        if reply := self._tls.outgoing():
            self._transport.write(reply)
        self._peer_ended = self._tls.ended
        if data:
            super().data_received(data)
        if self._peer_ended:
            self._end_of_file(in_order=True)

    def eof_received(self) -> None:
        """Take the end of the connection, which has to be said in TLS."""
        self._end_of_file(in_order=False)

    def _encrypt(self, data: bytes | memoryview) -> None:
        try:
            self._transport.write(self._tls.encrypt(data))
        except ssl.SSLError as error:
            raise ConnectionLost(f"TLS broke: {_reason(error)}", sent=True) from error

    def _shake_hands(self, received: bytes) -> None:
        try:
            done = self._tls.handshake(received)
        except ssl.SSLError as error:
            self.close(ConnectFailed(f"TLS failed: {_reason(error)}", sent=False))
            return
        self._transport.write(self._tls.outgoing())
        if done:
            self._handshake.set_result(None)


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return error.reason or type(error).__name__

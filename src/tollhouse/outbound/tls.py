"""TLS between bytes and bytes, without a socket.

    tls = TlsLayer(context, "api.example.com")
    done = tls.handshake(received)      until done; `outgoing()` goes out after each step
    tls.encrypt(data)                   what goes out for it
    tls.decrypt(received)               what it holds; `tls.ended` after the peer's close_notify

The event loop's own TLS is left out on purpose. It does not say how a connection ended, so a body
that was cut passes for one that ended; a cancelled handshake is logged as an error by uvloop; and
closing waits for the peer. Here a connection is a plain one that can be dropped in any state.

Source: RFC 8446, section 6.1 (close_notify).
"""

from __future__ import annotations

import ssl
from contextlib import suppress

_LARGEST_READ = 16_384
"""Bytes of the largest record, and one read takes one: a larger buffer is made for nothing.

Source: RFC 8446, section 5.1.
"""


class TlsLayer:
    """One side of a connection."""

    __slots__ = ("_incoming", "_object", "_outgoing", "ended")

    def __init__(self, context: ssl.SSLContext, server_name: str | None) -> None:
        """Take what this side shows and trusts.

        The client's side names the host or address that the certificate must be for; None makes
        this the server's side.
        """
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        self.ended = False
        """Whether the peer said that it is done."""

    def handshake(self, received: bytes) -> bool:
        """Go on with the handshake; tell whether it is done. A failure is an `ssl.SSLError`."""
        if received:
            self._incoming.write(received)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def outgoing(self) -> bytes:
        """Return what has to go out now: handshake messages, answers to key updates."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """Return what goes out for some data; a peer that renegotiates is an `ssl.SSLError`."""
        written = self._object.write(data)
        while written < len(data):
            written += self._object.write(memoryview(data)[written:])
        return self._outgoing.read()

    def decrypt(self, received: bytes) -> bytes:
        """Return the data that arrived with some bytes; empty where none is complete."""
        self._incoming.write(received)
        pieces: list[bytes] = []
        # A record is read whole: once nothing is left to take, nothing is left inside.
        while self._incoming.pending and not self.ended:
            try:
                piece = self._object.read(_LARGEST_READ)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                piece = b""
            if piece:
                pieces.append(piece)
            else:
                self.ended = True
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def goodbye(self) -> bytes:
        """Return what tells the peer that nothing follows; empty where it cannot be told."""
        with suppress(ssl.SSLError):  # it waits for the peer's, and nobody else does
            self._object.unwrap()
        return self.outgoing()

"""A large body on its way to a server, which may answer before it has all of it.

A key that is not in force, a batch that is too large: a server says so at once, and closes the
connection to whoever goes on sending. The HTTP library reads an answer when everything is sent; by
then it is lost. So before each piece we look whether something came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

_CONNECTED: Final = "connection.connect_tcp.complete"
_SECURED: Final = ".start_tls.complete"


class Body:
    """A body that is sent until the server answers."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        """Take all of it, piece by piece."""
        self._pieces = pieces
        self._stream: Any = None

    async def trace(self, event: str, about: Mapping[str, Any]) -> None:
        """Learn which connection it goes over.

        Source: https://www.encode.io/httpcore/extensions/#trace
        """
        if event == _CONNECTED:
            self._stream = about["return_value"]
        elif event.endswith(_SECURED):
            # What comes over TLS may be its own, such as session tickets.
            self._stream = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces.

        Raises:
            WriteError: The server has answered; the HTTP library reads the answer then.
        """
        from httpcore2 import WriteError

        for piece in self._pieces:
            if self._stream is not None and self._stream.get_extra_info("is_readable"):
                raise WriteError
            yield piece

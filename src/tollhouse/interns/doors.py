"""The ways in to interns' daemons, by token.

    request to the gateway ──(bearer token of a daemon)──> that daemon's socket

A token names its daemon, as no two have the same, and shows that it is one, so that one which is no
longer valid is not taken for a key. The daemon itself looks at every request again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from tollhouse.kernel.errors import Unauthenticated, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

_MOST_CONNECTIONS: Final = 256
"""Of one intern at once."""
TOKEN_PREFIX: Final = "th-daemon-"  # noqa: S105 - the beginning alone
"""What every daemon's token begins with."""
_BEARER: Final = b"bearer "
_DAEMONS: Final = _BEARER + TOKEN_PREFIX.encode()


@dataclass(frozen=True, slots=True)
class Door:
    """The way in to one intern."""

    path: Path
    """The socket that its daemon listens on."""
    token_hash: str
    passing: set[asyncio.Task[None]] = field(default_factory=set)

    def enter(self, relayed: Callable[[Path], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Begin a connection; it is cancelled when the way in is closed.

        Args:
            relayed: What connects, given the socket that the daemon listens on.

        Raises:
            Unavailable: There are as many connections as there may be.
        """
        if len(self.passing) >= _MOST_CONNECTIONS:
            raise Unavailable("The intern has too many connections; try again.")
        task = asyncio.get_running_loop().create_task(relayed(self.path))
        self.passing.add(task)
        task.add_done_callback(self.passing.discard)
        return task


class Doors:
    """The ways in to every intern that runs here."""

    def __init__(self) -> None:
        """Begin with none."""
        self._doors: dict[str, Door] = {}
        self._by_token: dict[str, Door] = {}

    async def open(self, intern_id: str, path: Path, token_hash: str) -> None:
        """Open the way in to an intern.

        Args:
            intern_id: The intern.
            path: The socket that its daemon listens on.
            token_hash: SHA-256 of its token, in hex.
        """
        await self.close(intern_id)
        self._doors[intern_id] = self._by_token[token_hash] = Door(path, token_hash)

    async def close(self, intern_id: str) -> None:
        """Close the way in to an intern, with every connection through it."""
        door = self._doors.pop(intern_id, None)
        if door is None:
            return
        del self._by_token[door.token_hash]
        ending = tuple(door.passing)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def stop(self) -> None:
        """Close every way in."""
        for intern_id in tuple(self._doors):
            await self.close(intern_id)

    def of(self, authorization: bytes) -> Door:
        """Return the way in that a header `Authorization` opens.

        Raises:
            Unauthenticated: It opens none.
        """
        # Looked up by its hash: how long that takes tells nothing of a token.
        token_hash = sha256(authorization[len(_BEARER) :].strip()).hexdigest()
        door = self._by_token.get(token_hash)
        if door is None:
            raise Unauthenticated("Invalid or missing token of the daemon")
        return door


def is_for_daemon(authorization: bytes | None) -> bool:
    """Tell whether a header `Authorization` has a token of a daemon, whether or not it is valid."""
    return authorization is not None and authorization[: len(_DAEMONS)].lower() == _DAEMONS

"""What the connections of one server share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from tollhouse.api.address_table import AddressTable
    from tollhouse.api.asgi import App
    from tollhouse.api.exchange import RequestHandler


@dataclass(slots=True, eq=False)
class ServerContext:
    """What they are given, and what they have in common."""

    app: App
    handler: RequestHandler | None
    limit_per_address: int
    least_body_rate: int
    """Bytes a second; 0 for none."""
    takes_websocket: Callable[[Sequence[tuple[bytes, bytes]]], bool]
    """With which headers a request may become a WebSocket."""
    open_websocket: Callable[
        [asyncio.Transport, bytes, tuple[bytes, bytes], Callable[[], None]], bool
    ]
    connections: set[Any]
    """Those that have to end before the server does."""
    tasks: set[asyncio.Task[None]]
    held: Counter[str] = field(default_factory=Counter)
    """Address -> how many connections it has."""
    table: AddressTable | None = None
    """What other processes of this server count."""
    date: bytes = b""
    _date_until: float = 0.0

    def hold(self, address: str) -> bool:
        """Count a connection of an address; false if it holds too many."""
        elsewhere = 0 if self.table is None else self.table.elsewhere(address)
        if self.held[address] + elsewhere >= self.limit_per_address:
            return False
        self.held[address] += 1
        if self.table is not None:
            self.table.hold(address, 1)
        return True

    def release(self, address: str) -> None:
        """Give an address the place of a connection back."""
        self.held[address] -= 1
        if not self.held[address]:
            del self.held[address]
        if self.table is not None:
            self.table.hold(address, -1)

    def date_line(self, now: float) -> bytes:
        """Return the line of the header `date`; `now` is the time of the event loop."""
        if now >= self._date_until:
            self._date_until = now + 1
            self.date = b"date: %b\r\n" % formatdate(usegmt=True).encode()
        return self.date

"""Bodies of requests, read whole, and the memory that large ones may take together."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections import Counter
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from tollhouse.inference.steps import LARGE
from tollhouse.kernel.concurrency import FairQueue
from tollhouse.kernel.errors import PayloadTooLarge, TimedOut, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from tollhouse.api.asgi import Message, Receive

LEAST_RATE: Final = 65_536
"""Bytes a second at which a body has to arrive that holds memory for which others wait."""
GRACE_SECONDS: Final = 10.0
"""How long it may be slower."""


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], limit: int, hold: Hold | None = None
) -> bytes:
    """Return the whole body of a request; `hold` takes the memory of a large one as it arrives.

    Raises:
        PayloadTooLarge: It is over the limit, by its declared length or as it arrives.
        ClientGone: The client went away before its end.
        Unavailable: There was no memory for it.
        TimedOut: It is slow and holds memory for which others wait.
    """
    declared = headers.get(b"content-length", b"")
    size = int(declared) if declared.isdigit() else limit
    if size > limit:
        raise _too_large(limit)
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        return without_mark(body)
    async with nullcontext() if hold is None else hold.arrival():
        return await _read_pieces(receive, message, size, limit, hold)


async def _read_pieces(
    receive: Receive, message: Message, size: int, limit: int, hold: Hold | None
) -> bytes:
    """Read the rest of a body of at most so many bytes, whose first piece is here."""
    pieces: list[bytes] = []
    length = 0
    while message["type"] == "http.request":
        pieces.append(message.get("body", b""))
        length += len(pieces[-1])
        if length > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return without_mark(b"".join(pieces))
        if hold is not None and length > LARGE // 2 and size > LARGE:
            await hold.keep(length, size)
        message = await receive()
    raise ClientGone


def without_mark(body: bytes) -> bytes:
    """Return a body without the mark of UTF-8 that some editors put before JSON.

    Source: https://www.rfc-editor.org/rfc/rfc8259#section-8.1, which lets a parser ignore it.
    """
    return body.removeprefix(BOM_UTF8)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request body is larger than {limit} bytes.")


class BodyMemory:
    """The memory that large bodies may take, all together.

        with memory.hold(account_id) as hold:
            body = await read_body(receive, headers, limit, hold)

        async with hold.arrival():               # a 408 where the body is slow and others wait
            await hold.keep(300_000, 900_000)    # waits; a 503 where that takes too long
            await hold.keep(600_000, 900_000)    # more, as more of the body comes

    Accounts take turns, and none holds more than half, so that none waits for another one alone. A
    body takes memory as it arrives, so that a slow one holds little. While others wait, one that
    holds some has to arrive at a minimum rate: it has a deadline then, which each piece moves.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._taken: Counter[str] = Counter()
        """Bytes, by account."""
        self._waiting: FairQueue[Hold] = FairQueue()
        self._arriving: set[Hold] = set()
        """Those that have memory for a body of which more is to come."""
        self._is_wanted = False

    def hold(self, owner: str) -> Hold:
        """Return what lets a request of an account take memory until the end of a block."""
        return Hold(owner, self)

    async def wait(self, hold: Hold) -> None:
        """Give a request what it wants; see `Hold.take`."""
        served = hold.served = asyncio.get_running_loop().create_future()
        self._waiting.add(hold.owner, hold)
        self._serve()
        try:
            async with asyncio.timeout(self._seconds):
                await served
        except TimeoutError:
            message = "Too many large requests are under way; try again in a moment."
            raise Unavailable(message) from None
        finally:
            if served.cancelled():
                self._serve()  # those behind it may fit

    def arrives(self, hold: Hold) -> None:
        """Have a request's body end early where it is slow and others wait."""
        self._arriving.add(hold)
        hold.set_deadline(is_wanted=self._is_wanted)

    def arrives_no_more(self, hold: Hold) -> None:
        """Leave it alone: its body is here, or it waits itself."""
        self._arriving.discard(hold)
        hold.set_deadline(is_wanted=False)

    def give_back(self, hold: Hold) -> None:
        """Take back what a request has taken."""
        self._taken[hold.owner] -= hold.size
        self._serve()

    def _serve(self) -> None:
        """Serve whom there is room for, one request of each account in turn.

        Who does not fit beside the others is waited for, or small requests would keep it out for
        ever; who is over its own account's half holds up nobody.
        """
        later: list[Hold] = []
        while (hold := self._waiting.next()) is not None:
            if hold.served is None or hold.served.done():
                continue  # it waits no longer
            if not self._is_within_half(hold):
                later.append(hold)
            elif self._fits(hold):
                self._taken[hold.owner] += hold.wanted - hold.size
                hold.size = hold.wanted
                hold.served.set_result(None)
            else:
                later.append(hold)
                break
        for hold in reversed(later):
            self._waiting.put_back(hold.owner, hold)
        if self._is_wanted != bool(later):
            self._is_wanted = bool(later)
            for hold in self._arriving:
                hold.set_deadline(is_wanted=self._is_wanted)

    def _fits(self, hold: Hold) -> bool:
        """Tell whether there is room for a request; one alone always has some."""
        others = self._taken.total() - hold.size
        return others + hold.wanted <= self._most or not others

    def _is_within_half(self, hold: Hold) -> bool:
        """Tell the same of its account's half."""
        others = self._taken[hold.owner] - hold.size
        return others + hold.wanted <= self._most // 2 or not others


@dataclass(slots=True, eq=False)
class Hold:
    """What one request has taken."""

    owner: str
    _memory: BodyMemory
    size: int = 0
    """Bytes that it has."""
    wanted: int = 0
    """Bytes that it is to have in all."""
    served: asyncio.Future[None] | None = None
    _deadline: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    _since: float = 0.0
    """When it got what it has, by the loop's clock."""
    _first: int = 0
    """Bytes of the body that were here then."""
    _arrived: int = 0
    """Bytes of it that are here now."""

    @asynccontextmanager
    async def arrival(self) -> AsyncGenerator[None]:
        """Read the request's body in this block, where `keep` is told of each piece.

        Raises:
            TimedOut: The body arrives slowly, and others wait for its memory.
        """
        try:
            async with self._deadline:
                try:
                    yield
                finally:
                    self._memory.arrives_no_more(self)
        except TimeoutError:
            raise TimedOut("The body arrives too slowly while other large requests wait.") from None

    async def keep(self, arrived: int, most: int) -> None:
        """Have memory for what has arrived of a body of `most` bytes, and for as much again.

        Raises:
            Unavailable: There was none for too long.
        """
        self._arrived = arrived
        if arrived > self.size:
            self._memory.arrives_no_more(self)
            await self.take(min(most, 2 * arrived))
            self._since, self._first = asyncio.get_running_loop().time(), arrived
        self._memory.arrives(self)

    async def take(self, size: int) -> None:
        """Have so many bytes in all; wait until there is room for them.

        Raises:
            Unavailable: There was none for too long.
        """
        self.wanted = size
        await self._memory.wait(self)

    def set_deadline(self, *, is_wanted: bool) -> None:
        """Say by when more of the body has to be here; no time where nobody wants its memory."""
        if self._deadline.expired():
            return
        seconds = max(GRACE_SECONDS, (self._arrived - self._first) / LEAST_RATE)
        self._deadline.reschedule(self._since + seconds if is_wanted else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.size:
            self._memory.give_back(self)
            self.size = 0

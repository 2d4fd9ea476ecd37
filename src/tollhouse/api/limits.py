"""Caps on what a client may send: the size of a body, the rate of an address."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from tollhouse.inference.steps import LARGE
from tollhouse.kernel.errors import PayloadTooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.api.asgi import Message, Receive
    from tollhouse.api.body_memory import Hold

_MOST_ADDRESSES = 100_000
_MINUTE = 60.0
_ROUNDING = 0.25
"""How early a request may come, in intervals: sums of fractions are off by less, and without it
the last request of a burst would be lost."""


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], limit: int, hold: Hold | None = None
) -> bytes:
    """Return the whole body of a request.

    Args:
        receive: The request's ASGI channel.
        headers: Its headers.
        limit: The largest body that is accepted, in bytes.
        hold: Takes the memory of a large one, as it arrives.

    Raises:
        PayloadTooLarge: It is larger; known from its declared length, or as soon as the limit is
            passed.
        ClientGone: The client went away before its end.
        Unavailable: There was no memory for it.
        TimedOut: It is slow and holds memory for which others wait.
    """
    declared = headers.get(b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise too_large(limit)
    size = int(declared) if declared is not None and declared.isdigit() else limit
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        return _within(body, limit)
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
            raise too_large(limit)
        if not message.get("more_body", False):
            return b"".join(pieces)
        if hold is not None and length > LARGE // 2 and size > LARGE:
            await hold.keep(length, size)
        message = await receive()
    raise ClientGone


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise too_large(limit)
    return body


def too_large(limit: int) -> PayloadTooLarge:
    """Return the refusal of a body over the limit."""
    return PayloadTooLarge(f"The request body is larger than {limit} bytes.")


class AddressRate:
    """At most so many requests a minute from one address (GCRA, one number for each address).

    Source: ITU-T I.371, the generic cell rate algorithm in its virtual scheduling form.
    """

    def __init__(self, per_minute: int) -> None:
        """Allow bursts of a whole minute's requests."""
        self._interval = _MINUTE / per_minute
        self._due: dict[str, float] = {}

    def wait(self, address: str, now: float) -> float:
        """Count a request.

        Returns:
            0 where it may pass; otherwise the seconds after which one may.
        """
        due = max(self._due.get(address, now), now)
        excess = due - now - (_MINUTE - self._interval)
        if excess > self._interval * _ROUNDING:
            return excess
        if len(self._due) >= _MOST_ADDRESSES:
            self._forget(now)
        self._due[address] = due + self._interval
        return 0.0

    def _forget(self, now: float) -> None:
        """Forget idle addresses; all of them where none is idle, so that memory has a bound."""
        busy = {address: due for address, due in self._due.items() if due > now}
        self._due = busy if len(busy) < _MOST_ADDRESSES else {}

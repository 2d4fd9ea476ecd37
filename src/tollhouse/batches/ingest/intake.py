"""The intake: what is submitted as a batch, checked as it comes.

    pieces of the body ---> Splitter ---> items that keep the rules
                                          and at the end the envelope

What a single item's body has to be is looked at when the item is run: a bad one costs its own item
and not the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from tollhouse.batches.ingest.envelope import read_envelope
from tollhouse.batches.ingest.splitter import ITEMS, Malformed, Splitter, TooLarge
from tollhouse.kernel.errors import Invalid, PayloadTooLarge, Unprocessable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.batches.ingest.splitter import Item
    from tollhouse.batches.types import Submission

_SHORT: Final = 32
_SHOWN: Final = 64
"""Characters of a `custom_id` that a message shows."""


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    """How large a batch may be."""

    body_bytes: int = 200_000_000
    """All of what is submitted."""
    items: int = 50_000
    item_bytes: int = 33_554_432
    """The `body` of one item."""


class Intake:
    """Takes a batch's body piece by piece."""

    def __init__(self, limits: IntakeLimits) -> None:
        """Start before the first byte."""
        self._limits = limits
        self._splitter = Splitter(largest_body=limits.item_bytes)
        self._size = 0
        self._ids: set[str | bytes] = set()

    @property
    def count(self) -> int:
        """How many items came so far."""
        return self._splitter.count

    def feed(self, data: bytes) -> Sequence[Item]:
        """Take the next piece; return the items that are whole now, in their order.

        Raises:
            PayloadTooLarge: The body, an item or the envelope is too large.
            Invalid: It is no batch, or an item has an empty `custom_id`.
            Unprocessable: Too many items, or two of one `custom_id`.
        """
        self._size += len(data)
        if self._size > self._limits.body_bytes:
            message = f"The batch is larger than {self._limits.body_bytes} bytes."
            raise PayloadTooLarge(message)
        return self._checked(data)

    def end(self) -> tuple[Sequence[Item], Submission]:
        """Say that nothing more comes; return the last items and the envelope.

        Raises:
            PayloadTooLarge: As `feed`.
            Invalid: As `feed`, or it is not whole, or a field is missing or wrong.
            Unprocessable: As `feed`.
        """
        items = self._checked(None)
        if not self.count:
            message = f"{ITEMS}: has to have at least one item"
            raise Invalid(message)
        return items, read_envelope(self._splitter.envelope)

    def _checked(self, data: bytes | None) -> Sequence[Item]:
        try:
            items = self._splitter.end() if data is None else self._splitter.feed(data)
        except Malformed as error:
            raise Invalid(str(error)) from None
        except TooLarge as error:
            raise PayloadTooLarge(str(error)) from None
        if self.count > self._limits.items:
            message = f"{ITEMS}: has more than {self._limits.items} items"
            raise Unprocessable(message)
        for item in items:
            self._check_id(item)
        return items

    def _check_id(self, item: Item) -> None:
        place = f"{ITEMS}[{item.number}].custom_id"
        if not item.custom_id:
            message = f"{place}: must not be empty"
            raise Invalid(message)
        seen = len(self._ids)
        self._ids.add(_short(item.custom_id))
        if len(self._ids) == seen:
            message = f"{place}: duplicate {item.custom_id[:_SHOWN]!r}"
            raise Unprocessable(message)


def _short(custom_id: str) -> str | bytes:
    """Return what stands for an id in memory: 50,000 of them may have 200 MB."""
    if len(custom_id) <= _SHORT:
        return custom_id
    return blake2b(custom_id.encode(), digest_size=16).digest()

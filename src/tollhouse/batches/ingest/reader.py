"""The reader: from the body of a batch to its chunks, and what has to be known of it as a whole.

    pieces of the body ---> BatchValidator ---> items ---> ChunkWriter ---> chunks
           |                                      |                       and at last the summary
           +---> SHA-256                          +---> demand

A thread runs it for a short body, a process of its own for a long one. An item's own body is looked
at when it is run: a bad one costs its item and not the batch. Unknown fields of the envelope are
ignored, as everywhere on the wire; those of `provider` are refused, since a preference that is not
met could cost money.

Source: the public gateway's batch submit body.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec

from tollhouse.batches.chunks import Chunk, ChunkWriter, item_line
from tollhouse.batches.ingest.splitter import ITEMS, MalformedBatch, Splitter, TooLarge
from tollhouse.batches.types import LONGEST_ID, BatchDemand, BatchEndpoint, Submission
from tollhouse.inference.admission import estimate_raw_demand
from tollhouse.inference.request import PROVIDER_FIELDS, read_preferences
from tollhouse.kernel.errors import Invalid, PayloadTooLarge, Unprocessable, parse_validation_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tollhouse.batches.ingest.splitter import SubmittedItem

_LONGEST_URL: Final = 2_048


class _Envelope(msgspec.Struct):
    endpoint: BatchEndpoint
    model: Annotated[str, msgspec.Meta(min_length=1)]
    completion_window: Literal["24h"] = "24h"
    provider: dict[str, object] | None = None
    callback_url: Annotated[str, msgspec.Meta(max_length=_LONGEST_URL)] | None = None


_read = msgspec.json.Decoder(_Envelope).decode


def read_envelope(fields: Mapping[str, bytes]) -> Submission:
    """Return what a batch's fields (name -> JSON) but `requests` say; raises `Invalid`."""
    given = {name: msgspec.Raw(value) for name, value in fields.items()}
    found = _envelope(given)
    if found.callback_url is not None and not _is_https(found.callback_url):
        raise Invalid("callback_url: has to be an https address")
    provider = found.provider or {}
    unknown = next((name for name in provider if name not in PROVIDER_FIELDS), None)
    if unknown is not None:
        raise Invalid(f"provider: has no field {unknown!r}")
    read_preferences(given)
    return Submission(found.endpoint, found.model, provider, found.callback_url)


def _envelope(given: Mapping[str, msgspec.Raw]) -> _Envelope:
    try:
        return _read(msgspec.json.encode(given))
    except msgspec.ValidationError as error:
        path, what = parse_validation_error(error)
        place = path.removeprefix(".")
        if place == "endpoint":
            what = f"has to be one of {', '.join(BatchEndpoint)}"
        raise Invalid(f"{place}: {what}" if place else what) from None


def _is_https(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname)


_SHORT: Final = 32
_SHOWN: Final = 64
"""Characters of a `custom_id` that a message shows."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How large a batch may be."""

    body_bytes: int = 200_000_000
    items: int = 50_000
    item_bytes: int = 33_554_432
    """The `body` of one item."""


class BatchValidator:
    """Takes a batch's body piece by piece."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._splitter = Splitter(largest_body=limits.item_bytes)
        self._size = 0
        self._ids: set[str | bytes] = set()

    @property
    def count(self) -> int:
        """How many items came so far."""
        return self._splitter.count

    def feed(self, data: bytes) -> Sequence[SubmittedItem]:
        """Take the next piece; return the items that are whole now, in their order.

        Raises:
            PayloadTooLarge: The body, an item or the envelope is too large.
            Invalid: It is no batch, or an item has an empty `custom_id` or a long one.
            Unprocessable: Too many items, or two of one `custom_id`.
        """
        self._size += len(data)
        if self._size > self._limits.body_bytes:
            raise PayloadTooLarge(f"The batch is larger than {self._limits.body_bytes} bytes.")
        return self._checked(data)

    def end(self) -> tuple[Sequence[SubmittedItem], Submission]:
        """Say that nothing more comes; return the last items and the envelope. Raises as `feed`."""
        items = self._checked(None)
        if not self.count:
            raise Invalid(f"{ITEMS}: has to have at least one item")
        return items, read_envelope(self._splitter.envelope)

    def _checked(self, data: bytes | None) -> Sequence[SubmittedItem]:
        try:
            items = self._splitter.end() if data is None else self._splitter.feed(data)
        except MalformedBatch as error:
            raise Invalid(str(error)) from None
        except TooLarge as error:
            raise PayloadTooLarge(str(error)) from None
        if self.count > self._limits.items:
            raise Unprocessable(f"{ITEMS}: has more than {self._limits.items} items")
        ids = self._ids
        for item in items:
            too_long = len(item.custom_id) > LONGEST_ID
            custom_id = "" if too_long else _short(item.custom_id)
            if not custom_id or custom_id in ids:
                raise _bad_id(item)
            ids.add(custom_id)
        return items


def _bad_id(item: SubmittedItem) -> Invalid:
    place = f"{ITEMS}[{item.number}].custom_id"
    if not item.custom_id:
        return Invalid(f"{place}: must not be empty")
    if len(item.custom_id) > LONGEST_ID:
        return Invalid(f"{place}: must be at most {LONGEST_ID} characters")
    return Unprocessable(f"{place}: duplicate {item.custom_id[:_SHOWN]!r}")


def _short(custom_id: str) -> str | bytes:
    """Return what stands for an id in memory: 50,000 of them may have 25 MB."""
    if len(custom_id) <= _SHORT:
        return custom_id
    return blake2b(custom_id.encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """A batch without its items."""

    submission: Submission
    demand: BatchDemand
    digest: str
    """SHA-256 of the whole body, in hexadecimal."""


class BatchReader:
    """Takes a batch's body piece by piece."""

    def __init__(self, limits: BatchLimits) -> None:
        self._intake = BatchValidator(limits)
        self._writer = ChunkWriter()
        self._digest = sha256()
        self._demand = BatchDemand()

    def feed(self, data: bytes) -> Sequence[Chunk]:
        """Take the next piece; return the chunks that are full now. Raises as `BatchValidator`."""
        self._digest.update(data)
        return self._written(self._intake.feed(data))

    def end(self) -> tuple[Sequence[Chunk], BatchSummary]:
        """Say that nothing more comes; return the last chunks, and what came as a whole."""
        items, submission = self._intake.end()
        chunks = self._written(items)
        if (last := self._writer.finish()) is not None:
            chunks.append(last)
        return chunks, BatchSummary(submission, self._demand, self._digest.hexdigest())

    def _written(self, items: Iterable[SubmittedItem]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for item in items:
            self._demand.add(estimate_raw_demand(item.body))
            chunk = self._writer.add(item_line(item.custom_id, item.body))
            if chunk is not None:
                chunks.append(chunk)
        return chunks


def read_whole(body: bytes, limits: BatchLimits) -> tuple[Sequence[Chunk], BatchSummary]:
    """Return the chunks of a body that is at hand, and what it is as a whole."""
    reader = BatchReader(limits)
    chunks = reader.feed(body)
    last, summary = reader.end()
    return [*chunks, *last], summary

"""The reader: from the body of a batch to its chunks, and what has to be known of it as a whole.

    pieces of the body ---> Intake ---> items ---> ChunkWriter ---> chunks
           |                              |                         and at the end the summary
           +---> SHA-256                  +---> demand

It only computes: a thread runs it for a short body, a process of its own for a long one.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from tollhouse.batches.chunks import ChunkWriter, item_line
from tollhouse.batches.ingest.intake import Intake
from tollhouse.batches.types import BatchDemand, Submission
from tollhouse.inference.token_estimate import estimate_raw_demand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tollhouse.batches.chunks import Chunk
    from tollhouse.batches.ingest.intake import IntakeLimits
    from tollhouse.batches.ingest.splitter import Item


@dataclass(frozen=True, slots=True)
class Summary:
    """A batch without its items."""

    submission: Submission
    demand: BatchDemand
    digest: str
    """SHA-256 of the whole body, in hexadecimal."""


class Reader:
    """Takes a batch's body piece by piece."""

    def __init__(self, limits: IntakeLimits) -> None:
        """Start before the first byte."""
        self._intake = Intake(limits)
        self._writer = ChunkWriter()
        self._digest = sha256()
        self._demand = _Sums()

    def feed(self, data: bytes) -> Sequence[Chunk]:
        """Take the next piece; return the chunks that are full now.

        Raises:
            Invalid: As `Intake.feed`, with its kinds.
        """
        self._digest.update(data)
        return self._written(self._intake.feed(data))

    def end(self) -> tuple[Sequence[Chunk], Summary]:
        """Say that nothing more comes; return the last chunks, and what came as a whole.

        Raises:
            Invalid: As `Intake.end`, with its kinds.
        """
        items, submission = self._intake.end()
        chunks = self._written(items)
        if (last := self._writer.finish()) is not None:
            chunks.append(last)
        return chunks, Summary(submission, self._demand.total(), self._digest.hexdigest())

    def _written(self, items: Iterable[Item]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for item in items:
            self._demand.add(item.body)
            chunk = self._writer.add(item_line(item.custom_id, item.body))
            if chunk is not None:
                chunks.append(chunk)
        return chunks


class _Sums:
    """Adds up what items ask for."""

    def __init__(self) -> None:
        self._items = 0
        self._input = 0
        self._largest = 0
        self._output = 0
        self._unlimited = 0
        self._images = 0

    def add(self, body: bytes) -> None:
        asked = estimate_raw_demand(body)
        self._items += 1
        self._input += asked.input_tokens
        self._largest = max(self._largest, asked.input_tokens)
        if asked.output_tokens is None:
            self._unlimited += 1
        else:
            self._output += asked.output_tokens
        self._images += asked.images

    def total(self) -> BatchDemand:
        return BatchDemand(
            items=self._items,
            input_tokens=self._input,
            largest_input=self._largest,
            output_tokens=self._output,
            unlimited=self._unlimited,
            images=self._images,
        )


def read_whole(body: bytes, limits: IntakeLimits) -> tuple[Sequence[Chunk], Summary]:
    """Return the chunks of a body that is at hand, and what it is as a whole.

    Raises:
        Invalid: As `Reader.feed` and `Reader.end`.
    """
    reader = Reader(limits)
    chunks = reader.feed(body)
    last, summary = reader.end()
    return [*chunks, *last], summary

"""A batch with its results, read as it comes: never more of it in memory than one result needs.

{"id": ..., "status": ..., "results": [{...}, {...}]}       fields in any order
                                       result  result       one by one
"""

import codecs
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final, NamedTuple

_RESULTS: Final = "results"
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_BATCH_FIELDS: Final = frozenset(
    (
        *("id", "object", "endpoint", "model", "completion_window", "status", "created_at"),
        *("expires_at", "finalized_at", "error", "provider", "request_counts", "usage"),
    )
)
"""Every field that a batch has beside its results."""

_decode = json.JSONDecoder().raw_decode


class MalformedReply(Exception):
    """What comes is no batch."""


class JsonValue(NamedTuple):
    """A value of JSON."""

    text: str
    """As it came, in one line."""
    value: Any


async def read_without_results(pieces: AsyncIterator[bytes]) -> dict[str, Any]:
    """Return a batch's fields beside its results; stop reading once they are there."""
    reader = BatchReplyReader(pieces)
    async with aclosing(reader.results()) as results:
        async for _ in results:
            if reader.batch.keys() >= _BATCH_FIELDS:
                break
    return reader.batch


class BatchReplyReader:
    """Reads a batch."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._text = _JsonPieces(pieces)
        self.batch: dict[str, Any] = {}
        """Its fields beside the results, as far as they came."""
        self.has_results = False
        """Whether its results are a list, and not null."""

    async def results(self) -> AsyncGenerator[JsonValue]:
        """Yield the results; at the end all fields have come."""
        mark = await self._text.mark("{")
        while mark != "}":
            name = (await self._text.value()).value
            await self._text.mark(":")
            if name == _RESULTS and await self._text.peek() == "[":
                self.has_results = True
                async for each in self._items():
                    yield each
            else:
                self.batch[name] = (await self._text.value()).value
            mark = await self._text.mark(",}")
        self.batch.pop(_RESULTS, None)

    async def _items(self) -> AsyncGenerator[JsonValue]:
        mark = await self._text.mark("[")
        if await self._text.peek() == "]":
            mark = await self._text.mark("]")
        while mark != "]":
            yield await self._text.value()
            mark = await self._text.mark(",]")


async def json_lines(pieces: AsyncIterator[bytes]) -> AsyncGenerator[JsonValue]:
    """Yield the values of JSON Lines, in pieces of any size."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            try:
                yield JsonValue(line.decode(), json.loads(line))
            except (ValueError, RecursionError):
                raise MalformedReply("a line is no JSON") from None
    if rest:
        raise MalformedReply("it ends in the middle")


class _JsonPieces:
    """JSON that comes in pieces."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._window = ""
        self._at = 0
        """How much of the window is read."""

    async def peek(self) -> str:
        """Return the next character that is no white space."""
        while True:
            space = _SPACE.match(self._window, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._window):
                return self._window[self._at]
            await self._more(1)

    async def mark(self, marks: str) -> str:
        """Take the next character, which has to be one of these."""
        found = await self.peek()
        if found not in marks:
            raise MalformedReply(f"{found!r} where one of {marks!r} belongs")
        self._at += 1
        return found

    async def value(self) -> JsonValue:
        """Take the next value."""
        await self.peek()
        while True:
            try:
                value, end = _decode(self._window, self._at)
            except json.JSONDecodeError:
                value, end = None, len(self._window)
            except RecursionError:
                raise MalformedReply("nested too deeply") from None
            # What ends where the window ends may go on: 1 and 12 are both numbers.
            if end < len(self._window):
                text = self._window[self._at : end].replace("\n", " ").replace("\r", " ")
                self._at = end
                return JsonValue(text, value)
            # As much again: a large value is not tried at each of its pieces.
            await self._more(len(self._window) - self._at)

    async def _more(self, size: int) -> None:
        """Add at least so many characters to the window, or all that there are."""
        added: list[str] = []
        while size > 0:
            piece = await anext(self._pieces, None)
            if piece is None:
                break
            try:
                added.append(self._decoder.decode(piece))
            except UnicodeDecodeError:
                raise MalformedReply("it is not UTF-8") from None
            size -= len(added[-1])
        if not added:
            raise MalformedReply("it ends in the middle")
        self._window = self._window[self._at :] + "".join(added)
        self._at = 0

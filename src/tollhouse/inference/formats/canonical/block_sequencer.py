"""One block after the other, for formats in which a block ends before the next begins. Pure.

    sequence.feed(event) -> events: of the first choice alone, each block in one run that ends
                            with its `BlockEnded`, and all before `Finished`

Chat providers may begin a second tool call while the first is unfinished, and never say that a call
is complete. So a call is complete once its arguments are a whole JSON object and something else
begins; what comes for a later block before that is kept back.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.events import (
    BlockDelta,
    BlockEnded,
    CanonicalEvent,
    ChoiceFinished,
    StreamStarted,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MARK: Final = re.compile(r"\\(?s:.)?|[\"{}\[\]]")
"""What opens and closes in JSON; a character that is escaped does neither."""
_SPACE: Final = " \t\r\n"


class BlockSequencer:
    """One stream's order."""

    def __init__(self) -> None:
        """Start before the first block."""
        self._open: int | None = None
        self._arguments: _ArgumentsScanner | None = None
        """Of the open block, if it is a tool call."""
        self._waiting = OrderedDict[int, list[BlockDelta | BlockEnded]]()
        self._ended: set[int] = set()
        self._finished = False

    def feed(self, event: CanonicalEvent) -> Sequence[CanonicalEvent]:
        """Return what can be written now.

        Raises:
            MalformedResponse: A block goes on that has ended, or a choice that has finished.
        """
        if isinstance(event, (StreamStarted, UsageReported)):
            return (event,)
        if event.choice:
            return ()
        if self._finished:
            message = "the reply goes on after its end"
            raise MalformedResponse(message)
        if isinstance(event, ChoiceFinished):
            return self._finish(event)
        waiting = self._waiting.get(event.block)
        if event.block in self._ended or (waiting and isinstance(waiting[-1], BlockEnded)):
            message = "a part of the reply goes on after its end"
            raise MalformedResponse(message)
        if event.block == self._open:
            return self._take(event)
        self._waiting.setdefault(event.block, []).append(event)
        return self._advance()

    def _take(self, event: BlockDelta | BlockEnded) -> list[CanonicalEvent]:
        """Write an event of the open block."""
        if isinstance(event, BlockEnded):
            return [*self._end(), *self._advance()]
        if isinstance(event, ToolCallStarted):
            self._arguments = _ArgumentsScanner()
        elif isinstance(event, ToolCallDelta) and self._arguments is not None:
            self._arguments.add(event.arguments)
        return [event]

    def _advance(self) -> list[CanonicalEvent]:
        """Begin the blocks that wait, as far as the ones before them are complete."""
        written: list[CanonicalEvent] = []
        while self._waiting and self._is_complete():
            written += self._next()
        return written

    def _next(self) -> list[CanonicalEvent]:
        written = self._end()
        self._open, waiting = self._waiting.popitem(last=False)
        self._arguments = None
        for event in waiting:
            # A block's own end is the last that came for it.
            written += self._end() if isinstance(event, BlockEnded) else self._take(event)
        return written

    def _is_complete(self) -> bool:
        return self._open is None or self._arguments is None or self._arguments.is_complete()

    def _end(self) -> list[CanonicalEvent]:
        if self._open is None:
            return []
        ended = BlockEnded(0, self._open)
        self._ended.add(self._open)
        self._open = self._arguments = None
        return [ended]

    def _finish(self, event: ChoiceFinished) -> list[CanonicalEvent]:
        written: list[CanonicalEvent] = []
        while self._waiting:
            written += self._next()
        self._finished = True
        return [*written, *self._end(), event]


class _ArgumentsScanner:
    """A call's arguments as they come; they are looked at once, however often it is asked."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._looked_at = 0
        """How many of the pieces."""
        self._depth = 0
        self._in_text = False
        self._escape = ""
        """A backslash at the end of what was looked at."""
        self._is_object: bool | None = None
        """None while what began first is open."""

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    def is_complete(self) -> bool:
        """Tell whether they are a JSON object, with nothing after it."""
        more = self._escape + "".join(self._pieces[self._looked_at :])
        self._looked_at = len(self._pieces)
        if self._is_object is None:
            if self._close(more):
                self._is_object = _is_object("".join(self._pieces))
        elif more.strip(_SPACE):
            self._is_object = False
        return bool(self._is_object)

    def _close(self, more: str) -> bool:
        """Tell whether what began first ends in the text that follows."""
        self._escape = ""
        for mark in _MARK.findall(more):
            if mark == '"':
                self._in_text = not self._in_text
            elif mark == "\\":
                self._escape = mark
            elif not self._in_text and len(mark) == 1:
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0:
                    return True
        return False


def _is_object(arguments: str) -> bool:
    try:
        _object.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def arguments_object(arguments: str) -> Mapping[str, msgspec.Raw]:
    """Return a tool call's arguments as an object, for formats that know nothing else.

    A model's arguments may be no object: none at all is an empty one, and any other text is its
    field `input`, so that nothing which the model said is lost.
    """
    try:
        return _object.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        if not arguments.strip():
            return {}
        return {"input": msgspec.Raw(msgspec.json.encode(arguments))}

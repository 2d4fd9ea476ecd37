"""Orders the blocks of a stream so that each ends before the next begins. Pure.

    sequencer.feed(event) -> events: of the first choice only; each block contiguous and
                             followed by its `BlockEnded`, and all before `ChoiceFinished`

Chat providers may begin a second tool call before the first is finished, and do not mark the end of
a call. A call is therefore complete once its arguments are a JSON object and another block begins;
events of later blocks are held back until then.
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
"""The delimiters of JSON; an escaped character is none."""
_SPACE: Final = " \t\r\n"


class BlockSequencer:
    """Orders the blocks of one stream."""

    def __init__(self) -> None:
        self._open: int | None = None
        self._arguments: _ArgumentsScanner | None = None
        """The arguments of the open block, if it is a tool call."""
        self._waiting = OrderedDict[int, list[BlockDelta | BlockEnded]]()
        self._ended: set[int] = set()
        self._finished = False

    def feed(self, event: CanonicalEvent) -> Sequence[CanonicalEvent]:
        """Return the events that can be sent now.

        Raises:
            MalformedResponse: An ended block or a finished choice received another event.
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
        """Return the events of the open block."""
        if isinstance(event, BlockEnded):
            return [*self._end(), *self._advance()]
        if isinstance(event, ToolCallStarted):
            self._arguments = _ArgumentsScanner()
        elif isinstance(event, ToolCallDelta) and self._arguments is not None:
            self._arguments.add(event.arguments)
        return [event]

    def _advance(self) -> list[CanonicalEvent]:
        """Begin the waiting blocks whose predecessors are complete."""
        written: list[CanonicalEvent] = []
        while self._waiting and self._is_complete():
            written += self._next()
        return written

    def _next(self) -> list[CanonicalEvent]:
        written = self._end()
        self._open, waiting = self._waiting.popitem(last=False)
        self._arguments = None
        for event in waiting:
            # A block's own end is its last event.
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
    """The arguments of one tool call; scans each piece once."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._looked_at = 0
        """How many pieces are scanned."""
        self._depth = 0
        self._in_text = False
        self._escape = ""
        """A backslash at the end of the scanned text."""
        self._is_object: bool | None = None
        """None until the first JSON value is closed."""

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    def is_complete(self) -> bool:
        """Return whether the arguments are one JSON object."""
        more = self._escape + "".join(self._pieces[self._looked_at :])
        self._looked_at = len(self._pieces)
        if self._is_object is None:
            if self._close(more):
                self._is_object = _is_object("".join(self._pieces))
        elif more.strip(_SPACE):
            self._is_object = False
        return bool(self._is_object)

    def _close(self, more: str) -> bool:
        """Return whether the first JSON value is closed within more text."""
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
    """Return a tool call's arguments as an object, for formats that require one.

    Empty arguments are an empty object; any other text is kept in the field `input`, so that
    nothing of the model's output is lost.
    """
    try:
        return _object.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        if not arguments.strip():
            return {}
        return {"input": msgspec.Raw(msgspec.json.encode(arguments))}

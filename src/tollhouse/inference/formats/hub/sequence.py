"""One block after the other, for formats in which a block ends before the next begins. Pure.

    sequence.feed(event) -> events: of the first choice alone, each block in one run that ends
                            with its `BlockEnded`, and all before `Finished`

Chat providers may begin a second tool call while the first is unfinished, and never say that a call
is complete. So a call is complete once its arguments are a whole JSON object and something else
begins; what comes for a later block before that is kept back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.base import Unreadable
from tollhouse.inference.formats.hub.events import (
    BlockEnded,
    Delta,
    Event,
    Finished,
    Reported,
    Started,
    ToolDelta,
    ToolStarted,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class BlockSequence:
    """One stream's order."""

    def __init__(self) -> None:
        """Start before the first block."""
        self._open: int | None = None
        self._arguments: list[str] | None = None
        """Of the open block, if it is a tool call."""
        self._waiting: dict[int, list[Delta | BlockEnded]] = {}
        self._ended: set[int] = set()
        self._finished = False

    def feed(self, event: Event) -> Sequence[Event]:
        """Return what can be written now.

        Raises:
            Unreadable: A block goes on that has ended, or a choice that has finished.
        """
        if isinstance(event, (Started, Reported)):
            return (event,)
        if event.choice:
            return ()
        if self._finished:
            message = "the reply goes on after its end"
            raise Unreadable(message)
        if isinstance(event, Finished):
            return self._finish(event)
        waiting = self._waiting.get(event.block)
        if event.block in self._ended or (waiting and isinstance(waiting[-1], BlockEnded)):
            message = "a part of the reply goes on after its end"
            raise Unreadable(message)
        if event.block == self._open:
            return self._take(event)
        self._waiting.setdefault(event.block, []).append(event)
        return self._advance()

    def _take(self, event: Delta | BlockEnded) -> list[Event]:
        """Write an event of the open block."""
        if isinstance(event, BlockEnded):
            return [*self._end(), *self._advance()]
        if isinstance(event, ToolStarted):
            self._arguments = []
        elif isinstance(event, ToolDelta) and self._arguments is not None:
            self._arguments.append(event.arguments)
        return [event]

    def _advance(self) -> list[Event]:
        """Begin the blocks that wait, as far as the ones before them are complete."""
        written: list[Event] = []
        while self._waiting and self._is_complete():
            written += self._next()
        return written

    def _next(self) -> list[Event]:
        written = self._end()
        block = next(iter(self._waiting))
        self._open, self._arguments = block, None
        for event in self._waiting.pop(block):
            # A block's own end is the last that came for it.
            written += self._end() if isinstance(event, BlockEnded) else self._take(event)
        return written

    def _is_complete(self) -> bool:
        if self._open is None or self._arguments is None:
            return True
        try:
            _object.decode("".join(self._arguments))
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    def _end(self) -> list[Event]:
        if self._open is None:
            return []
        ended = BlockEnded(0, self._open)
        self._ended.add(self._open)
        self._open = self._arguments = None
        return [ended]

    def _finish(self, event: Finished) -> list[Event]:
        written: list[Event] = []
        while self._waiting:
            written += self._next()
        self._finished = True
        return [*written, *self._end(), event]


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

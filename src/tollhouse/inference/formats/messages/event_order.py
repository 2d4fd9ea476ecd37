"""Decodes a provider's events and checks the order that clients rely on. Pure.

    message_start
      (content_block_start content_block_delta* content_block_stop)*    numbered from 0
      message_delta+                                                    the last has a stop reason
    message_stop                    ping and events of unknown kinds: anywhere in between

Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.messages.errors import parse_error
from tollhouse.inference.formats.messages.wire import event_decoder
from tollhouse.inference.formats.raw_json import NULL, replace_invalid_utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tollhouse.inference.formats.messages.wire import MessagesEvent

_DONE: Final = b"[DONE]"
"""Some servers end streams of every dialect with it."""

_OWN_DELTAS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"text_delta", "citations_delta"}),
    "thinking": frozenset({"thinking_delta", "signature_delta"}),
    "tool_use": frozenset({"input_json_delta"}),
    "redacted_thinking": frozenset(),
}
"""The known delta types of the known block types."""
_KNOWN_DELTAS: Final = frozenset(delta for own in _OWN_DELTAS.values() for delta in own)


class _Failure(msgspec.Struct):
    type: str | None = None
    error: Raw = NULL


_failure = msgspec.json.Decoder(_Failure)


def decode_event(data: bytes) -> MessagesEvent | None:
    """Decode a provider event; None if it is only the end of the body.

    Raises:
        MalformedResponse: The event is not of this dialect.
        ErrorEvent: The provider reported an error.
    """
    if not data or data == _DONE:
        return None
    data = replace_invalid_utf8(data)
    try:
        if b'"error"' in data and _is_failure(data):
            raise parse_error(data)
        return event_decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        message = "an event of the stream is none of a message"
        raise MalformedResponse(message) from None


def _is_failure(data: bytes) -> bool:
    failure = _failure.decode(data)
    return failure.type == "error" or failure.error != NULL


class MessagesEventOrder:
    """Tracks how far a stream is."""

    def __init__(self) -> None:
        self.started = False
        self.stopped = False
        """A stop reason arrived."""
        self.done = False
        self.open_block: str | None = None
        """The type of the open block."""
        self.block_count = 0
        """How many blocks have begun; the open one is the last."""
        self._take: Mapping[str, Callable[[MessagesEvent], None]] = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
        }

    @property
    def complete(self) -> bool:
        """Whether the message is complete, though `message_stop` may be missing."""
        return self.done or (self.stopped and self.open_block is None)

    def accept(self, event: MessagesEvent) -> None:
        """Advance by one event.

        Raises:
            MalformedResponse: The event is out of order.
        """
        take = self._take.get(event.type)
        if take is not None:
            take(event)

    def _message_start(self, event: MessagesEvent) -> None:
        _require(not self.started and event.message is not None)
        self.started = True

    def _block_start(self, event: MessagesEvent) -> None:
        _require(self.started and not self.stopped and self.open_block is None)
        _require(event.content_block is not None and event.index == self.block_count)
        self.open_block = event.content_block.type if event.content_block else None
        self.block_count += 1

    def _block_delta(self, event: MessagesEvent) -> None:
        _require(self.open_block is not None and event.index == self.block_count - 1)
        _require(event.delta is not None and _fits(event.delta.type, self.open_block))

    def _block_stop(self, event: MessagesEvent) -> None:
        _require(self.open_block is not None and event.index == self.block_count - 1)
        self.open_block = None

    def _message_delta(self, event: MessagesEvent) -> None:
        _require(self.started and self.open_block is None)
        if event.delta is not None and event.delta.stop_reason is not None:
            self.stopped = True

    def _message_stop(self, _: MessagesEvent) -> None:
        _require(self.stopped)
        self.done = True


def _fits(delta: str | None, block: str | None) -> bool:
    if block not in _OWN_DELTAS or delta not in _KNOWN_DELTAS:
        # Types newer than this gateway cannot be checked.
        return True
    return delta in _OWN_DELTAS[block]


def _require(holds: bool) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        message = "an event of the stream is out of order"
        raise MalformedResponse(message)

"""What a daemon's events mean, checked: whatever does not fit is garbage. Pure.

Events of a kind that is not known are passed over: the daemon's protocol only ever grows.

Source: `docs/reference/daemon-api.md`, sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.interns.chat.sse import Sent

_MOST_DIGITS: Final = 18
Count = Annotated[int, Meta(ge=0, le=2**53)]
Cost = Annotated[str, Meta(max_length=40, pattern=r"^[0-9]{1,12}(\.[0-9]{1,18})?$")]
CallId = Annotated[str, Meta(min_length=1, max_length=128)]
ModelName = Annotated[str, Meta(min_length=1, max_length=256)]
Option = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class Garbled(ValueError):
    """What came is no event of the protocol."""


class Event(Struct, frozen=True):
    """What every event may have."""

    model: ModelName | None = None
    """What the run uses from here on; None where the event does not say."""


class Started(Event, frozen=True):
    """The run has begun, or goes on with an answer."""


class Text(Event, frozen=True, kw_only=True):
    """A piece of what the agent says."""

    text: str


class Reasoning(Event, frozen=True, kw_only=True):
    """A piece of what it thinks."""

    text: str


class ToolStarted(Event, frozen=True, kw_only=True):
    """It uses a tool."""

    title: str
    """What it does with it; a line for people."""


class Permission(Struct, frozen=True, kw_only=True):
    """It asks whether it may."""

    operation: str | None = None
    options: Annotated[list[Option], Meta(max_length=4)]


class Field(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A field of what is to be filled in."""

    name: str
    type: str
    required: bool
    options: list[str] | msgspec.UnsetType = msgspec.UNSET


class Elicitation(Struct, frozen=True, kw_only=True):
    """It asks for something."""

    message: str
    fields: list[Field]


class Question(Event, frozen=True, kw_only=True):
    """The run waits for an answer: to one of both."""

    interaction: CallId
    permission: Permission | None = None
    elicitation: Elicitation | None = None


class Used(Struct, frozen=True, kw_only=True):
    """What a run has used."""

    input_tokens: Count
    """Those from a cache included."""
    cached_tokens: Count = 0
    output_tokens: Count
    cost: Cost | None = None
    """Credits, as a decimal; None where nobody told."""


class RunError(Struct, frozen=True, kw_only=True):
    """Why a run did not complete."""

    reason: str | None = None
    message: str | None = None
    retryable: bool = False


class Ended(Event, frozen=True, kw_only=True):
    """The run is over."""

    outcome: Literal["completed", "failed", "cancelled"]
    usage: Used | None = None
    error: RunError | None = None


_DECODERS: Final[Mapping[bytes, msgspec.json.Decoder[Event]]] = {
    b"run.started": msgspec.json.Decoder(Started),
    b"answered": msgspec.json.Decoder(Started),
    b"text": msgspec.json.Decoder(Text),
    b"reasoning": msgspec.json.Decoder(Reasoning),
    b"tool.started": msgspec.json.Decoder(ToolStarted),
    b"question": msgspec.json.Decoder(Question),
    b"run.ended": msgspec.json.Decoder(Ended),
}


class Numbered:
    """The events of one answer of a daemon, which are numbered without a hole."""

    def __init__(self) -> None:
        """Expect the first one, whatever its number is."""
        self._next: int | None = None

    def read(self, sent: Sent) -> Event | None:
        """Return what an event means; None where that is not for us.

        Raises:
            Garbled: It is not as the protocol says, or its number is not the next one.
        """
        self._count(sent.id)
        decoder = _DECODERS.get(sent.type)
        if decoder is None:
            return None
        try:
            event = decoder.decode(sent.data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # The text may hold what is said: it stays out of the message.
            message = "an event is not what its type says"
            raise Garbled(message) from None
        if isinstance(event, Question):
            _check(event)
        return event

    def _count(self, text: bytes) -> None:
        if not text.isdigit() or len(text) > _MOST_DIGITS:
            message = "an event has no number"
            raise Garbled(message)
        number = int(text)
        if self._next not in {None, number}:
            message = "an event is missing, or came twice"
            raise Garbled(message)
        self._next = number + 1


def _check(question: Question) -> None:
    asked = question.permission
    if (asked is None) == (question.elicitation is None):
        message = "a question asks for neither or both"
        raise Garbled(message)
    if asked is not None and len(set(asked.options)) < len(asked.options):
        message = "a question offers an option twice"
        raise Garbled(message)

r"""A daemon's event stream: bytes to server-sent events to what they mean, checked. Pure.

    reader.feed(b"id: 1\nevent: text\nda")     -> []
    reader.feed(b'ta: {"text": "Hi"}\n\n')     -> [Sent(b"1", b"text", b'{"text": "Hi"}')]

It does not matter where the bytes were cut. Lines end with LF, or CR LF. `inference.sse` reads
streams of which only the data matters. Events of an unknown kind are passed over: the daemon's
protocol only ever grows.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation;
`docs/reference/daemon-api.md`, sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST_EVENT: Final = 1_048_576
"""Bytes of an event, with all that belongs to it."""


class DaemonEventTooLarge(ValueError):
    """An event that is larger than what we hold of one."""


class ServerSentEvent(NamedTuple):
    """An event as it came; its id and its type are empty where it has none."""

    id: bytes
    type: bytes
    data: bytes


class ServerSentEventReader:
    """Turns the bytes of one stream into its events."""

    def __init__(self, largest: int = LARGEST_EVENT) -> None:
        self._largest = largest
        self._rest = bytearray()
        self._looked_at = 0
        self._begin()

    def _begin(self) -> None:
        self._id = b""
        self._type = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """Return the events that this piece completes; raises `DaemonEventTooLarge`."""
        found: list[ServerSentEvent] = []
        rest = self._rest
        rest += piece
        begin = 0
        while (end := rest.find(b"\n", max(begin, self._looked_at))) >= 0:
            line = bytes(rest[begin:end]).removesuffix(b"\r")
            begin = end + 1
            self._size += len(line)
            if line:
                self._check(0)
                self._field(line)
                continue
            if self._data:
                found.append(ServerSentEvent(self._id, self._type, b"\n".join(self._data)))
            self._begin()
        del rest[:begin]
        self._looked_at = len(rest)  # a long line is looked through once
        self._check(len(rest))
        return found

    def _check(self, more: int) -> None:
        if self._size + more > self._largest:
            raise DaemonEventTooLarge(f"an event is larger than {self._largest} bytes")

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._type = value
            case b"id":
                self._id = value
            case _:
                return  # a comment, or a field that nobody needs


_MOST_DIGITS: Final = 18
Count = Annotated[int, Meta(ge=0, le=2**53)]
Cost = Annotated[str, Meta(max_length=40, pattern=r"^[0-9]{1,12}(\.[0-9]{1,18})?$")]
CallId = Annotated[str, Meta(min_length=1, max_length=128)]
ModelName = Annotated[str, Meta(min_length=1, max_length=256)]
PermissionOption = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class MalformedEvent(ValueError):
    """What came is no event of the protocol."""


class DaemonEvent(Struct, frozen=True):
    """What every event may have."""

    model: ModelName | None = None
    """What the run uses from here on; None where the event does not say."""


class RunStarted(DaemonEvent, frozen=True):
    """The run has begun, or goes on with an answer."""


class DaemonTextEvent(DaemonEvent, frozen=True, kw_only=True):
    """A piece of what the agent says."""

    text: str


class DaemonReasoningEvent(DaemonEvent, frozen=True, kw_only=True):
    """A piece of what it thinks."""

    text: str


class ToolStarted(DaemonEvent, frozen=True, kw_only=True):
    """It uses a tool."""

    title: str
    """What it does with it; a line for people."""


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """It asks whether it may."""

    operation: str | None = None
    options: Annotated[list[PermissionOption], Meta(max_length=4)]


class ElicitationField(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A field of what is to be filled in."""

    name: str
    type: str
    required: bool
    options: list[str] | msgspec.UnsetType = msgspec.UNSET


class ElicitationRequest(Struct, frozen=True, kw_only=True):
    """It asks for something."""

    message: str
    fields: list[ElicitationField]


class QuestionEvent(DaemonEvent, frozen=True, kw_only=True):
    """The run waits for an answer: to one of both."""

    interaction: CallId
    permission: PermissionRequest | None = None
    elicitation: ElicitationRequest | None = None


class DaemonRunUsage(Struct, frozen=True, kw_only=True):
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
    limit_source: str | None = None
    """The limit of credits for which the gateway refused, if it did."""
    remedy_hint: str | None = None


class RunEnded(DaemonEvent, frozen=True, kw_only=True):
    """The run is over."""

    outcome: Literal["completed", "failed", "cancelled"]
    usage: DaemonRunUsage | None = None
    error: RunError | None = None


_DECODERS: Final[Mapping[bytes, msgspec.json.Decoder[DaemonEvent]]] = {
    b"run.started": msgspec.json.Decoder(RunStarted),
    b"answered": msgspec.json.Decoder(RunStarted),
    b"text": msgspec.json.Decoder(DaemonTextEvent),
    b"reasoning": msgspec.json.Decoder(DaemonReasoningEvent),
    b"tool.started": msgspec.json.Decoder(ToolStarted),
    b"question": msgspec.json.Decoder(QuestionEvent),
    b"run.ended": msgspec.json.Decoder(RunEnded),
}


class EventDecoder:
    """The events of one answer of a daemon, which are numbered without a hole."""

    def __init__(self) -> None:
        self._next: int | None = None

    def read(self, sent: ServerSentEvent) -> DaemonEvent | None:
        """Return what an event means; None where that is not for us.

        Raises `MalformedEvent` where it is not as the protocol says, or its number is not the next.
        """
        self._count(sent.id)
        decoder = _DECODERS.get(sent.type)
        if decoder is None:
            return None
        try:
            event = decoder.decode(sent.data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # The text may hold what is said: it stays out of the message.
            raise MalformedEvent("an event is not what its type says") from None
        if isinstance(event, QuestionEvent):
            _check_question(event)
        return event

    def _count(self, text: bytes) -> None:
        if not text.isdigit() or len(text) > _MOST_DIGITS:
            raise MalformedEvent("an event has no number")
        number = int(text)
        if self._next not in {None, number}:
            raise MalformedEvent("an event is missing, or came twice")
        self._next = number + 1


def _check_question(question: QuestionEvent) -> None:
    asked = question.permission
    if (asked is None) == (question.elicitation is None):
        raise MalformedEvent("a question asks for neither or both")
    if asked is not None and len(set(asked.options)) < len(asked.options):
        raise MalformedEvent("a question offers an option twice")

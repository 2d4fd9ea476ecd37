r"""Reads the stream of a chat: bytes in, what happened out. Pure.

    reader = ChatReader()
    reader.feed(b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}, ...')   -> [Text("Hi")]
    reader.feed(b"data: [DONE]\n\n")                                             -> []
    reader.ended                                                                 -> True

Role chunk, content and reasoning, perhaps one question, a finish, a last chunk without choices that
has the session and the usage, and `[DONE]`. A stream that ends before that was cut.

Source: the public gateway's chat of interns; the fields that published clients parse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct

from tollhouse.cli.interns.chat_questions import Elicitation, Permission, Question
from tollhouse.inference.sse import EventParser, EventTooLarge

_END: Final = b"[DONE]"


class Garbled(ValueError):
    """What came is no stream of a chat."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what it thinks, or a line about what its tools do."""

    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The run waits for an answer; the stream ends for now."""

    question: Question


@dataclass(frozen=True, slots=True)
class Failure:
    """The run has failed."""

    code: int
    """The status that it would have had before the stream."""
    message: str
    reason: str | None
    retryable: bool


class CachedTokens(Struct, frozen=True):
    """Of the tokens of a prompt."""

    cached_tokens: int = 0


class Usage(Struct, frozen=True):
    """What a run used."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cost: float | None = None
    """In USD."""
    prompt_tokens_details: CachedTokens | None = None


@dataclass(frozen=True, slots=True)
class Closing:
    """The last chunk."""

    session_id: str | None
    usage: Usage | None


Event = Text | Reasoning | Asked | Failure | Closing


class _Function(Struct):
    name: str
    arguments: str


class _Call(Struct):
    id: str
    function: _Function


class _Delta(Struct):
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] = []


class _Choice(Struct):
    delta: _Delta
    finish_reason: str | None = None


class _Metadata(Struct):
    reason: str | None = None
    retryable: bool = False


class _Error(Struct):
    code: int
    message: str
    metadata: _Metadata | None = None


class _Chunk(Struct):
    choices: list[_Choice] = []
    error: _Error | None = None
    session_id: str | None = None
    usage: Usage | None = None


_CHUNK: Final = msgspec.json.Decoder(_Chunk)
_QUESTION: Final = msgspec.json.Decoder(Permission | Elicitation)


class ChatReader:
    """Reads one reply."""

    def __init__(self) -> None:
        """Start at its beginning."""
        self._parser = EventParser()
        self.ended = False
        """Whether it came to its end."""

    def feed(self, piece: bytes) -> list[Event]:
        """Return what a piece tells; what follows the end is passed over.

        Raises:
            Garbled: It is no such stream.
        """
        try:
            lines = self._parser.feed(piece)
        except EventTooLarge as error:
            raise Garbled(str(error)) from None
        events: list[Event] = []
        for line in lines:
            if self.ended or line == _END:
                self.ended = True
                break
            events += _events(line)
        return events


def _events(line: bytes) -> list[Event]:
    try:
        chunk = _CHUNK.decode(line)
        asked = [_question(call) for choice in chunk.choices for call in choice.delta.tool_calls]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Garbled(str(error)) from None
    events: list[Event] = []
    for choice in chunk.choices:
        if choice.delta.reasoning:
            events.append(Reasoning(choice.delta.reasoning))
        if choice.delta.content:
            events.append(Text(choice.delta.content))
    events += asked
    failed = any(choice.finish_reason == "error" for choice in chunk.choices)
    if chunk.error is not None:
        about = chunk.error.metadata or _Metadata()
        error = chunk.error
        events.append(Failure(error.code, error.message, about.reason, about.retryable))
    elif failed:
        events.append(Failure(0, "The run failed.", None, retryable=False))
    elif not chunk.choices:
        events.append(Closing(chunk.session_id, chunk.usage))
    return events


def _question(call: _Call) -> Asked:
    asks = _QUESTION.decode(call.function.arguments)
    return Asked(Question(call.id, call.function.name, call.function.arguments, asks))

"""What a stub is asked and says, in no format's words; a renderer writes it in each format.

    whole(said)           the body of a whole reply
    events(said)          the events of a stream, which is made from the whole reply
    failure(said, at)     the event number `at` of a stream that fails there
    error(status, ...)    a whole error response

They are written from the published schemas alone and share no code with the gateway's formats, so
that mistakes in one do not hide in the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from tests.support.providers.framing import Framing
from tests.support.providers.stub_text import JsonObject, words


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    schema: JsonObject
    custom: bool = False


class StubRequest:
    """A request that passed its provider's checks."""

    fields: JsonObject
    model: str
    streams: bool
    tools: Sequence[Tool] = ()
    forced_tool: str | None = None
    may_call: bool = True
    parallel: bool = True
    limit: int | None = None
    """The most tokens of the reply."""
    stops: Sequence[str] = ()
    thinks: bool = False
    shows_thought: bool = True
    seals_thought: bool = False

    def input_tokens(self) -> int:
        raise NotImplementedError

    def last_said(self) -> str:
        """Return the last user text, or the tool results since; of a prefill, what an echo says."""
        raise NotImplementedError

    def has_results(self) -> bool:
        raise NotImplementedError

    def schema(self) -> JsonObject | None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool; `arguments` are JSON, or a custom tool's free text."""

    name: str
    arguments: str
    custom: bool = False

    @property
    def tokens(self) -> int:
        given = self.arguments
        return words(given) if self.custom else len(msgspec.json.decode(given)) + 1


@dataclass(frozen=True, slots=True)
class Used:
    fresh: int
    """Tokens of the input that came from no cache."""
    output: int
    thinking: int = 0
    """Those of the output that are reasoning."""
    read: int = 0
    written: tuple[int, int] = (0, 0)
    """Tokens that were cached for five minutes, and for an hour."""


CACHED = Used(128, 300, thinking=256, read=1920, written=(400, 100))


@dataclass(frozen=True, slots=True)
class Said:
    asked: JsonObject
    """The fields of the request."""
    used: Used
    text: str = ""
    refuses: bool = False
    """Whether the text is a refusal."""
    thought: str = ""
    shown: bool = True
    """Whether the thought is there in plain text, or as a summary."""
    sealed: bool = False
    """Whether it is there as only the provider reads it; in a chat, whether it is signed."""
    calls: tuple[Call, ...] = ()
    cut: bool = False
    """Whether the limit of the request ended it."""
    sequence: str | None = None
    """The stop sequence that ended it."""


class Renderer(Protocol):
    framing: Framing

    def whole(self, said: Said) -> bytes: ...

    def events(self, said: Said) -> list[bytes]: ...

    def failure(self, said: Said, at: int) -> bytes: ...

    def error(
        self,
        status: int,
        message: str | None = None,
        *,
        param: str | None = None,
        code: str | None = None,
        extra: str = "",
    ) -> bytes:
        """Return an error in the words of its status; `extra` holds further header lines."""
        ...

    def unknown(self, model: str) -> bytes: ...


def in_fives(text: str) -> list[str]:
    """Split JSON into pieces, wherever that may be."""
    return [text[at : at + 5] for at in range(0, len(text), 5)]

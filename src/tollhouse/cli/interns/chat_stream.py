r"""What an intern's chat sends: its stream, the questions in it, and what answers them. Pure.

    decoder = InternChatDecoder()
    decoder.feed(b'data: {"choices":[{"delta":{"content":"Hi"}, ...')   -> [TextEvent("Hi")]
    decoder.feed(b"data: [DONE]\n\n")                                   -> []
    decoder.ended                                                       -> True

Role chunk, content and reasoning, perhaps one question, a finish, a last chunk without choices that
has the session and the usage, and `[DONE]`. A stream that ends before that was cut. A question is

    permission     may I? one of the offered options, or `cancel`
    elicitation    a form: its fields as JSON, or that it is declined or cancelled

What is no answer raises AnswerNotAccepted. After any of these answers the run goes on, without the
operation where it was not allowed.

Source: the public gateway's chat of interns; the fields that published clients parse.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct

from tollhouse.inference.sse import EventParser, EventTooLarge

ALLOW_ONCE: Final = "allow_once"
REJECT_ONCE: Final = "reject_once"
CANCEL: Final = "cancel"
_YES: Final = frozenset({"y", "yes", "true", "1", "on"})
_NO: Final = frozenset({"n", "no", "false", "0", "off"})
INTEGER: Final = frozenset({"integer", "int"})
NUMBER: Final = frozenset({"number", "float"})
BOOLEAN: Final = frozenset({"boolean", "bool"})
LIST: Final = frozenset({"array", "list", "multiselect", "multi_select"})
"""What the type of a field is called."""


class AnswerNotAccepted(ValueError):
    """An answer that its question does not take. Its text says what it takes."""


class PermissionQuestion(Struct, frozen=True, tag_field="kind", tag="permission"):
    """May the intern do something?"""

    options: list[str]
    """Some of `allow_once`, `allow_always`, `reject_once`, `reject_always`."""
    operation: str | None = None
    """What it wants to do, in its own words."""

    def cancel(self) -> str:
        """Return the answer of who has left."""
        return CANCEL

    def deny(self) -> str:
        """Return the answer where nobody can be asked: the safe one."""
        return REJECT_ONCE if REJECT_ONCE in self.options else CANCEL

    def approve(self) -> str | None:
        """Return the answer of who allows everything once; None where it is not offered."""
        return ALLOW_ONCE if ALLOW_ONCE in self.options else None

    def parse(self, text: str) -> str:
        """Return the option that somebody typed: its number, its name, `y`, `n` or `c`."""
        word = text.strip().lower().replace(" ", "_").replace("-", "_")
        short = {"y": ALLOW_ONCE, "n": REJECT_ONCE, "c": CANCEL}.get(word, word)
        if word.isdecimal() and 1 <= int(word) <= len(self.options):
            short = self.options[int(word) - 1]
        if short != CANCEL and short not in self.options:
            raise AnswerNotAccepted(f"choose one of {', '.join([*self.options, CANCEL])}")
        return short


class FormField(Struct, frozen=True):
    """One field of a form."""

    name: str
    type: str = "string"
    required: bool = False
    options: list[str | int | float | bool] | None = None

    @property
    def label(self) -> str:
        """The field as people see it: its name, and what goes into it."""
        kind = ", ".join(map(str, self.options)) if self.options else self.type
        return f"{self.name} ({kind}{', required' if self.required else ''})"

    def parse(self, text: str) -> Any:  # noqa: ANN401 - JSON is anything
        """Return the value that somebody typed; None where it is left out."""
        text = text.strip()
        if not text:
            if self.required:
                raise AnswerNotAccepted(f"{self.name} is required")
            return None
        if self.type.lower() in LIST:
            return [self._option(each.strip()) for each in text.split(",") if each.strip()]
        return self._option(text) if self.options else self._value(text)

    def _option(self, text: str) -> str | int | float | bool:
        options = self.options or []
        if not options:
            return text
        for option in options:
            if text.casefold() == str(option).casefold():
                return option
        if text.isdecimal() and 1 <= int(text) <= len(options):
            return options[int(text) - 1]
        raise AnswerNotAccepted(f"{self.name}: choose one of {', '.join(map(str, options))}")

    def _value(self, text: str) -> str | int | float | bool:
        kind = self.type.lower()
        if kind in BOOLEAN:
            if text.lower() not in _YES | _NO:
                raise AnswerNotAccepted(f"{self.name}: yes or no")
            return text.lower() in _YES
        if kind not in INTEGER | NUMBER:
            return text
        try:
            number = int(text) if kind in INTEGER else float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise AnswerNotAccepted(f"{self.name}: a {'whole ' if kind in INTEGER else ''}number")
        return number


class FormQuestion(Struct, frozen=True, tag_field="kind", tag="elicitation"):
    """A form to fill in."""

    message: str
    fields: list[FormField]

    def cancel(self) -> str:
        """Return the answer of who has left."""
        return json.dumps({"action": "cancel"})

    def deny(self) -> str:
        """Return the answer of who does not want to fill it in, or where nobody can be asked."""
        return json.dumps({"action": "decline"})

    def approve(self) -> None:
        """Return None: only its values answer a form."""

    def submit(self, values: dict[str, Any]) -> str:
        """Return the answer that fills it in."""
        return json.dumps({"action": "accept", "content": values})

    def parse(self, text: str) -> str:
        """Return the answer that a text means: the form's values, `decline` or `cancel`."""
        word = text.strip().strip("`").lower()
        if word == "decline":
            return self.deny()
        return self.cancel() if word == CANCEL else self.submit(self.values(text))

    def values(self, text: str) -> dict[str, Any]:
        """Return its values: the only field's, a JSON object, or lines like `name: value`."""
        stated = self._stated(text)
        known = {field.name for field in self.fields}
        if unknown := [name for name in stated if name not in known]:
            raise AnswerNotAccepted(
                f"there is no field {unknown[0]}; the fields are {', '.join(sorted(known))}"
            )
        values = {field.name: field.parse(stated.get(field.name, "")) for field in self.fields}
        return {name: value for name, value in values.items() if value is not None}

    def _stated(self, text: str) -> dict[str, str]:
        if text.lstrip().startswith("{"):
            try:
                values = json.loads(text)
            except ValueError:
                raise AnswerNotAccepted("that is no JSON object") from None
            return {str(name): _as_text(value) for name, value in values.items()}
        if len(self.fields) == 1:
            name = self.fields[0].name
            return {name: text.strip().removeprefix(f"{name}:")}
        stated: dict[str, str] = {}
        for line in filter(str.strip, text.splitlines()):
            name, colon, value = line.partition(":")
            if not colon:
                raise AnswerNotAccepted("write a line `name: value` for each field")
            stated[name.strip()] = value
        return stated


def _as_text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_as_text, value))  # pyright: ignore[reportUnknownArgumentType]
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class ChatQuestion:
    """A question that a run waits for."""

    call_id: str
    name: str
    """Of the function that the wire makes of it."""
    arguments: str
    """As they came: the answer repeats them."""
    asks: PermissionQuestion | FormQuestion

    def answered(self, content: str) -> list[dict[str, Any]]:
        """Return the messages that carry an answer, which a method of what is asked returned."""
        function = {"name": self.name, "arguments": self.arguments}
        call = {"id": self.call_id, "type": "function", "function": function}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": self.call_id, "content": content},
        ]


_END: Final = b"[DONE]"


class InvalidStream(ValueError):
    """What came is no stream of a chat."""


@dataclass(frozen=True, slots=True)
class TextEvent:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningEvent:
    """A piece of what it thinks, or a line about what its tools do."""

    text: str


@dataclass(frozen=True, slots=True)
class RunErrorEvent:
    """The run has failed."""

    code: int
    """The status that it would have had before the stream."""
    message: str
    reason: str | None
    retryable: bool
    limit_source: str | None = None
    """The limit of credits that is used up, where that is why."""
    remedy_hint: str | None = None
    """What the server says to do."""


class PromptTokensDetails(Struct, frozen=True):
    """Of the tokens of a prompt."""

    cached_tokens: int = 0


class TurnUsage(Struct, frozen=True):
    """What a run used."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cost: float | None = None
    """In USD."""
    prompt_tokens_details: PromptTokensDetails | None = None


@dataclass(frozen=True, slots=True)
class ClosingEvent:
    """The last chunk."""

    session_id: str | None
    usage: TurnUsage | None


ChatEvent = TextEvent | ReasoningEvent | ChatQuestion | RunErrorEvent | ClosingEvent
"""A question is the end of the stream for now: the run waits for its answer."""


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
    limit_source: str | None = None
    remedy_hint: str | None = None


class _Error(Struct):
    code: int
    message: str
    metadata: _Metadata | None = None


class _Chunk(Struct):
    choices: list[_Choice] = []
    error: _Error | None = None
    session_id: str | None = None
    usage: TurnUsage | None = None


_CHUNK: Final = msgspec.json.Decoder(_Chunk)
_QUESTION: Final = msgspec.json.Decoder(PermissionQuestion | FormQuestion)


class InternChatDecoder:
    """Reads one reply."""

    def __init__(self) -> None:
        self._parser = EventParser()
        self.ended = False
        """Whether it came to its end."""

    def feed(self, piece: bytes) -> list[ChatEvent]:
        """Return what a piece tells, without what follows the end; InvalidStream if it is none."""
        try:
            lines = self._parser.feed(piece)
        except EventTooLarge as error:
            raise InvalidStream(str(error)) from None
        events: list[ChatEvent] = []
        for line in lines:
            if self.ended or line == _END:
                self.ended = True
                break
            events += _events(line)
        return events


def _events(line: bytes) -> list[ChatEvent]:
    try:
        chunk = _CHUNK.decode(line)
        asked = [_question(call) for choice in chunk.choices for call in choice.delta.tool_calls]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidStream(str(error)) from None
    events: list[ChatEvent] = []
    for choice in chunk.choices:
        if choice.delta.reasoning:
            events.append(ReasoningEvent(choice.delta.reasoning))
        if choice.delta.content:
            events.append(TextEvent(choice.delta.content))
    events += asked
    failed = any(choice.finish_reason == "error" for choice in chunk.choices)
    if chunk.error is not None:
        about = chunk.error.metadata or _Metadata()
        error = chunk.error
        events.append(
            RunErrorEvent(
                error.code,
                error.message,
                about.reason,
                about.retryable,
                about.limit_source,
                about.remedy_hint,
            )
        )
    elif failed:
        events.append(RunErrorEvent(0, "The run failed.", None, retryable=False))
    elif not chunk.choices:
        events.append(ClosingEvent(chunk.session_id, chunk.usage))
    return events


def _question(call: _Call) -> ChatQuestion:
    asks = _QUESTION.decode(call.function.arguments)
    return ChatQuestion(call.id, call.function.name, call.function.arguments, asks)

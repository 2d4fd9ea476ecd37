"""Parses a chat request, as far as simulated models interpret it. Pure.

Source: https://platform.openai.com/docs/api-reference/chat/create, and the public gateway's
additions to it (`reasoning`, `reasoning_details`).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.wire import NULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


T = TypeVar("T")
MAX_CHOICES: Final = 128
MAX_TOP_LOGPROBS: Final = 20
MAX_STOPS: Final = 4
_RESULTS: Final = frozenset({"tool", "function"})
_SHOWN: Final = {
    "image_url": "[image]",
    "file": "[file]",
    "input_audio": "[audio]",
    "video_url": "[video]",
}
"""The text that acknowledges a part without text."""


class InvalidSimulatedRequest(MalformedResponse):
    """A field is invalid; the message names it."""


class _Part(Struct):
    type: str = "text"
    text: str = ""


class SimulatedReasoningDetail(Struct):
    """An item of a message's `reasoning_details`."""

    text: str | None = None
    signature: str | None = None
    format: str | None = None


class SimulatedMessage(Struct):
    """A message of the conversation."""

    role: str
    content: str | list[_Part] | None = None
    reasoning_details: list[SimulatedReasoningDetail] | None = None
    tool_calls: list[Raw] | None = None

    def __repr__(self) -> str:
        """Show none of its content."""
        return "<Message>"

    @property
    def is_result(self) -> bool:
        """Whether it is a tool result."""
        return self.role in _RESULTS

    @property
    def text(self) -> str:
        """The text of the message."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or ())

    @property
    def acknowledged_text(self) -> str:
        """The text, after an acknowledgement of each part without text."""
        parts = self.content if isinstance(self.content, list) else []
        shown = [_SHOWN[part.type] for part in parts if part.type in _SHOWN]
        return " ".join([*shown, self.text] if self.text else shown)


class FunctionTool(Struct):
    """A tool."""

    name: str
    parameters: Raw = NULL


class _Tool(Struct):
    function: FunctionTool | None = None


class _Schema(Struct):
    schema: Raw = NULL


class _Format(Struct):
    type: str
    json_schema: _Schema | None = None


class _Reasoning(Struct):
    effort: str | None = None
    enabled: bool | None = None
    exclude: bool | None = None


_Stops = Annotated[list[str], Meta(max_length=MAX_STOPS)]
_TopLogprobs = Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)]
_Limit = Annotated[int, Meta(ge=1)]
_Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]

_fields = msgspec.json.Decoder(dict[str, Raw])
_messages = msgspec.json.Decoder(list[SimulatedMessage])
_tools = msgspec.json.Decoder(list[_Tool] | None)
_tool_choice = msgspec.json.Decoder(str | _Tool | None)
_format = msgspec.json.Decoder(_Format | None)
_reasoning = msgspec.json.Decoder(_Reasoning | None)
_stop = msgspec.json.Decoder(str | _Stops | None)
_limit = msgspec.json.Decoder(_Limit | None)
_choices = msgspec.json.Decoder(_Choices | None)
_top_logprobs = msgspec.json.Decoder(_TopLogprobs | None)
_flag = msgspec.json.Decoder(bool | None)
_word = msgspec.json.Decoder(str | None)


@dataclass(frozen=True, slots=True, repr=False)
class SimulatedRequest:
    """A parsed chat request."""

    messages: Sequence[SimulatedMessage]
    digest: str
    """The SHA-256 of the messages."""
    functions: Sequence[FunctionTool]
    tool_choice: Literal["auto", "none", "required"]
    named: FunctionTool | None
    """The tool that must be called."""
    parallel: bool
    """Whether several tools may be called in parallel."""
    output: Literal["text", "json_object", "json_schema"]
    schema: Raw
    """The schema of the output; null if there is none."""
    wants_reasoning: bool
    shows_reasoning: bool
    stop: Sequence[str]
    max_tokens: int | None
    choices: int
    top_logprobs: int | None
    """None if no log-probabilities are requested."""


def parse_request(body: bytes) -> SimulatedRequest:
    """Parse a request.

    Raises:
        InvalidSimulatedRequest: A field is invalid.
    """
    fields = _fields.decode(body)
    try:
        messages = _messages.decode(fields.get("messages", NULL))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidSimulatedRequest(f"messages: {error}.") from None
    tools = _read(_tools, fields, "tools", "a list of tools") or ()
    functions = [tool.function for tool in tools if tool.function is not None]
    choice = _read(_tool_choice, fields, "tool_choice", "a word or an object that names a tool")
    output = _read(_format, fields, "response_format", "an object with a type")
    schema = output.json_schema if output else None
    reasoning = _read(_reasoning, fields, "reasoning", "an object") or _Reasoning()
    effort = reasoning.effort or _read(_word, fields, "reasoning_effort", "a word")
    stop = _read(_stop, fields, "stop", f"a text or at most {MAX_STOPS} texts")
    return SimulatedRequest(
        messages=messages,
        digest=sha256(fields["messages"]).hexdigest(),
        functions=functions,
        tool_choice=_mode(choice, functions),
        named=_named(choice, functions),
        parallel=_read(_flag, fields, "parallel_tool_calls", "true or false") is not False,
        output=_kind(output),
        schema=schema.schema if schema else NULL,
        wants_reasoning=reasoning.enabled is not False and effort != "none",
        shows_reasoning=not reasoning.exclude,
        stop=[stop] if isinstance(stop, str) else stop or [],
        max_tokens=_max_tokens(fields),
        choices=_read(_choices, fields, "n", f"an integer from 1 to {MAX_CHOICES}") or 1,
        top_logprobs=_logprobs(fields),
    )


def _read(
    decoder: msgspec.json.Decoder[T], fields: Mapping[str, Raw], name: str, wanted: str
) -> T | None:
    if name not in fields:
        return None
    try:
        return decoder.decode(fields[name])
    except (msgspec.DecodeError, RecursionError):
        raise InvalidSimulatedRequest(f"{name}: must be {wanted}.") from None


def _mode(
    choice: str | _Tool | None, functions: Sequence[FunctionTool]
) -> Literal["auto", "none", "required"]:
    if choice == "required":
        if not functions:
            raise InvalidSimulatedRequest("tool_choice: there is no tool to call.")
        return "required"
    return "none" if choice == "none" else "auto"


def _named(choice: str | _Tool | None, functions: Sequence[FunctionTool]) -> FunctionTool | None:
    if not isinstance(choice, _Tool) or choice.function is None:
        return None
    named = next((each for each in functions if each.name == choice.function.name), None)
    if named is None:
        raise InvalidSimulatedRequest("tool_choice: names no tool of this request.")
    return named


def _kind(output: _Format | None) -> Literal["text", "json_object", "json_schema"]:
    match output:
        case _Format(type=("json_schema" | "json_object") as kind):
            return kind
        case _:
            return "text"


def _logprobs(fields: Mapping[str, Raw]) -> int | None:
    wanted = _read(_flag, fields, "logprobs", "true or false")
    span = f"an integer from 0 to {MAX_TOP_LOGPROBS}"
    top = _read(_top_logprobs, fields, "top_logprobs", span)
    return (top or 0) if wanted else None


def _max_tokens(fields: Mapping[str, Raw]) -> int | None:
    limits = (
        _read(_limit, fields, name, "an integer of at least 1")
        for name in ("max_completion_tokens", "max_tokens")
    )
    return next((limit for limit in limits if limit is not None), None)


# Reasoning and its signature, which is verified when it is sent back. A stream sends details in
# pieces, and a client may send them back in pieces or merged field by field. So the format is
# set with the signature, which covers all text since the last one.

FORMAT: Final = "simulated-v1"
"""The `format` of signed simulated reasoning."""


def sign(text: str) -> str:
    """Return the signature of reasoning: a hash without a secret."""
    return sha256(f"{FORMAT}\0{text}".encode()).hexdigest()


def verify(messages: Sequence[SimulatedMessage]) -> None:
    """Reject a history in which reasoning was changed or lost its signature, as providers do."""
    for index, message in enumerate(messages):
        if not _fits(message.reasoning_details or ()):
            raise InvalidSimulatedRequest(
                f"messages[{index}].reasoning_details: the signature does not fit the text."
            )


def _fits(details: Iterable[SimulatedReasoningDetail]) -> bool:
    text = ""
    for detail in details:
        text += detail.text or ""
        if detail.format == FORMAT and detail.signature != sign(text):
            return False
        if detail.format is not None or detail.signature is not None:
            text = ""
    return True

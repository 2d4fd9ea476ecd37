"""Schemas of a responses request, as far as other formats can express it.

Objects with a `type` are decoded twice: first the type and then, if it is known, the rest. An item
of an unknown type may therefore have any fields.

Source: https://platform.openai.com/docs/api-reference/responses/create, and the public gateway's
reference for `stop`, `top_k`, the penalties and `reasoning.max_tokens`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.fields import read_typed
from tollhouse.inference.formats.raw_json import NULL
from tollhouse.kernel.errors import Invalid

T = TypeVar("T")


class TextFormat(msgspec.Struct):
    """The field `text.format`."""

    type: str
    name: str | None = None
    description: str | None = None
    schema: Raw = NULL
    strict: bool | None = None


class TextConfig(msgspec.Struct):
    """The field `text`."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningConfig(msgspec.Struct):
    """The field `reasoning`."""

    effort: str | None = None
    summary: str | None = None
    enabled: bool | None = None
    max_tokens: int | None = None
    exclude: bool | None = None


class ResponsesRequestBody(msgspec.Struct):
    """The top level of a request's body."""

    input: str | list[Raw]
    instructions: str | None = None
    tools: list[Raw] | None = None
    tool_choice: Raw = NULL
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    stop: str | list[str] | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    top_a: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    truncation: str | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None


class TypeTag(msgspec.Struct):
    """The `type` of an item, a part or a tool."""

    type: str | None = None


class ResponsesInputMessage(msgspec.Struct):
    """`message`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Raw]


class TextPart(msgspec.Struct):
    """`input_text` and `output_text`."""

    text: str
    cache_control: Raw = NULL


class RefusalPart(msgspec.Struct):
    """`refusal`."""

    refusal: str


class ImagePart(msgspec.Struct):
    """`input_image`."""

    image_url: str | None = None
    detail: str | None = None
    cache_control: Raw = NULL


class FilePart(msgspec.Struct):
    """`input_file`."""

    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    cache_control: Raw = NULL


class AudioData(msgspec.Struct):
    """The audio of `input_audio`."""

    data: str
    format: str


class AudioPart(msgspec.Struct):
    """`input_audio`."""

    input_audio: AudioData


class FunctionCall(msgspec.Struct):
    """`function_call`."""

    call_id: str
    name: str
    arguments: str


class CustomCall(msgspec.Struct):
    """`custom_tool_call`."""

    call_id: str
    name: str
    input: str


class CallOutput(msgspec.Struct):
    """`function_call_output` and `custom_tool_call_output`."""

    call_id: str
    output: str | list[Raw]


class ReasoningPart(msgspec.Struct):
    """A part of a reasoning item's summary or content."""

    text: str = ""


class ResponsesReasoningInput(msgspec.Struct):
    """`reasoning`."""

    id: str | None = None
    summary: list[ReasoningPart] | None = None
    content: list[ReasoningPart] | None = None
    encrypted_content: str | None = None


class Grammar(msgspec.Struct):
    """The grammar of a custom tool's input."""

    type: str | None = None
    syntax: str | None = None
    definition: str | None = None


class ResponsesTool(msgspec.Struct):
    """`function` and `custom`."""

    name: str
    description: str | None = None
    parameters: Raw = NULL
    strict: bool | None = None
    format: Grammar | None = None
    cache_control: Raw = NULL


class NamedChoice(msgspec.Struct):
    """A tool choice that is an object."""

    type: str
    name: str | None = None
    mode: str | None = None


body_decoder: Final = msgspec.json.Decoder(ResponsesRequestBody)
_tag = msgspec.json.Decoder(TypeTag)


def read_at(decoder: msgspec.json.Decoder[T], data: Raw, path: str) -> T:
    """Decode a part of a body as a type.

    Args:
        decoder: Of the type.
        data: The part.
        path: Its path in the body.

    Raises:
        Invalid: The part does not match; the message begins with the path of the bad field.
    """
    try:
        return read_typed(decoder, bytes(data))
    except Invalid as error:
        raise Invalid(_below(path, error.message)) from None


def read_kind(data: Raw, path: str) -> str | None:
    """Return the `type` of a part of a body; None if it has none.

    Raises:
        Invalid: The part is not an object, or its type not a string.
    """
    return read_at(_tag, data, path).type


def _below(path: str, finding: str) -> str:
    """Return a part's validation error as one of the body."""
    if finding.startswith("The body"):
        return f"{path}: must be JSON that is not nested too deeply."
    if finding.startswith("body: "):
        return f"{path}: {finding.removeprefix('body: ')}"
    return f"{path}{'' if finding.startswith('[') else '.'}{finding}"

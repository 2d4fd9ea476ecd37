"""Converts a responses request to a canonical request, and one to a responses request. Pure.

    message (system, developer, user)              one turn each
    message (assistant), reasoning, calls ...      one assistant turn for consecutive items
    outputs of calls ...                           one user turn for consecutive items

What becomes of each type of item, tool and part says `formats.kinds`; unknown types are refused.
The other way:

    system       a developer message
    user         function_call_output ..., then a message
    assistant    message, reasoning, function_call ... in their order

Parameters that the dialect lacks are left out: stop sequences, penalties, a seed, top_k, several
choices and cache breakpoints.

Source: https://platform.openai.com/docs/api-reference/responses/create, and the public gateway's
reference for `stop`, `top_k`, the penalties and `reasoning.max_tokens`.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.canonical import (
    OPENAI,
    SAMPLING,
    AudioBlock,
    Block,
    CanonicalRequest,
    CanonicalToolChoice,
    DocumentBlock,
    ImageBlock,
    JsonOutput,
    NotCarriedError,
    ReasoningBlock,
    ReasoningParameter,
    RefusalBlock,
    TextBlock,
    ThinkingOptions,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Turn,
    usual_effort,
)
from tollhouse.inference.formats.kinds import TOOLS, Kind
from tollhouse.inference.formats.responses_items import ParsedItem, read_item, read_kind, tools_of
from tollhouse.inference.formats.responses_replies import (
    JsonObject,
    freeform_input,
    function_arguments,
    reasoning_part,
)
from tollhouse.inference.formats.responses_tools import RequestTools
from tollhouse.inference.formats.tools import short_id
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    encoder,
    given,
    given_fields,
    present,
    read_at,
    read_typed,
    texts,
    without,
)
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tollhouse.inference.formats.adapter import ClientRequest
    from tollhouse.inference.types import Endpoint


class _TextFormat(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    schema: Raw = NULL
    strict: bool | None = None


class _TextConfig(msgspec.Struct):
    format: _TextFormat | None = None
    verbosity: str | None = None


class _RequestBody(msgspec.Struct):
    input: str | list[Raw]
    instructions: str | None = None
    tools: list[Raw] | None = None
    tool_choice: Raw = NULL
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    stop: str | list[str] | None = None
    text: _TextConfig | None = None
    reasoning: ReasoningParameter | None = None
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


class _NamedChoice(msgspec.Struct):
    type: str
    name: str | None = None
    namespace: str | None = None
    mode: str | None = None


_body: Final = msgspec.json.Decoder(_RequestBody)


# The request

LOGPROBS: Final = "message.output_text.logprobs"
"""The value of `include` that requests log-probabilities."""
_SAMPLING: Final = tuple(name for name in SAMPLING if name != "logit_bias")
_WORDS: Final[Mapping[str, Literal["auto", "none", "required"]]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
}
_object = msgspec.json.Decoder(Fields | None)
_choice = msgspec.json.Decoder(str | _NamedChoice | None)
_CALLABLE: Final = Kind("carried")


def parse_canonical_request(request: ClientRequest, data: bytes) -> CanonicalRequest:
    """Convert a responses request; raises `Invalid` with the path of a field of the wrong type."""
    if request.fields.get("prompt", NULL) != NULL:
        raise Invalid("prompt: a stored prompt is known to OpenAI alone; send its text.")
    body = read_typed(_body, data)
    kinds: list[str] = []
    lists: list[tuple[Sequence[Raw], str]] = [(body.tools or (), "tools")]
    if not isinstance(body.input, str):
        placed = [(item, f"input[{index}]") for index, item in enumerate(body.input)]
        kinds = [read_kind(item, at) for item, at in placed]
        brought = (tools_of(kind, *each) for kind, each in zip(kinds, placed, strict=True))
        lists += [each for each in brought if each is not None]
    own_tools = RequestTools(lists)
    tools = own_tools.definitions
    choice = _tool_choice(body.tool_choice, own_tools)
    return CanonicalRequest(
        turns=_parse_turns(body, kinds, own_tools),
        stream=request.stream,
        tools=tools,
        tool_choice=choice if tools else None,
        parallel_tool_calls=body.parallel_tool_calls if tools else None,
        max_tokens=body.max_output_tokens,
        stop=texts(body.stop),
        output=_json_output(body.text),
        thinking=_thinking(body.reasoning),
        verbosity=body.text.verbosity if body.text else None,
        logprobs=LOGPROBS in (body.include or ()) or bool(body.top_logprobs),
        top_logprobs=body.top_logprobs,
        user=body.user,
        metadata=given(request.fields.get("metadata", NULL)),
        sampling=given_fields(request.fields, _SAMPLING),
        cache=given(request.fields.get("cache_control", NULL)),
    )


def _parse_turns(body: _RequestBody, kinds: Sequence[str], tools: RequestTools) -> tuple[Turn, ...]:
    """Parse a conversation: the system prompt, what the model is told of tools, and the input."""
    told = [f"[{kind}: this tool is not available here.]" for kind in tools.told]
    leading = "\n\n".join(filter(None, [body.instructions, *told]))
    items = [ParsedItem("system", [TextBlock(leading)])] if leading else []
    if isinstance(body.input, str):
        items.append(ParsedItem("user", [TextBlock(body.input)]))
    else:
        for index, (kind, item) in enumerate(zip(kinds, body.input, strict=True)):
            items += read_item(kind, item, f"input[{index}]", tools)
    return tuple(_merged_turns(items))


def _merged_turns(items: Iterable[ParsedItem]) -> list[Turn]:
    turns: list[Turn] = []
    for (role, merges), run in groupby(items, lambda each: (each.role, each.merges)):
        if merges:
            turns.append(Turn(role, tuple(block for each in run for block in each.blocks)))
        else:
            turns += [Turn(role, tuple(each.blocks)) for each in run]
    return turns


def _tool_choice(data: Raw, tools: RequestTools) -> CanonicalToolChoice | None:
    choice = read_at(_choice, data, "tool_choice")
    if choice is None:
        return None
    if isinstance(choice, str):
        mode = _WORDS.get(choice, "auto")
        if mode == "required" and tools.told and not tools.definitions:
            raise Invalid("tool_choice: a tool is required, and none is left that can be called.")
        return CanonicalToolChoice(mode)
    if TOOLS.get(choice.type, _CALLABLE).rule != "carried":
        raise Invalid(f"tool_choice.type: {choice.type[:40]!r} is a tool that is not here.")
    if choice.name is None:
        name = tools.name_of_type(choice.type)
    else:
        name = tools.name(choice.name, choice.namespace)
    if any(tool.name == name for tool in tools.definitions):
        return CanonicalToolChoice("named", name)
    return CanonicalToolChoice(_WORDS.get(choice.mode or "", "auto"))


def _json_output(text: _TextConfig | None) -> JsonOutput | None:
    if text is None or text.format is None:
        return None
    wanted = text.format
    if wanted.type == "json_object":
        return JsonOutput()
    if wanted.type != "json_schema":
        return None
    read_at(_object, wanted.schema, "text.format.schema")
    return JsonOutput(given(wanted.schema), wanted.name, wanted.description, wanted.strict)


def _thinking(reasoning: ReasoningParameter | None) -> ThinkingOptions | None:
    thinking = ThinkingOptions() if reasoning is None else reasoning.options()
    return None if thinking == ThinkingOptions() else thinking


# A request for a provider

_LONGEST_CALL_ID: Final = 64


def _render_input(
    turns: Sequence[Turn], freeform: Collection[str], provider: str
) -> list[JsonObject]:
    """Return the items of a conversation; `freeform` names the tools that take text."""
    texts = {
        block.id
        for turn in turns
        for block in turn.blocks
        if isinstance(block, ToolCall) and block.name in freeform
    }
    return [item for turn in turns for item in _turn(turn, freeform, texts, provider)]


def _turn(
    turn: Turn, freeform: Collection[str], texts: Collection[str], provider: str
) -> Iterable[JsonObject]:
    if turn.role == "assistant":
        return _assistant(turn.blocks, freeform, provider)
    if turn.role == "system":
        return _messages("developer", turn.blocks)
    results = [block for block in turn.blocks if isinstance(block, ToolResult)]
    return [*(_result_item(result, texts) for result in results), *_messages("user", turn.blocks)]


def _messages(role: str, blocks: Iterable[Block]) -> list[JsonObject]:
    parts = [part for part in map(_input_part, blocks) if part is not None]
    return [{"type": "message", "role": role, "content": parts}] if parts else []


def _input_part(block: Block) -> JsonObject | None:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    if isinstance(block, ImageBlock):
        detail: JsonObject = {} if block.detail is None else {"detail": block.detail}
        return {"type": "input_image", "image_url": block.url, **detail}
    if isinstance(block, AudioBlock):
        raise NotCarriedError(block, "a recording cannot be sent to this model's provider.")
    return _input_file(block) if isinstance(block, DocumentBlock) else None


def _input_file(document: DocumentBlock) -> JsonObject:
    if document.url is None:
        return {"type": "input_text", "text": document.text or ""}
    if not document.url.startswith("data:"):
        return {"type": "input_file", "file_url": document.url}
    # OpenAI rejects data without a name.
    name = document.name or "document"
    return {"type": "input_file", "filename": name, "file_data": document.url}


def _result_item(result: ToolResult, texts: Collection[str]) -> JsonObject:
    is_text = result.call_id in texts
    return {
        "type": "custom_tool_call_output" if is_text else "function_call_output",
        "call_id": short_id(result.call_id, _LONGEST_CALL_ID),
        "output": _result_content(result),
    }


def _result_content(result: ToolResult) -> object:
    """Return a string if there is only text; not every server accepts a list of parts."""
    texts = [block.text for block in result.content if isinstance(block, TextBlock)]
    if len(texts) == len(result.content):
        return "\n".join(texts)
    return [part for part in map(_input_part, result.content) if part is not None]


def _assistant(
    blocks: Iterable[Block], freeform: Collection[str], provider: str
) -> list[JsonObject]:
    items: list[JsonObject] = []
    for is_message, run in groupby(
        blocks, lambda block: isinstance(block, (TextBlock, RefusalBlock))
    ):
        if is_message:
            parts = [part for part in map(_output_part, run) if part is not None]
            if parts:
                items.append({"type": "message", "role": "assistant", "content": parts})
        else:
            given = (_output_item(block, freeform, provider) for block in run)
            items += [item for item in given if item is not None]
    return items


def _output_item(block: Block, freeform: Collection[str], provider: str) -> JsonObject | None:
    if isinstance(block, ToolCall):
        return _call_item(block, freeform)
    return reasoning_input(block, provider) if isinstance(block, ReasoningBlock) else None


def _output_part(block: Block) -> JsonObject | None:
    if isinstance(block, RefusalBlock):
        return {"type": "refusal", "refusal": block.text}
    if isinstance(block, TextBlock) and block.text:
        return {"type": "output_text", "text": block.text, "annotations": []}
    return None


def _call_item(call: ToolCall, freeform: Collection[str]) -> JsonObject:
    own: JsonObject = {"call_id": short_id(call.id, _LONGEST_CALL_ID), "name": call.name}
    if call.name in freeform:
        return {"type": "custom_tool_call", **own, "input": freeform_input(call.arguments)}
    arguments = function_arguments(call.arguments)
    return {"type": "function_call", **own, "arguments": arguments}


def reasoning_input(block: ReasoningBlock, provider: str) -> JsonObject | None:
    """Return OpenAI's own reasoning as an input item; None for another provider's."""
    if block.format != OPENAI or not block.encrypted or not block.may_go_to(provider):
        return None
    is_shown = block.is_summary and block.text
    return {
        "type": "reasoning",
        **({} if block.id is None else {"id": block.id}),
        "summary": [reasoning_part(block.text, is_summary=True)] if is_shown else [],
        "encrypted_content": block.encrypted,
    }


# The request

_ENCRYPTED: Final = "reasoning.encrypted_content"
SENT: Final = ("temperature", "top_p", "prompt_cache_key", "service_tier", "safety_identifier")
_LEAST_OUTPUT: Final = 16
"""OpenAI rejects a smaller `max_output_tokens`."""


def render_request(prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
    """Return the provider's request body."""
    leading, turns = _leading(prompt.turns)
    freeform = frozenset(tool.name for tool in prompt.tools if tool.freeform)
    limit = prompt.max_tokens
    choice = prompt.tool_choice if prompt.tools else None
    fields: dict[str, object] = {
        "model": endpoint.model,
        "instructions": leading,
        "input": _render_input(turns, freeform, endpoint.provider),
        "stream": prompt.stream or None,
        "store": False,
        "include": _included(prompt, endpoint.provider) or None,
        "tools": [_rendered_tool(tool) for tool in prompt.tools] or None,
        "tool_choice": _rendered_choice(choice, freeform) if choice else None,
        "parallel_tool_calls": prompt.parallel_tool_calls if prompt.tools else None,
        "max_output_tokens": None if limit is None else max(_LEAST_OUTPUT, limit),
        "text": _text_config(prompt) or None,
        "reasoning": (_reasoning_options(prompt.thinking) or None) if prompt.thinking else None,
        "top_logprobs": prompt.top_logprobs,
        "user": prompt.user,
        "metadata": prompt.metadata,
        **{name: prompt.sampling.get(name) for name in SENT},
    }
    return encoder.encode(without(present(fields), endpoint.profile.refuses))


def _leading(turns: Sequence[Turn]) -> tuple[str | None, Sequence[Turn]]:
    """Return the text of the leading system turns, and the turns after them.

    The input must not be empty, so system turns alone stay where they are.
    """
    count = next((at for at, turn in enumerate(turns) if turn.role != "system"), 0)
    texts = [
        block.text
        for turn in turns[:count]
        for block in turn.blocks
        if isinstance(block, TextBlock)
    ]
    return "\n\n".join(texts) or None, turns[count:]


def _included(prompt: CanonicalRequest, provider: str) -> list[str]:
    """Return the values of `include`.

    OpenAI rejects a request for encrypted reasoning if the model does not reason, so it is sent
    only if reasoning is enabled or the conversation has some.
    """
    include = [_ENCRYPTED] if _reasons(prompt, provider) else []
    return [*include, LOGPROBS] if prompt.logprobs else include


def _reasons(prompt: CanonicalRequest, provider: str) -> bool:
    thinking = prompt.thinking
    if thinking is not None:
        return thinking.enabled is not False and thinking.effort != "none"
    return any(
        isinstance(block, ReasoningBlock) and reasoning_input(block, provider) is not None
        for turn in prompt.turns
        for block in turn.blocks
    )


def _rendered_tool(tool: ToolDefinition) -> dict[str, object]:
    described = {} if tool.description is None else {"description": tool.description}
    if tool.freeform:
        return {"type": "custom", "name": tool.name, **described}
    return {
        "type": "function",
        "name": tool.name,
        **described,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
        # The dialect defaults to strict, which rejects many schemas.
        "strict": bool(tool.strict),
    }


def _rendered_choice(choice: CanonicalToolChoice, freeform: frozenset[str]) -> object:
    if choice.mode != "named":
        return choice.mode
    return {"type": "custom" if choice.name in freeform else "function", "name": choice.name}


def _text_config(prompt: CanonicalRequest) -> dict[str, object]:
    format_ = None if prompt.output is None else _text_format(prompt.output)
    return present({"format": format_, "verbosity": prompt.verbosity})


def _text_format(output: JsonOutput) -> dict[str, object]:
    if output.schema is None:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "name": output.name or "answer",
        "schema": output.schema,
        **present({"description": output.description, "strict": output.strict}),
    }


def _reasoning_options(thinking: ThinkingOptions) -> dict[str, object]:
    if thinking.enabled is False:
        return {}
    effort = usual_effort(thinking)
    # OpenAI sends only summaries; a client that enables reasoning expects some text.
    shown = not thinking.exclude and effort != "none"
    return present({"effort": effort, "summary": (thinking.summary or "auto") if shown else None})

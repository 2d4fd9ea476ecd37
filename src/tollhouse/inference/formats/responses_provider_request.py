"""Renders a canonical request as the body of a responses request. Pure.

    system       a developer message
    user         function_call_output ..., then a message
    assistant    message, reasoning, function_call ... in their order

Parameters that the dialect lacks are left out: stop sequences, penalties, a seed, top_k, several
choices and cache breakpoints.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.canonical.places import NotCarriedError
from tollhouse.inference.formats.canonical.translation import ProviderFormat
from tollhouse.inference.formats.canonical.types import (
    COMMON_PARAMETERS,
    OPENAI,
    AudioBlock,
    Block,
    CanonicalRequest,
    CanonicalToolChoice,
    DocumentBlock,
    ImageBlock,
    JsonOutput,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ThinkingOptions,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Turn,
    usual_effort,
)
from tollhouse.inference.formats.responses_client_request import LOGPROBS
from tollhouse.inference.formats.responses_client_response import (
    JsonObject,
    freeform_input,
    function_arguments,
    reasoning_part,
)
from tollhouse.inference.formats.responses_provider_response import (
    ResponsesStreamDecoder,
    parse_response,
)
from tollhouse.inference.formats.tool_names import OPENAI_NAMES, short_id
from tollhouse.inference.formats.wire import encoder, present, without
from tollhouse.inference.types import Dialect, Endpoint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


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
        return _message("developer", turn.blocks)
    results = [block for block in turn.blocks if isinstance(block, ToolResult)]
    return [*(_result(result, texts) for result in results), *_message("user", turn.blocks)]


def _message(role: str, blocks: Iterable[Block]) -> list[JsonObject]:
    parts = [part for part in map(_part, blocks) if part is not None]
    return [{"type": "message", "role": role, "content": parts}] if parts else []


def _part(block: Block) -> JsonObject | None:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    if isinstance(block, ImageBlock):
        detail: JsonObject = {} if block.detail is None else {"detail": block.detail}
        return {"type": "input_image", "image_url": block.url, **detail}
    if isinstance(block, AudioBlock):
        raise NotCarriedError(block, "a recording cannot be sent to this model's provider.")
    return _file(block) if isinstance(block, DocumentBlock) else None


def _file(document: DocumentBlock) -> JsonObject:
    if document.url is None:
        return {"type": "input_text", "text": document.text or ""}
    if not document.url.startswith("data:"):
        return {"type": "input_file", "file_url": document.url}
    # OpenAI rejects data without a name.
    name = document.name or "document"
    return {"type": "input_file", "filename": name, "file_data": document.url}


def _result(result: ToolResult, texts: Collection[str]) -> JsonObject:
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
    return [part for part in map(_part, result.content) if part is not None]


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
        return _call(block, freeform)
    return reasoning_input(block, provider) if isinstance(block, ReasoningBlock) else None


def _output_part(block: Block) -> JsonObject | None:
    if isinstance(block, RefusalBlock):
        return {"type": "refusal", "refusal": block.text}
    if isinstance(block, TextBlock) and block.text:
        return {"type": "output_text", "text": block.text, "annotations": []}
    return None


def _call(call: ToolCall, freeform: Collection[str]) -> JsonObject:
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
_SAMPLING: Final = ("temperature", "top_p", "prompt_cache_key", "service_tier", "safety_identifier")
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
        "include": _include(prompt, endpoint.provider) or None,
        "tools": [_tool(tool) for tool in prompt.tools] or None,
        "tool_choice": _tool_choice(choice, freeform) if choice else None,
        "parallel_tool_calls": prompt.parallel_tool_calls if prompt.tools else None,
        "max_output_tokens": None if limit is None else max(_LEAST_OUTPUT, limit),
        "text": _text(prompt) or None,
        "reasoning": (_reasoning(prompt.thinking) or None) if prompt.thinking else None,
        "top_logprobs": prompt.top_logprobs,
        "user": prompt.user,
        "metadata": prompt.metadata,
        **{name: prompt.sampling.get(name) for name in _SAMPLING},
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


def _include(prompt: CanonicalRequest, provider: str) -> list[str]:
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


def _tool(tool: ToolDefinition) -> dict[str, object]:
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


def _tool_choice(choice: CanonicalToolChoice, freeform: frozenset[str]) -> object:
    if choice.mode != "named":
        return choice.mode
    return {"type": "custom" if choice.name in freeform else "function", "name": choice.name}


def _text(prompt: CanonicalRequest) -> dict[str, object]:
    format_ = None if prompt.output is None else _format(prompt.output)
    return present({"format": format_, "verbosity": prompt.verbosity})


def _format(output: JsonOutput) -> dict[str, object]:
    if output.schema is None:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "name": output.name or "answer",
        "schema": output.schema,
        **present({"description": output.description, "strict": output.strict}),
    }


def _reasoning(thinking: ThinkingOptions) -> dict[str, object]:
    if thinking.enabled is False:
        return {}
    effort = usual_effort(thinking)
    # OpenAI sends only summaries; a client that enables reasoning expects some text.
    shown = not thinking.exclude and effort != "none"
    return present({"effort": effort, "summary": (thinking.summary or "auto") if shown else None})


RESPONSES_PROVIDER: Final = ProviderFormat(
    dialect=Dialect.RESPONSES,
    supported_parameters=COMMON_PARAMETERS.union(
        _SAMPLING, {"verbosity", "logprobs", "top_logprobs", "metadata"}
    ),
    canonical_names={"max_output_tokens": "max_tokens", "reasoning": "thinking", "text": "output"},
    render_request=render_request,
    parse_response=parse_response,
    stream_decoder=ResponsesStreamDecoder,
    tool_names=OPENAI_NAMES,
)

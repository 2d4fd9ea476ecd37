"""Renders canonical requests for providers of the chat format. Pure.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.canonical.places import NotCarriedError
from tollhouse.inference.formats.canonical.types import (
    FREEFORM_SCHEMA,
    SAMPLING,
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
from tollhouse.inference.formats.chat_completions.reasoning import render_extra, render_thoughts
from tollhouse.inference.formats.chat_completions.wire import render_call
from tollhouse.inference.formats.tool_names import LONGEST_CALL_ID, short_id
from tollhouse.inference.formats.wire import encoder, present, without

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tollhouse.inference.types import Endpoint


_MOST_STOPS: Final = 4


def render_request(prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
    """Return the body of a request."""
    profile = endpoint.profile
    with_usage = prompt.stream and profile.usage_in_streams
    fields: dict[str, object] = {
        "model": endpoint.model,
        "messages": [each for turn in prompt.turns for each in _messages(turn, endpoint)],
        "stream": prompt.stream or None,
        "stream_options": {"include_usage": True} if with_usage else None,
        profile.output_limit: prompt.max_tokens,
        "stop": list(prompt.stop[:_MOST_STOPS]) or None,
        "user": prompt.user,
        "metadata": prompt.metadata,
        "n": prompt.choices,
        **_tools(prompt),
        "response_format": None if prompt.output is None else _format(prompt.output),
        "reasoning_effort": None if prompt.thinking is None else _effort(prompt.thinking),
        "verbosity": prompt.verbosity,
        "logprobs": prompt.logprobs or None,
        "top_logprobs": prompt.top_logprobs if prompt.logprobs else None,
        **{name: prompt.sampling[name] for name in SAMPLING if name in prompt.sampling},
    }
    return encoder.encode(without(present(fields), profile.refused_in_chat))


def _effort(thinking: ThinkingOptions) -> str | None:
    effort = usual_effort(thinking)
    return "low" if effort is None and thinking.budget_tokens is not None else effort


def _format(output: JsonOutput) -> dict[str, object]:
    if output.schema is None:
        return {"type": "json_object"}
    schema: dict[str, object] = {"name": output.name or "answer", "schema": output.schema}
    if output.description is not None:
        schema["description"] = output.description
    if output.strict is not None:
        schema["strict"] = output.strict
    return {"type": "json_schema", "json_schema": schema}


# Tools


def _tools(prompt: CanonicalRequest) -> dict[str, object]:
    if not prompt.tools:
        return {}
    return {
        "tools": [_tool(each) for each in prompt.tools],
        "tool_choice": None if prompt.tool_choice is None else _tool_choice(prompt.tool_choice),
        "parallel_tool_calls": prompt.parallel_tool_calls,
    }


def _tool_choice(choice: CanonicalToolChoice) -> object:
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def _tool(tool: ToolDefinition) -> Mapping[str, object]:
    fields = {
        "name": tool.name,
        "description": tool.description,
        "parameters": FREEFORM_SCHEMA if tool.freeform else tool.parameters,
        "strict": tool.strict,
    }
    return {"type": "function", "function": present(fields)}


# Messages


def _messages(turn: Turn, endpoint: Endpoint) -> Iterator[dict[str, object]]:
    if turn.role == "assistant":
        message = _assistant(turn, endpoint)
        if len(message) > 1:
            yield message
        return
    results = [block for block in turn.blocks if isinstance(block, ToolResult)]
    yield from map(_result, results)
    # A tool message holds text only; other content follows in a user message.
    pictures = [
        each for result in results for each in result.content if not isinstance(each, TextBlock)
    ]
    rest = [block for block in turn.blocks if not isinstance(block, ToolResult)]
    if pictures or rest:
        yield {"role": turn.role, "content": _content([*pictures, *rest])}


def _result(result: ToolResult) -> dict[str, object]:
    texts = [each.text for each in result.content if isinstance(each, TextBlock)]
    call_id = short_id(result.call_id, LONGEST_CALL_ID)
    return {"role": "tool", "tool_call_id": call_id, "content": "\n".join(texts)}


def _assistant(turn: Turn, endpoint: Endpoint) -> dict[str, object]:
    mine = [
        block
        for block in turn.blocks
        if isinstance(block, ReasoningBlock) and block.may_go_to(endpoint.provider)
    ]
    extras = {block.id: block for block in mine if block.field == "extra_content"}
    text_blocks = [block for block in turn.blocks if isinstance(block, (TextBlock, RefusalBlock))]
    calls = [
        render_call(
            short_id(block.id, LONGEST_CALL_ID),
            block.name,
            block.arguments,
            render_extra(extras.get(block.id)),
        )
        for block in turn.blocks
        if isinstance(block, ToolCall)
    ]
    message: dict[str, object] = {"role": "assistant"}
    if text_blocks:
        message["content"] = _content(text_blocks)
    if calls:
        message["tool_calls"] = calls
    message |= render_extra(extras.get(None))
    thoughts = [block for block in mine if block.field != "extra_content"]
    if thoughts:
        first = thoughts[0]
        # Of the fields of chat, only the details have signatures.
        is_signed = first.maker is not None and bool(first.signature or first.encrypted)
        usual = "reasoning_details" if is_signed else endpoint.profile.takes_reasoning_as
        field = first.field or usual
        message |= render_thoughts(thoughts, field, [_part(block) for block in text_blocks])
    return message


def _content(blocks: Iterable[Block]) -> str | list[dict[str, object]]:
    """Return a message's content: a plain string if there is only text."""
    parts = [_part(block) for block in blocks]
    if all(part.keys() == {"type", "text"} for part in parts) and len(parts) <= 1:
        return "".join(str(part["text"]) for part in parts)
    return parts


def _part(block: Block) -> dict[str, object]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, RefusalBlock):
        return {"type": "refusal", "refusal": block.text}
    if isinstance(block, ImageBlock):
        url = {"url": block.url} | ({} if block.detail is None else {"detail": block.detail})
        return {"type": "image_url", "image_url": url}
    if isinstance(block, AudioBlock):
        recording = {"data": block.data, "format": block.format}
        return {"type": "input_audio", "input_audio": recording}
    if isinstance(block, DocumentBlock):
        return _document(block)
    kind = type(block).__name__.removesuffix("Block")
    raise NotCarriedError(block, f"a {kind} cannot stand in a message of this role.")


def _document(document: DocumentBlock) -> dict[str, object]:
    if document.text is not None:
        return {"type": "text", "text": document.text}
    if document.url is None or not document.url.startswith("data:"):
        reason = "a document by URL cannot be sent to this provider; send its bytes."
        raise NotCarriedError(document, reason)
    file = {"filename": document.name or "document", "file_data": document.url}
    return {"type": "file", "file": file}

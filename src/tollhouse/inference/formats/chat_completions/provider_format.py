"""The provider side of the chat format.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.canonical.blocks import (
    AudioBlock,
    DocumentBlock,
    ImageBlock,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
    ToolResult,
)
from tollhouse.inference.formats.chat_completions.canonical_request import SAMPLING
from tollhouse.inference.formats.chat_completions.decoder import ChatStreamDecoder, parse_response
from tollhouse.inference.formats.chat_completions.reasoning import render_details
from tollhouse.inference.types import Dialect
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tollhouse.inference.formats.canonical.blocks import Block, Turn
    from tollhouse.inference.formats.canonical.request import (
        CanonicalRequest,
        CanonicalToolChoice,
        JsonOutput,
        ThinkingOptions,
        ToolDefinition,
    )
    from tollhouse.inference.formats.canonical.response import CanonicalResponse
    from tollhouse.inference.types import Endpoint, Profile

SUPPORTED_PARAMETERS: Final = frozenset(
    {
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_tokens",
        "stop",
        "output",
        "thinking",
        "verbosity",
        "logprobs",
        "top_logprobs",
        "choices",
        "user",
        "metadata",
        *SAMPLING,
    }
)
_CANONICAL_NAMES: Final = {
    "response_format": "output",
    "reasoning_effort": "thinking",
    "n": "choices",
    # The provider accepts one of the two.
    "max_tokens": "",
    "max_completion_tokens": "",
}
_MOST_STOPS: Final = 4
_LEAST_HIGH, _LEAST_MEDIUM = 16_000, 4_000
_FREEFORM_SCHEMA: Final = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}


class ChatProviderFormat:
    """Implements `formats.canonical.ports.ProviderFormat`."""

    dialect = Dialect.CHAT
    supported_parameters = SUPPORTED_PARAMETERS

    def rejected_parameters(self, profile: Profile) -> frozenset[str]:
        """Return the parameters that a provider rejects, by their canonical names."""
        return frozenset(_CANONICAL_NAMES.get(name, name) for name in profile.refused_in_chat)

    def render_request(self, prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
        """Return the body of a request."""
        profile = endpoint.profile
        fields = {
            "model": endpoint.model,
            "messages": [each for turn in prompt.turns for each in _messages(turn, profile)],
            **_flow(prompt, profile),
            **_tools(prompt),
            **_answer(prompt),
            **{name: prompt.sampling[name] for name in SAMPLING if name in prompt.sampling},
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return msgspec.json.encode(
            {name: value for name, value in given.items() if name not in profile.refused_in_chat}
        )

    def parse_response(self, body: bytes) -> CanonicalResponse:
        """Parse a complete response."""
        return parse_response(body)

    def stream_decoder(self) -> ChatStreamDecoder:
        """Return the decoder of one stream."""
        return ChatStreamDecoder()


def _flow(prompt: CanonicalRequest, profile: Profile) -> dict[str, object]:
    with_usage = prompt.stream and profile.usage_in_streams
    return {
        "stream": prompt.stream or None,
        "stream_options": {"include_usage": True} if with_usage else None,
        profile.output_limit: prompt.max_tokens,
        "stop": list(prompt.stop[:_MOST_STOPS]) or None,
        "user": prompt.user,
        "metadata": prompt.metadata,
        "n": prompt.choices,
    }


def _answer(prompt: CanonicalRequest) -> dict[str, object]:
    return {
        "response_format": None if prompt.output is None else _format(prompt.output),
        "reasoning_effort": None if prompt.thinking is None else _effort(prompt.thinking),
        "verbosity": prompt.verbosity,
        "logprobs": prompt.logprobs or None,
        "top_logprobs": prompt.top_logprobs if prompt.logprobs else None,
    }


def _format(output: JsonOutput) -> dict[str, object]:
    if output.schema is None:
        return {"type": "json_object"}
    schema: dict[str, object] = {"name": output.name or "answer", "schema": output.schema}
    if output.description is not None:
        schema["description"] = output.description
    if output.strict is not None:
        schema["strict"] = output.strict
    return {"type": "json_schema", "json_schema": schema}


def _effort(thinking: ThinkingOptions) -> str | None:
    """Return the effort; for a token budget, roughly the one that would use it."""
    if thinking.effort is not None:
        return thinking.effort
    if thinking.budget_tokens is None:
        return None
    if thinking.budget_tokens >= _LEAST_HIGH:
        return "high"
    return "medium" if thinking.budget_tokens >= _LEAST_MEDIUM else "low"


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
    schema = _FREEFORM_SCHEMA if tool.freeform else tool.parameters
    given = {
        "name": tool.name,
        "description": tool.description,
        "parameters": schema,
        "strict": tool.strict,
    }
    function = {name: value for name, value in given.items() if value is not None}
    return {"type": "function", "function": function}


# Messages


def _messages(turn: Turn, profile: Profile) -> Iterator[dict[str, object]]:
    if turn.role == "assistant":
        message = _assistant(turn, profile)
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
    return {"role": "tool", "tool_call_id": result.call_id, "content": "\n".join(texts)}


def _assistant(turn: Turn, profile: Profile) -> dict[str, object]:
    text_blocks = [block for block in turn.blocks if isinstance(block, (TextBlock, RefusalBlock))]
    calls = [_call(block) for block in turn.blocks if isinstance(block, ToolCall)]
    message: dict[str, object] = {"role": "assistant"}
    if text_blocks:
        message["content"] = _content(text_blocks)
    if calls:
        message["tool_calls"] = calls
    reasoning_blocks = [block for block in turn.blocks if isinstance(block, ReasoningBlock)]
    if reasoning_blocks and profile.takes_reasoning_as == "reasoning_content":
        message["reasoning_content"] = "".join(block.text for block in reasoning_blocks)
    elif reasoning_blocks and profile.takes_reasoning_as == "reasoning_details":
        message["reasoning_details"] = render_details(reasoning_blocks)
    return message


def _call(call: ToolCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


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
    message = f"messages: a {kind} cannot stand in a message of this role."
    raise Invalid(message)


def _document(document: DocumentBlock) -> dict[str, object]:
    if document.text is not None:
        return {"type": "text", "text": document.text}
    if document.url is None or not document.url.startswith("data:"):
        message = "messages: a document by URL cannot be sent to this provider; send its bytes."
        raise Invalid(message)
    file = {"filename": document.name or "document", "file_data": document.url}
    return {"type": "file", "file": file}

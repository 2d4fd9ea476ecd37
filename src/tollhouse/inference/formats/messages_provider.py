"""Renders a canonical request as the body of a messages request. Pure.

    system turns              -> `system`, in order
    user and assistant turns  -> `messages`; consecutive turns of one role are one message
    thinking of older models  -> thinking{enabled, budget_tokens}: a share of max_tokens
    thinking of newer models  -> thinking{adaptive}, output_config{effort}

Anthropic rejects empty text, trailing space in a prefilled answer, tool results that do not come
first, and call ids with characters other than its own.

Source: https://docs.anthropic.com/en/api/messages and, below https://docs.anthropic.com/en/docs/,
build-with-claude/tool-use, build-with-claude/extended-thinking, build-with-claude/effort, and
build-with-claude/adaptive-thinking (Opus 4.7 and later take no budget, and no sampling parameters)
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tollhouse.inference.formats.canonical.places import NotCarriedError
from tollhouse.inference.formats.canonical.stream import arguments_object
from tollhouse.inference.formats.canonical.translation import ProviderFormat
from tollhouse.inference.formats.canonical.types import (
    COMMON_PARAMETERS,
    FREEFORM_SCHEMA,
    Block,
    CanonicalRequest,
    DocumentBlock,
    ImageBlock,
    ReasoningBlock,
    RefusalBlock,
    Role,
    TextBlock,
    ThinkingOptions,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Turn,
)
from tollhouse.inference.formats.messages import (
    DEFAULT_MAX_TOKENS,
    refused_in_messages,
    render_provider_reasoning,
)
from tollhouse.inference.formats.messages_replies import MessagesStreamDecoder, parse_response
from tollhouse.inference.formats.tool_names import ANTHROPIC_NAMES
from tollhouse.inference.formats.wire import (
    NULL,
    encoder,
    fields_decoder,
    present,
    text_decoder,
    try_decode,
    without,
)
from tollhouse.inference.types import Dialect, Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from msgspec import Raw

    Content = Mapping[str, object]


_VERSION: Final = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_LAST_WITH_BUDGET: Final = (4, 5)
"""Until then models take a thinking budget in tokens, and neither `adaptive` nor `effort`."""
_LAST_WITH_SAMPLING: Final = (4, 6)
"""Until then models take temperature, top_p and top_k."""
_NEWEST: Final = (99, 0)


def _claude_version(model: str) -> tuple[int, int] | None:
    """Return the version in a provider's name of a model: `claude-sonnet-4-20250514` has 4.0.

    An unknown model of Claude counts as new; other models have none.
    """
    name = model.lower()
    if "claude" not in name:
        return None
    match = _VERSION.search(name)
    return (int(match[1]), int(match[2] or 0)) if match else _NEWEST


# Thinking

_SHARES: Final[Mapping[str, float]] = {
    "minimal": 0.1,
    "low": 0.2,
    "medium": 0.5,
    "high": 0.8,
    "xhigh": 0.95,
    "max": 0.95,
}
"""The share of `max_tokens` for each effort."""
_EFFORTS: Final[Mapping[str, str]] = {"minimal": "low"} | {
    effort: effort for effort in ("low", "medium", "high", "xhigh", "max")
}
_USUAL: Final = "medium"
_LEAST_BUDGET: Final = 1024


@dataclass(frozen=True, slots=True)
class _ThinkingPlan:
    max_tokens: int
    thinking: Mapping[str, object] | None = None
    effort: str | None = None


def _wants_thinking(prompt: CanonicalRequest) -> bool:
    """Return whether the model is to reason: not with a forced tool or a prefilled answer.

    Anthropic rejects either one together with thinking.
    """
    choice = prompt.tool_choice
    forced = bool(prompt.tools) and choice is not None and choice.mode in {"required", "named"}
    thinking = prompt.thinking
    begun = bool(prompt.turns) and prompt.turns[-1].role == "assistant"
    if thinking is None or thinking.enabled is False or thinking.effort == "none":
        return False
    if forced or begun:
        return False
    return bool(thinking.enabled or thinking.budget_tokens or thinking.effort)


def _plan_adaptive(thinking: ThinkingOptions, max_tokens: int) -> _ThinkingPlan:
    mode: dict[str, object] = {"type": "adaptive"}
    if thinking.summary is not None and not thinking.exclude:
        mode["display"] = "summarized"
    return _ThinkingPlan(max_tokens, mode, _EFFORTS.get(thinking.effort or ""))


def _plan_budget(thinking: ThinkingOptions, max_tokens: int, most: int | None) -> _ThinkingPlan:
    """Return the plan for a model with a thinking budget and `most` output tokens.

    The limit of reasoning and answer together is raised if the budget would leave nothing for the
    answer.
    """
    share = _SHARES.get(thinking.effort or "", _SHARES[_USUAL])
    budget = max(_LEAST_BUDGET, thinking.budget_tokens or int(share * max_tokens))
    if budget >= max_tokens:
        max_tokens += budget
        if most is not None and most > _LEAST_BUDGET:
            max_tokens = min(max_tokens, most)
            budget = min(budget, max_tokens - 1)
    return _ThinkingPlan(max_tokens, {"type": "enabled", "budget_tokens": budget})


# Turns

_SAID_BY_MODEL: Final = TextBlock | RefusalBlock | ReasoningBlock | ToolCall
"""The block types of a model's turn; images that another model generated are left out."""
_DATA_URL: Final = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]*)*?;base64,", re.IGNORECASE)
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")
_FOREIGN_IN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")


def _render_turns(turns: Sequence[Turn], provider: str) -> tuple[list[Content], list[Content]]:
    """Return `system` and `messages`."""
    system = [block for turn in turns if turn.role == "system" for block in _system(turn.blocks)]
    spoken = _merged([turn for turn in turns if turn.role != "system"], provider)
    if spoken and spoken[-1][0] == "assistant":
        _strip(spoken[-1][1])
    if spoken and spoken[0][0] == "assistant":
        # Anthropic requires the user to begin.
        spoken.insert(0, ("user", [{"type": "text", "text": "."}]))
    if not spoken and system:
        # At least one message is required: a system prompt alone becomes the user's.
        return [], [{"role": "user", "content": system}]
    return system, [{"role": role, "content": content} for role, content in spoken]


def _merged(turns: Sequence[Turn], provider: str) -> list[tuple[Role, list[Content]]]:
    """Return messages with alternating roles, tool results first."""
    merged: list[tuple[Role, list[Content]]] = []
    for turn in turns:
        own = _SAID_BY_MODEL if turn.role == "assistant" else Block
        parts = [
            part
            for block in turn.blocks
            if isinstance(block, own)
            for part in _block(block, provider)
        ]
        if merged and merged[-1][0] == turn.role:
            merged[-1][1].extend(parts)
        elif parts:
            merged.append((turn.role, parts))
    for _, content in merged:
        content.sort(key=lambda part: part["type"] != "tool_result")
    return merged


def _strip(prefill: list[Content]) -> None:
    """Remove trailing space from a prefilled answer."""
    if prefill[-1]["type"] == "text":
        prefill[-1] = {**prefill[-1], "text": str(prefill[-1]["text"]).rstrip()}


def _system(blocks: Iterable[Block]) -> list[Content]:
    content: list[Content] = []
    for block in blocks:
        if not isinstance(block, (TextBlock, RefusalBlock)):
            raise NotCarriedError(block, "a system message is made of text alone.")
        content += _text(block)
    return content


def _block(block: Block, provider: str = "") -> list[Content]:
    if isinstance(block, (TextBlock, RefusalBlock)):
        return _text(block)
    if isinstance(block, ImageBlock):
        return [{"type": "image", "source": _source(block, block.url), **_cached(block.cache)}]
    if isinstance(block, DocumentBlock):
        return [_document(block)]
    if isinstance(block, ToolCall):
        return [_tool_use(block)]
    if isinstance(block, ToolResult):
        return [_tool_result(block)]
    if isinstance(block, ReasoningBlock):
        reasoning = render_provider_reasoning(block, provider)
        return [] if reasoning is None else [reasoning]
    raise NotCarriedError(block, "a recording cannot be sent to this model's provider.")


def _text(block: TextBlock | RefusalBlock) -> list[Content]:
    if not block.text.strip():
        return []
    cache = block.cache if isinstance(block, TextBlock) else None
    return [{"type": "text", "text": block.text, **_cached(cache)}]


def _document(block: DocumentBlock) -> Content:
    named: Content = {} if block.name is None else {"title": block.name}
    return {"type": "document", "source": _content_of(block), **named, **_cached(block.cache)}


def _content_of(block: DocumentBlock) -> Content:
    if block.url is None:
        return _plain(block.text or "")
    source = _source(block, block.url)
    if not str(source.get("media_type", "")).startswith(_TEXTS):
        return source
    try:
        return _plain(b64decode(str(source["data"])).decode())
    except ValueError:
        raise NotCarriedError(block, "a text document must be UTF-8 in base64.") from None


def _plain(text: str) -> Content:
    return {"type": "text", "media_type": "text/plain", "data": text}


def _source(block: Block, url: str) -> Content:
    if url[:5].lower() != "data:":
        return {"type": "url", "url": url}
    match = _DATA_URL.match(url)
    if match is None:
        raise NotCarriedError(block, "a data: URL must hold base64.")
    data = url[match.end() :]
    return {"type": "base64", "media_type": match["type"], "data": data}


def _tool_use(block: ToolCall) -> Content:
    return {
        "type": "tool_use",
        "id": _FOREIGN_IN_ID.sub("_", block.id),
        "name": block.name,
        "input": arguments_object(block.arguments),
        **_cached(block.cache),
    }


def _tool_result(block: ToolResult) -> Content:
    content = [content for part in block.content for content in _block(part)]
    return {
        "type": "tool_result",
        "tool_use_id": _FOREIGN_IN_ID.sub("_", block.call_id),
        **({"content": content} if content else {}),
        **({"is_error": True} if block.is_error else {}),
        **_cached(block.cache),
    }


def _cached(cache: Raw | None) -> Content:
    return {} if cache is None else {"cache_control": cache}


# The request

_MODES: Final = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}
_TIERS: Final = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
_LEAST_TOP_P: Final = 0.95
"""While the model reasons."""
_NO_PARAMETERS: Final[Mapping[str, object]] = {"type": "object", "properties": {}}
_ANY_OBJECT: Final = (
    "Answer with one valid JSON object and nothing else: no text around it and no code fence."
)
_number: Final = msgspec.json.Decoder(float)


def render_request(prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
    """Return the provider's request body; raises `NotCarriedError`."""
    system, messages = _render_turns(_turns(prompt), endpoint.provider)
    plan = _plan(prompt, endpoint)
    fields: dict[str, object] = {
        "model": endpoint.model,
        "max_tokens": plan.max_tokens,
        "system": system,
        "messages": messages,
        "tools": [_tool(tool) for tool in prompt.tools],
        "tool_choice": _tool_choice(prompt),
        "stop_sequences": [each for each in prompt.stop if each.strip()],
        "thinking": plan.thinking,
        "output_config": _output_config(prompt, plan),
        "metadata": {"user_id": prompt.user} if prompt.user else None,
        "stream": prompt.stream,
        "cache_control": prompt.cache,
    }
    _drop_surplus_breakpoints(fields)
    # Anthropic rejects null; an empty list means the same as an absent field.
    given = {name: value for name, value in fields.items() if value or name == "messages"}
    given |= _sampling(prompt, endpoint, thinks=plan.thinking is not None)
    return encoder.encode(without(given, refused_in_messages(endpoint.profile)))


_MOST_BREAKPOINTS: Final = 4


def _drop_surplus_breakpoints(fields: Mapping[str, Any]) -> None:
    """Leave at most four breakpoints, the last ones: what each caches begins with all before it.

    That of the request counts. Source: build-with-claude/prompt-caching.
    """
    blocks = [*fields["tools"], *fields["system"]]
    for part in (part for message in fields["messages"] for part in message["content"]):
        inside = part.get("content", ()) if part["type"] == "tool_result" else ()
        blocks += [*inside, part]
    marked = [block for block in blocks if "cache_control" in block]
    most = _MOST_BREAKPOINTS - (fields["cache_control"] is not None)
    for block in marked[: max(0, len(marked) - most)]:
        del block["cache_control"]


def _turns(prompt: CanonicalRequest) -> Sequence[Turn]:
    """Return the turns; the dialect has no JSON-object mode, so the model is instructed."""
    if prompt.output is None or prompt.output.schema is not None:
        return prompt.turns
    return (*prompt.turns, Turn("system", (TextBlock(_ANY_OBJECT),)))


def _plan(prompt: CanonicalRequest, endpoint: Endpoint) -> _ThinkingPlan:
    most = endpoint.max_completion_tokens
    max_tokens = prompt.max_tokens or most or DEFAULT_MAX_TOKENS
    if prompt.thinking is None or not _wants_thinking(prompt):
        return _ThinkingPlan(max_tokens)
    version = _claude_version(endpoint.model)
    if version is not None and version <= _LAST_WITH_BUDGET:
        return _plan_budget(prompt.thinking, max_tokens, most)
    return _plan_adaptive(prompt.thinking, max_tokens)


def _tool(tool: ToolDefinition) -> Mapping[str, object]:
    return present(
        {
            "name": tool.name,
            "description": tool.description,
            "strict": tool.strict or None,
            "cache_control": tool.cache,
            "input_schema": _input_schema(tool),
        }
    )


def _input_schema(tool: ToolDefinition) -> object:
    if tool.freeform:
        return FREEFORM_SCHEMA
    schema = None if tool.parameters is None else try_decode(fields_decoder, tool.parameters)
    # Anthropic requires the type, which every function's schema implies.
    return _NO_PARAMETERS if schema is None else {"type": "object", **schema}


def _tool_choice(prompt: CanonicalRequest) -> Mapping[str, object] | None:
    if not prompt.tools:
        return None
    choice = prompt.tool_choice
    given: dict[str, object] = {"type": _MODES[choice.mode] if choice else "auto"}
    if choice and choice.name is not None:
        given["name"] = choice.name
    if prompt.parallel_tool_calls is False and given["type"] != "none":
        given["disable_parallel_tool_use"] = True
    return given if choice or len(given) > 1 else None


def _output_config(prompt: CanonicalRequest, plan: _ThinkingPlan) -> Mapping[str, object]:
    config: dict[str, object] = {}
    if plan.effort is not None:
        config["effort"] = plan.effort
    if prompt.output is not None and prompt.output.schema is not None:
        config["format"] = {"type": "json_schema", "schema": prompt.output.schema}
    return config


def _sampling(prompt: CanonicalRequest, endpoint: Endpoint, *, thinks: bool) -> dict[str, object]:
    given = prompt.sampling
    sampling: dict[str, object] = {}
    tier = try_decode(text_decoder, given.get("service_tier", NULL))
    if tier in _TIERS:
        sampling["service_tier"] = _TIERS[tier]
    version = _claude_version(endpoint.model)
    if version is not None and version > _LAST_WITH_SAMPLING:
        return sampling
    top_p = try_decode(_number, given.get("top_p", NULL))
    if thinks:
        return sampling | ({"top_p": top_p} if top_p and top_p >= _LEAST_TOP_P else {})
    temperature = try_decode(_number, given.get("temperature", NULL))
    if "top_k" in given:
        sampling["top_k"] = given["top_k"]
    if temperature is not None:
        # Newer models reject top_p together with temperature.
        return sampling | {"temperature": min(1.0, max(0.0, temperature))}
    return sampling if top_p is None else sampling | {"top_p": top_p}


MESSAGES_PROVIDER: Final = ProviderFormat(
    dialect=Dialect.MESSAGES,
    supported_parameters=COMMON_PARAMETERS
    | {"stop", "temperature", "top_p", "top_k", "service_tier"},
    canonical_names={"output_config": "output", "metadata": "user", "stop_sequences": "stop"},
    render_request=render_request,
    parse_response=parse_response,
    stream_decoder=MessagesStreamDecoder,
    tool_names=ANTHROPIC_NAMES,
)

"""Token counts between the chat format and ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.chat_completions.wire import (
    calls_decoder,
    message_decoder,
    usage_decoder,
)
from tollhouse.inference.formats.costs import render_costs
from tollhouse.inference.formats.raw_json import NULL
from tollhouse.inference.formats.tokens import MAX_TOKENS

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.chat_completions.wire import ChatDelta, ChatUsage
    from tollhouse.inference.formats.fields import Fields


def output_bytes(delta: ChatDelta) -> int:
    """Return how many bytes a delta adds to what the model said."""
    size = _called_bytes(delta.tool_calls) if delta.tool_calls != NULL else 0
    content = delta.content
    if isinstance(content, list):
        size += sum(len(part) for part in content)
        content = None
    for text in (content, delta.reasoning or delta.reasoning_content, delta.refusal):
        if text:
            size += len(text) if text.isascii() else len(text.encode())
    return size


def _called_bytes(tool_calls: msgspec.Raw) -> int:
    """Return how many bytes of calls the model wrote, without the JSON around them."""
    try:
        calls = calls_decoder.decode(tool_calls) or ()
    except (msgspec.DecodeError, RecursionError):
        return len(tool_calls)
    written = (call.function for call in calls if call.function is not None)
    return sum(len(f"{each.name or ''}{each.arguments or ''}".encode()) for each in written)


def message_bytes(message: msgspec.Raw) -> int:
    """Return the same for a whole message."""
    try:
        return output_bytes(message_decoder.decode(message))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not of the usual shape; its JSON is near enough.
        return len(message)


def parse_usage(data: msgspec.Raw | None, *, with_output: bool = True) -> Usage | None:
    """Return what a provider reported, in disjoint classes; None where that cannot be used.

    A count that is missing, negative, absurd or no number is no report: the cost is then unknown,
    which somebody will look at, rather than a wrong figure that nobody will.

    Args:
        data: The `usage`; None where there is none.
        with_output: Whether there is output to count: embeddings have none.
    """
    if data is None:
        return None
    try:
        reported = usage_decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    if reported is None or (reported.completion_tokens is None and with_output):
        return None
    return _disjoint(reported)


def _disjoint(reported: ChatUsage) -> Usage | None:
    prompt = reported.prompt_tokens_details
    completion = reported.completion_tokens_details
    read = (prompt.cached_tokens or 0) if prompt else 0
    written = (prompt.cache_write_tokens or 0) if prompt else 0
    reasoning = (completion.reasoning_tokens or 0) if completion else 0
    output = reported.completion_tokens or 0
    apart = reported.prompt_tokens + output + reasoning
    if reasoning > output or (reasoning and reported.total_tokens == apart):
        # xAI counts reasoning beside the completion, not in it.
        output += reasoning
    usage = Usage(
        # `prompt_tokens` contains the cached ones; a provider that counts them apart is clamped.
        input_tokens=max(0, reported.prompt_tokens - read - written),
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=output,
        reasoning_tokens=reasoning,
    )
    counts = (reported.prompt_tokens, read, written, usage.output_tokens, reasoning)
    return usage if min(counts) >= 0 and max(counts) <= MAX_TOKENS else None


class _Options(msgspec.Struct):
    include_usage: bool | None = None
    include: bool | None = None


_options = msgspec.json.Decoder(_Options | None)


def asks_for_usage(fields: Fields) -> bool:
    """Tell whether a request wants its stream to end with the usage, in a chunk without choices.

    It gets the usage in any case. Whoever has not asked reads the first choice of every chunk.

    Args:
        fields: The request's `stream_options.include_usage` is OpenAI's question, `usage.include`
            the public gateway's.
    """
    return any(map(_is_asked, (fields.get("stream_options", NULL), fields.get("usage", NULL))))


def _is_asked(given: msgspec.Raw) -> bool:
    try:
        options = _options.decode(given)
    except (msgspec.DecodeError, RecursionError):
        return False
    return options is not None and bool(options.include_usage or options.include)


def render_usage(charge: Charge, *, is_byok: bool) -> dict[str, object]:
    """Return the `usage` object of a reply."""
    usage = charge.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens + usage.cache_write_1h_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        **render_costs(charge, is_byok=is_byok),
    }

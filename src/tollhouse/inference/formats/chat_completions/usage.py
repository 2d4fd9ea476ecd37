"""Converts token counts of the chat format, and estimates them from the output."""

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
    """Return the bytes of output in a delta."""
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
    """Return the bytes of tool names and arguments, without the JSON around them."""
    try:
        calls = calls_decoder.decode(tool_calls) or ()
    except (msgspec.DecodeError, RecursionError):
        return len(tool_calls)
    written = (call.function for call in calls if call.function is not None)
    return sum(len(f"{each.name or ''}{each.arguments or ''}".encode()) for each in written)


def message_bytes(message: msgspec.Raw) -> int:
    """Return the bytes of output in a complete message."""
    try:
        return output_bytes(message_decoder.decode(message))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Of an unknown shape; the size of its JSON is close enough.
        return len(message)


def parse_usage(data: msgspec.Raw | None, *, with_output: bool = True) -> Usage | None:
    """Return the reported usage in disjoint token classes; None if it is not usable.

    A count that is missing, negative, above `MAX_TOKENS` or not a number makes the usage unusable:
    an unknown cost gets noticed, a wrong one does not.

    Args:
        data: The `usage`; None if there is none.
        with_output: Whether output tokens are required; embeddings have none.
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
        # xAI counts reasoning tokens separately from completion tokens.
        output += reasoning
    usage = Usage(
        # `prompt_tokens` includes cached tokens; if a provider excludes them the result is clamped.
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
    """Return whether a request wants the usage in a last chunk without choices.

    The usage is sent in any case; clients that did not ask read the first choice of every chunk.

    Args:
        fields: The request's; OpenAI's option is `stream_options.include_usage`, the public
            gateway's is `usage.include`.
    """
    return any(map(_is_asked, (fields.get("stream_options", NULL), fields.get("usage", NULL))))


def _is_asked(given: msgspec.Raw) -> bool:
    try:
        options = _options.decode(given)
    except (msgspec.DecodeError, RecursionError):
        return False
    return options is not None and bool(options.include_usage or options.include)


def render_usage(charge: Charge, *, is_byok: bool) -> dict[str, object]:
    """Return the `usage` object of a response."""
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

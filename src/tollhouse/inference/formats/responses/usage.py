"""Converts token counts of the responses format.

Source: https://platform.openai.com/docs/api-reference/responses/object#responses/object-usage, and
the public gateway's reference for the costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.costs import render_costs
from tollhouse.inference.formats.tokens import MAX_TOKENS

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _ProviderUsage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


_usage = msgspec.json.Decoder(_ProviderUsage | None)


def parse_usage(data: msgspec.Raw) -> Usage | None:
    """Return the reported usage in disjoint token classes; None if it is not usable.

    A count that is missing, negative, above `MAX_TOKENS` or not a number makes the usage unusable:
    an unknown cost gets noticed, a wrong one does not.
    """
    try:
        reported = _usage.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if reported is None else _disjoint(reported)


def _disjoint(reported: _ProviderUsage) -> Usage | None:
    given, made = reported.input_tokens_details, reported.output_tokens_details
    read = (given.cached_tokens or 0) if given else 0
    written = (given.cache_write_tokens or 0) if given else 0
    reasoning = (made.reasoning_tokens or 0) if made else 0
    counts = (reported.input_tokens, read, written, reported.output_tokens, reasoning)
    if min(counts) < 0 or max(counts) > MAX_TOKENS:
        return None
    return Usage(
        # `input_tokens` includes cached tokens; if a provider excludes them the result is clamped.
        input_tokens=max(0, reported.input_tokens - read - written),
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=reported.output_tokens,
        reasoning_tokens=reasoning,
    )


def render_usage(charge: Charge) -> dict[str, object]:
    """Return the `usage` object of a response."""
    usage = charge.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens + usage.cache_write_1h_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
        **_costs(charge),
    }


def _costs(charge: Charge) -> dict[str, object]:
    """Return the cost fields; this format has its own names for the details."""
    costs = render_costs(charge, is_byok=False)
    parts = costs.pop("cost_details", None)
    if isinstance(parts, dict):
        costs["cost_details"] = {
            "upstream_inference_cost": parts["upstream_inference_cost"],
            "upstream_inference_input_cost": parts["upstream_inference_prompt_cost"],
            "upstream_inference_output_cost": parts["upstream_inference_completions_cost"],
        }
    return costs

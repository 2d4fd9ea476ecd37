"""Converts token counts of the messages format.

Source: https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching ("input_tokens" counts
uncached tokens only) and https://docs.anthropic.com/en/docs/build-with-claude/streaming (the
counts of `message_delta` are cumulative).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.costs import render_costs
from tollhouse.inference.formats.fields import Fields
from tollhouse.inference.formats.raw_json import NULL, raw
from tollhouse.inference.formats.tokens import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.accounting.types import Charge


class _CacheCreation(msgspec.Struct):
    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _ProviderUsage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None
    output_tokens_details: _OutputDetails | None = None


_fields = msgspec.json.Decoder(Fields | None)
_usage = msgspec.json.Decoder(_ProviderUsage)
_NULLABLE: Final[Mapping[str, object]] = {
    "server_tool_use": None,
    "service_tier": None,
    "inference_geo": None,
}


def read_fields(data: Raw) -> Fields:
    """Return the non-null fields of a `usage` object; empty if it is not an object."""
    try:
        fields = _fields.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {} if fields is None else _said(fields)


def _said(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value != NULL}


def parse_usage(fields: Mapping[str, Raw]) -> Usage | None:
    """Return the reported usage in disjoint token classes; None if it is not usable.

    A count that is missing, negative, above `MAX_TOKENS` or not a number makes the usage unusable:
    an unknown cost gets noticed, a wrong one does not.
    """
    try:
        return _disjoint(_usage.decode(raw(fields)))
    except (msgspec.DecodeError, RecursionError):
        return None


def parse_input(fields: Mapping[str, Raw]) -> Usage | None:
    """Return the usage that a provider reported before its output."""
    return parse_usage({**fields, "output_tokens": Raw(b"0")})


def readable(fields: Fields) -> Fields:
    """Return the usage at the start of a stream if it is valid for clients; else nothing."""
    return fields if parse_usage({"output_tokens": Raw(b"0"), **fields}) is not None else {}


def parse_report(start: Fields, end: Fields) -> Usage | None:
    """Return the usage of a stream: the counts at its end override those at its start."""
    if "output_tokens" not in end:
        # The count at the start covers only the output until then.
        return None
    return parse_usage(start | end)


def _disjoint(reported: _ProviderUsage) -> Usage | None:
    creation = reported.cache_creation or _CacheCreation()
    hour = creation.ephemeral_1h_input_tokens or 0
    minutes = creation.ephemeral_5m_input_tokens or 0
    written = reported.cache_creation_input_tokens
    written = minutes + hour if written is None else written
    details = reported.output_tokens_details
    counts = (
        reported.input_tokens,
        reported.cache_read_input_tokens or 0,
        written,
        hour,
        minutes,
        reported.output_tokens,
        (details.thinking_tokens or 0) if details else 0,
    )
    if min(counts) < 0 or max(counts) > MAX_TOKENS:
        return None
    # The sum wins if the two disagree: every report has it.
    hour = min(hour, written)
    return Usage(
        input_tokens=counts[0],
        cache_read_tokens=counts[1],
        cache_write_tokens=written - hour,
        cache_write_1h_tokens=hour,
        output_tokens=reported.output_tokens,
        reasoning_tokens=counts[-1],
    )


def render_tokens(usage: Usage) -> dict[str, object]:
    """Return a `usage` object with every key that clients rely on."""
    return {
        **_NULLABLE,
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens + usage.cache_write_1h_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens,
            "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def render_usage(charge: Charge, provider: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the final `usage` of a response.

    Args:
        charge: The counted tokens and their cost.
        provider: The provider's own `usage` fields; kept unless the gateway has the same.
    """
    costs = render_costs(charge, is_byok=False)
    return {**_NULLABLE, **(provider or {}), **_counts(charge.usage), **costs}


def _counts(usage: Usage) -> dict[str, object]:
    return {name: value for name, value in render_tokens(usage).items() if name not in _NULLABLE}

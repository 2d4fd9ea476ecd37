"""What a reply used: where providers say it, under which names, and what the numbers mean.

One reading for every format, since servers put one format's names into another's replies:

    counts      null says nothing; a whole number may be written as text or as a fraction
    alike       of several names for one count the largest holds, as of several reports of a stream
                and of several in one list
    the total   is a lower bound: what it has beyond the other counts was output
    no usage    a count that is negative, above `MAX_TOKENS` or no number makes all of them
                unusable: an unknown cost gets noticed, a wrong one does not

Sources: the API references of OpenAI (chat, responses), Anthropic (messages, streaming: the counts
of `message_delta` are cumulative; web search: `server_tool_use`; compaction: `iterations`), Google
(`UsageMetadata`), Amazon Bedrock (`TokenUsage`, `amazon-bedrock-invocationMetrics`), Cohere
(`billed_units`), Groq (`x_groq`), Moonshot (`usage` of a choice), DeepSeek
(`prompt_cache_hit_tokens`), Perplexity (`num_search_queries`), xAI (`num_sources_used`),
Replicate (`metrics`), and the sources of llama.cpp's server (`timings`), SGLang (`meta_info`),
Ollama (counts at the top) and Vercel's AI SDK.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Final, Optional, cast

import msgspec
from msgspec import Meta, Raw, Struct

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.wire import MAX_TOKENS, NULL, Fields, raw, try_decode

if TYPE_CHECKING:
    from collections.abc import Mapping

Counts = dict[str, int]
"""What a provider reported, by the names of `COUNTS`."""

PLACES: Final = (
    "usage",
    "x_groq.usage",
    "usage_metadata",
    "usageMetadata",
    "amazon-bedrock-invocationMetrics",
    "timings",
    "meta",
    "meta_info",
    "metrics",
    "delta.usage",
    "choices[].usage",
    "choices[].delta.usage",
    "choices[].message.usage",
)
"""Where a reply or an event has its usage, if not at its top; of the choices' own, output is added
up."""
INSTEAD: Final = ("billed_units", "tokens")
"""Objects of a usage that have its counts; the first that is there holds."""
COUNTS: Final[Mapping[str, str]] = {
    # All input, the cached included
    "prompt": "prompt_tokens promptTokens promptTokenCount prompt_token_count prompt_eval_count"
    " tokens_evaluated",
    # Input without the cached, if these go by a name of `read_apart` or `write_apart`; else all
    "input": "input_tokens inputTokens inputTokenCount input_token_count prompt_n",
    "tool_input": "toolUsePromptTokenCount tool_use_prompt_token_count",
    "read": "prompt_tokens_details.cached_tokens input_tokens_details.cached_tokens"
    " prompt_cache_hit_tokens cached_tokens cachedContentTokenCount cached_content_token_count"
    " cachedInputTokens",
    "read_apart": "cache_read_input_tokens cacheReadInputTokens cacheReadInputTokenCount cache_n",
    "write": "prompt_tokens_details.cache_write_tokens input_tokens_details.cache_write_tokens"
    " prompt_tokens_details.cache_creation_tokens input_tokens_details.cache_creation_tokens",
    "write_apart": "cache_creation_input_tokens cacheWriteInputTokens cacheWriteInputTokenCount",
    "write_minutes": "cache_creation.ephemeral_5m_input_tokens",
    "write_hour": "cache_creation.ephemeral_1h_input_tokens",
    "output": "completion_tokens completionTokens output_tokens outputTokens outputTokenCount"
    " output_token_count generated_tokens candidatesTokenCount candidates_token_count predicted_n"
    " eval_count tokens_predicted",
    "reasoning": "completion_tokens_details.reasoning_tokens"
    " output_tokens_details.reasoning_tokens output_tokens_details.thinking_tokens"
    " reasoning_tokens reasoningTokens",
    # Reasoning that `output` does not contain
    "thoughts": "thoughtsTokenCount thoughts_token_count",
    "total": "total_tokens totalTokens totalTokenCount total_token_count",
    # Fees that are no tokens
    "searches": "server_tool_use.web_search_requests server_tool_use_details.web_search_requests"
    " num_search_queries num_sources_used search_units"
    " server_side_tool_usage_details.web_search_calls",
    "searches_of_x": "server_side_tool_usage_details.x_search_calls",
    "file_searches": "server_side_tool_usage_details.file_search_calls"
    " server_side_tool_usage_details.document_search_calls",
}
"""Each count, with its names; a dot leads into an object."""

_NAMED: Final[Mapping[str, str]] = {
    name: count for count, names in COUNTS.items() for name in names.split()
}
_OBJECTS: Final = frozenset(name.partition(".")[0] for name in _NAMED if "." in name)
_CHOICES: Final = "choices[]."
_OF_CHOICES: Final = [
    place.removeprefix(_CHOICES) for place in PLACES if place.startswith(_CHOICES)
]
_BESIDE: Final[Mapping[str, str]] = {
    head: inner
    for head, _, inner in (place.partition(".") for place in PLACES if place != "usage")
    if not head.endswith("[]")
}
"""The further places beside the choices, each with the name within."""
_AT_TOP: Final = frozenset(name for name in _NAMED if "." not in name)
_ELSEWHERE: Final = _AT_TOP | _BESIDE.keys()
_REPEATED: Final = frozenset({"message", "fallback_message"})
"""Iterations of Anthropic's that the counts beside them contain; those of other kinds come on top.

Source: `BetaUsage.iterations` of anthropic 0.120.
"""
_INPUTS: Final = ("prompt", "input", "read", "read_apart", "write", "write_apart")
_object_or_objects: Final = msgspec.json.Decoder(dict[str, Any] | list[dict[str, Any]])
_fields: Final = msgspec.json.Decoder(Fields)
_choices: Final = msgspec.json.Decoder(list[Fields])
_LONGEST_NUMBER: Final = 20


class _Unusable(ValueError):
    """A count that cannot be meant."""


def read_counts(data: Raw | None) -> Counts:
    """Return the counts of a usage object; none if it is missing or not usable."""
    if data is None or data == NULL:
        return {}
    usual = try_decode(_usual, data)
    if usual is not None:
        return usual.counts()
    found: Counts = {}
    try:
        for given in _each(try_decode(_object_or_objects, data)):
            found = later(found, _read(given))
    except _Unusable:
        return {}
    return found


_Number = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
_Count = Optional[_Number]  # noqa: UP045 - `|` knows no annotated type


class _InputDetails(Struct, forbid_unknown_fields=True):
    cached_tokens: _Count = None
    audio_tokens: _Count = None


class _OutputDetails(Struct, forbid_unknown_fields=True):
    reasoning_tokens: _Count = None
    audio_tokens: _Count = None
    accepted_prediction_tokens: _Count = None
    rejected_prediction_tokens: _Count = None


class _Chats(Struct, forbid_unknown_fields=True):
    """The usage of most chat replies, which is read at once; `_read` reads it in the same way."""

    prompt_tokens: _Number
    completion_tokens: _Number
    total_tokens: _Number
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None

    def counts(self) -> Counts:
        found = {
            "prompt": self.prompt_tokens,
            "output": self.completion_tokens,
            "total": self.total_tokens,
        }
        of_input, of_output = self.prompt_tokens_details, self.completion_tokens_details
        if of_input is not None and of_input.cached_tokens is not None:
            found["read"] = of_input.cached_tokens
        if of_output is not None and of_output.reasoning_tokens is not None:
            found["reasoning"] = of_output.reasoning_tokens
        return found


_usual: Final = msgspec.json.Decoder(_Chats)


def _each(given: dict[str, Any] | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return given if isinstance(given, list) else [given or {}]


def _read(given: Mapping[str, Any]) -> Counts:
    found: Counts = {}
    for name, value in _flat(given):
        count = _NAMED.get(name)
        if count is not None and value is not None:
            found[count] = max(found.get(count, 0), _number(value))
    iterations = given.get("iterations")
    for each in cast("list[dict[str, Any]]", iterations) if _are_objects(iterations) else ():
        if each.get("type", "message") not in _REPEATED:
            for count, number in _read(each).items():
                found[count] = found.get(count, 0) + number
    return found


def _are_objects(value: object) -> bool:
    many = cast("list[object]", value) if isinstance(value, list) else ()
    return bool(many) and all(isinstance(each, dict) for each in many)


def _flat(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    for name in INSTEAD:
        if isinstance(given.get(name), dict):
            given = {**given, **given[name]}
            break
    found: list[tuple[str, Any]] = []
    for name, value in given.items():
        if name not in _OBJECTS:
            found.append((name, value))
        elif isinstance(value, dict):
            inner = cast("dict[str, Any]", value)
            found += [(f"{name}.{each}", number) for each, number in inner.items()]
        elif value not in (None, []):  # PHP's servers write an empty object as `[]`
            raise _Unusable
    return found


def _number(value: object) -> int:
    if type(value) is int and 0 <= value <= MAX_TOKENS:
        return value
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER:
        try:
            value = float(value)
        except ValueError:
            raise _Unusable from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Unusable
    if not 0 <= value <= MAX_TOKENS:
        raise _Unusable
    return math.ceil(value)


def find_counts(fields: Mapping[str, Raw]) -> Counts:
    """Return the counts of a reply or of an event, from wherever it has them."""
    found = read_counts(fields.get("usage"))
    if not _ELSEWHERE.isdisjoint(fields):
        for head in fields.keys() & _BESIDE.keys():
            if (data := fields[head]) != NULL:
                found = later(found, read_counts(_within(data, _BESIDE[head])))
        if top := fields.keys() & _AT_TOP:
            found = later(found, read_counts(raw({name: fields[name] for name in top})))
    if "choices" in fields and b'"usage"' in bytes(fields["choices"]):
        for place in _OF_CHOICES:
            found = later(found, _of_choices(fields["choices"], place))
    return found


def _within(data: Raw, path: str) -> Raw:
    for name in path.split(".") if path else ():
        data = (try_decode(_fields, data) or {}).get(name, NULL)
    return data


def _of_choices(data: Raw, place: str) -> Counts:
    found: Counts = {}
    for position, choice in enumerate(try_decode(_choices, data) or ()):
        counts = read_counts(_within(raw(choice), place))
        usage = usage_of(counts)
        if usage is not None:
            at = bytes(choice.get("index", b"%d" % position)).decode()
            own = {name: count for name, count in counts.items() if name in _INPUTS}
            own[f"output of choice {at}"] = usage.output_tokens
            own[f"reasoning of choice {at}"] = usage.reasoning_tokens
            found = later(found, own)
    return found


def may_tell_usage(data: bytes) -> bool:
    """Tell whether a chunk may have a usage elsewhere than in `usage`; it seldom errs."""
    return any(map(data.__contains__, _HINTS))


_HINTS: Final = [
    f'"{name}"'.encode() for name in (*_BESIDE, "eval_count", "tokens_predicted") if name != "delta"
]


def later(before: Counts, after: Counts) -> Counts:
    """Return the counts of two reports of one stream: they are cumulative, so none falls."""
    if not before or not after:
        return before or after
    return {name: max(before.get(name, 0), after.get(name, 0)) for name in (before.keys() | after)}


def final(start: Counts, end: Counts) -> Counts:
    """Return the counts of a stream that told of its input at the start, and of all at the end.

    Those at the end are the better ones, but zero beside a positive start says nothing, except of
    input that went on to be counted as another kind.
    """
    moved = sum(max(0, end.get(name, 0) - start.get(name, 0)) for name in _INPUTS)
    kept: Counts = {}
    for name, count in start.items():
        if not end.get(name) and name not in {"output", "total"}:
            gone = min(count, moved) if name in _INPUTS else 0
            moved -= gone
            kept[name] = count - gone
    return end | kept


def usage_of(counts: Counts, *, with_output: bool = True) -> Usage | None:
    """Return counts in disjoint token classes; None if they do not tell the input and the output.

    Output is required, except of embeddings, which have none.
    """
    get = counts.get
    made, total, reasoning = get("output"), get("total"), get("reasoning", 0)
    if not counts.keys() <= COUNTS.keys():  # The others are of single choices.
        made = max(_sum(counts, "output of"), made or 0)
        reasoning += _sum(counts, "reasoning of")
    prompt = get("prompt") or get("input", get("prompt"))
    minutes, hour = get("write_minutes", 0), get("write_hour", 0)
    read = max(get("read", 0), get("read_apart", 0))
    written = max(get("write", 0), get("write_apart", minutes + hour))
    if prompt is None and total is not None and (made is not None or not with_output):
        prompt = max(0, total - (made or 0))
    if prompt is None or (with_output and made is None and total is None):
        return None
    apart = not get("prompt") and not counts.keys().isdisjoint(_APART)
    if not apart:
        # Some leave cached tokens out of their prompt under OpenAI's names, too.
        apart = bool(read + written) and total == prompt + read + written + (made or 0)
    # The input includes cached tokens; if a provider excludes them the result is clamped.
    fresh = (prompt if apart else max(0, prompt - read - written)) + get("tool_input", 0)
    whole = fresh + read + written
    output = (made or 0) + get("thoughts", 0)
    if reasoning > output or (reasoning and total == whole + output + reasoning):
        # xAI counts reasoning tokens separately from completion tokens.
        output += reasoning
    if with_output and total is not None:
        output = max(output, total - whole)
    if output > MAX_TOKENS:
        return None
    # The sum wins if the two disagree: every report has it.
    hour = min(hour, written)
    return Usage(
        input_tokens=fresh,
        cache_read_tokens=read,
        cache_write_tokens=written - hour,
        cache_write_1h_tokens=hour,
        output_tokens=output,
        reasoning_tokens=reasoning + get("thoughts", 0),
        searches=get("searches", 0) + get("searches_of_x", 0),
        file_searches=get("file_searches", 0),
    )


_APART: Final = ("read_apart", "write_apart", "write_minutes", "write_hour")


def _sum(counts: Counts, begin: str) -> int:
    """Return the sum of the counts whose names begin so."""
    return sum(count for name, count in counts.items() if name.startswith(begin))

"""Plans the response of a simulated model; the same for the same request. Pure.

request ─▶ reasoning? (calls | refusal | text) ─▶ cut at the stop sequence and the token limit
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec

from tollhouse.inference.providers.simulated.agent_script import next_steps
from tollhouse.inference.providers.simulated.request import (
    InvalidSimulatedRequest,
    parse_request,
    verify,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from msgspec import Raw

    from tollhouse.inference.providers.simulated.agent_script import AgentStep
    from tollhouse.inference.providers.simulated.models import Behaviour
    from tollhouse.inference.providers.simulated.request import (
        FunctionTool,
        SimulatedMessage,
        SimulatedRequest,
    )

REFUSAL: Final = "Simulated: I refuse whatever I am asked."
NO_FUNCTION: Final = "Simulated: there is no function to call."
_LONGEST: Final = 10_000_000
"""The maximum output, in characters, of a request with several choices or log-probabilities; each
log-probability counts as eight characters."""
_LOGPROB: Final = 8
_words: Final = re.compile(r"\s*\S+\s*|\s+").findall
_pieces_of: Final = re.compile(r"[^{,:]*[{,:]|[^{,:]+").findall


@dataclass(frozen=True, slots=True, repr=False)
class ReplySegment:
    """Consecutive output of one kind."""

    kind: Literal["reasoning", "text", "refusal", "call"]
    pieces: Sequence[str]
    """Words with the spaces around them, or pieces of a call's arguments; each is a token."""
    name: str = ""
    """The name of the called tool."""


@dataclass(frozen=True, slots=True, repr=False)
class PlannedReply:
    """The output of a response, before it is rendered."""

    segments: Sequence[ReplySegment]
    """The same for every choice."""
    finish: Literal["stop", "length", "tool_calls"]
    choices: int
    prompt_words: int
    top_logprobs: int | None
    """How many alternatives each word has; None if no log-probabilities are requested."""
    shows_reasoning: bool
    digest: str
    """The SHA-256 of the messages, from which ids are derived."""

    def words(self, kind: str | None = None) -> int:
        """Return the number of output tokens, of one kind of segment or of all."""
        counted = (each for each in self.segments if kind in {None, each.kind})
        return self.choices * sum(len(segment.pieces) for segment in counted)


def plan_reply(body: bytes, behaviour: Behaviour) -> PlannedReply:
    """Plan the response to a request.

    Raises:
        InvalidSimulatedRequest: A field is invalid, reasoning in the history was changed, or the
            response would be far longer than the request.
    """
    request = parse_request(body)
    if behaviour.thinks:
        verify(request.messages)
    planned = [*_plan_reasoning(request, behaviour), *_plan_output(request, behaviour)]
    _check_length(request, planned)
    limit = request.max_tokens
    cut = limit is not None and sum(len(segment.pieces) for segment in planned) > limit
    segments = planned if limit is None else list(_within_limit(planned, limit))
    called = any(segment.kind == "call" for segment in segments)
    return PlannedReply(
        segments=segments,
        finish="length" if cut else "tool_calls" if called else "stop",
        choices=request.choices,
        prompt_words=sum(len(message.text.split()) for message in request.messages),
        top_logprobs=request.top_logprobs,
        shows_reasoning=request.shows_reasoning,
        digest=request.digest,
    )


def _check_length(request: SimulatedRequest, segments: Iterable[ReplySegment]) -> None:
    top = request.top_logprobs
    times = request.choices * (1 if top is None else _LOGPROB * (1 + top))
    pieces = (piece for segment in segments for piece in segment.pieces)
    if times > 1 and times * sum(map(len, pieces)) > _LONGEST:
        raise InvalidSimulatedRequest(
            "messages: too long for as many choices and log-probabilities."
        )


def _within_limit(segments: Iterable[ReplySegment], limit: int) -> Iterator[ReplySegment]:
    """Return the segments within a token limit; a text segment is kept even if empty."""
    for segment in segments:
        kept = segment.pieces[:limit]
        limit -= len(kept)
        if kept or segment.kind == "text":
            yield replace(segment, pieces=kept)


def _plan_reasoning(request: SimulatedRequest, behaviour: Behaviour) -> list[ReplySegment]:
    if not behaviour.thinks or not request.wants_reasoning:
        return []
    words = len(_echoed_text(request.messages).split())
    text = f"Simulated reasoning: {words} words came, and no model has read them."
    return [ReplySegment("reasoning", _words(text))]


def _plan_output(request: SimulatedRequest, behaviour: Behaviour) -> list[ReplySegment]:
    if behaviour.reply_kind == "refusal":
        return [ReplySegment("refusal", _words(REFUSAL))]
    called = _called_tools(request, behaviour)
    if called and not _results(request.messages):
        return [
            ReplySegment("call", _pieces_of(_json(sample_object(each.parameters))), each.name)
            for each in called
        ]
    if behaviour.reply_kind == "script":
        tools = () if request.tool_choice == "none" else request.functions
        steps = next_steps(request.messages, [tool.name for tool in tools])
        return [_segment_of(step, request) for step in steps]
    return [ReplySegment("text", _words(_until_stop(_text(request, behaviour), request.stop)))]


def _segment_of(step: AgentStep, request: SimulatedRequest) -> ReplySegment:
    match step.kind:
        case "call":
            pieces = _pieces_of(step.text)
        case "reasoning":
            pieces = _words(step.text)
        case "text":
            pieces = _words(_until_stop(step.text, request.stop))
    return ReplySegment(step.kind, pieces, step.tool)


def _called_tools(request: SimulatedRequest, behaviour: Behaviour) -> Sequence[FunctionTool]:
    """Return the tools to call: the required one, or at most two optional ones."""
    if request.named is not None:
        return [request.named]
    if behaviour.reply_kind == "calls" and request.tool_choice != "none":
        return request.functions[: 2 if request.parallel else 1]
    return request.functions[:1] if request.tool_choice == "required" else []


def _text(request: SimulatedRequest, behaviour: Behaviour) -> str:
    text = _echoed_text(request.messages)
    if behaviour.reply_kind == "calls" and not request.functions and not _results(request.messages):
        text = NO_FUNCTION
    if request.output == "json_schema":
        value = sample(request.schema)
        return _json({} if value is None else value)
    return _json({"echo": text}) if request.output == "json_object" else text


def _echoed_text(messages: Sequence[SimulatedMessage]) -> str:
    """Return the tool results since the assistant's last message, else the last user text."""
    results = _results(messages)
    if results:
        return "\n".join(filter(None, (message.acknowledged_text for message in results)))
    return next((each.acknowledged_text for each in reversed(messages) if each.role == "user"), "")


def _results(messages: Sequence[SimulatedMessage]) -> Sequence[SimulatedMessage]:
    """Return the messages after the assistant's last one, if tool results are among them."""
    spoken = [index for index, each in enumerate(messages) if each.role == "assistant"]
    since = messages[spoken[-1] + 1 :] if spoken else messages
    return since if any(message.is_result for message in since) else []


def _until_stop(text: str, stop: Iterable[str]) -> str:
    found = [text.find(sequence) for sequence in stop if sequence]
    return text[: min((at for at in found if at >= 0), default=None)]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# Sample values of a JSON schema, the same for the same schema:
#
#     {type: object, properties: {city: {type: string}}, required: [city]}  ->  {"city": "text"}
#
# An object has its required properties, an array one item, a choice its first. Bounds of numbers
# and strings, patterns and formats are ignored.
#
# Source: https://json-schema.org/understanding-json-schema/reference

_PLAIN: Final[Mapping[str, object]] = {
    "string": "text",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "null": None,
}
_MOST_VALUES: Final = 1_000
_MOST_GIVEN: Final = 64 * 1024
"""Bytes of constants in the schema: references can repeat a long one many times."""
_DEEPEST: Final = 32


def sample(schema: Raw) -> object:
    """Return a sample value; null if the schema is empty or refers to itself."""
    try:
        read: object = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return None
    return _Sampling(read).value(read, frozenset(), 0)


def sample_object(schema: Raw) -> dict[str, object]:
    """Return a sample object; an empty one if the schema is of another type."""
    return _members(sample(schema))


class _Sampling:
    """Samples one schema. Values are counted: a short schema can demand unbounded memory."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._left = _MOST_VALUES
        self._given_left = _MOST_GIVEN

    def value(self, schema: object, refs: frozenset[str], depth: int) -> object:
        """Return a sample value of a subschema; `refs` were followed so far, to detect cycles."""
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0 or depth > _DEEPEST:
            return None
        keywords = cast("dict[str, object]", schema)
        if "const" in keywords:
            return self._given(keywords["const"])
        ref = keywords.get("$ref")
        if isinstance(ref, str):
            known = ref in refs
            return None if known else self.value(self._at(ref), refs | {ref}, depth + 1)
        for name in ("enum", "anyOf", "oneOf", "allOf"):
            options = _items(keywords.get(name))
            if options:
                first = options[0]
                return self._given(first) if name == "enum" else self.value(first, refs, depth + 1)
        return self._of_type(keywords, refs, depth + 1)

    def _given(self, value: object) -> object:
        if self._given_left >= 0:
            self._given_left -= len(msgspec.json.encode(value))
        return value if self._given_left >= 0 else None

    def _of_type(self, keywords: Mapping[str, object], refs: frozenset[str], depth: int) -> object:
        kind = _type(keywords)
        if kind == "object":
            properties = _members(keywords.get("properties"))
            names = [name for name in _items(keywords.get("required")) if isinstance(name, str)]
            most = max(self._left, 0)
            return {name: self.value(properties.get(name), refs, depth) for name in names[:most]}
        if kind == "array":
            item = self.value(keywords.get("items"), refs, depth)
            return [] if item is None else [item]
        return _PLAIN.get(kind)

    def _at(self, ref: str) -> object:
        """Resolve a reference within the schema."""
        found = self._root if ref.startswith("#") else None
        for step in ref.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = cast("dict[str, object]", found).get(name) if isinstance(found, dict) else None
        return found


def _type(keywords: Mapping[str, object]) -> str:
    """Return the type, or the first of several; infer it if the schema names none."""
    kinds = _items(keywords.get("type")) or [keywords.get("type")]
    if isinstance(kinds[0], str):
        return kinds[0]
    return "object" if "properties" in keywords else "array" if "items" in keywords else "null"


def _members(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _items(value: object) -> Sequence[object]:
    return cast("list[object]", value) if isinstance(value, list) else []

"""Plans the response of a simulated model; deterministic for each request. Pure.

request ─▶ reasoning? (calls | refusal | text) ─▶ cut at the stop sequence and the token limit
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tollhouse.inference.providers.simulated.agent_script import ThinkStep, ToolCallStep, next_steps
from tollhouse.inference.providers.simulated.reasoning import think, verify
from tollhouse.inference.providers.simulated.request import InvalidSimulatedRequest, parse_request
from tollhouse.inference.providers.simulated.schema_sample import sample, sample_object

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

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
_WORD: Final = re.compile(r"\s*\S+\s*|\s+")
_ARGUMENT: Final = re.compile(r"[^{,:]*[{,:]|[^{,:]+")


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

    @property
    def words(self) -> int:
        """The number of output tokens."""
        return self.choices * sum(len(segment.pieces) for segment in self.segments)

    @property
    def reasoning_words(self) -> int:
        """The number of reasoning tokens."""
        reasoning = (segment for segment in self.segments if segment.kind == "reasoning")
        return self.choices * sum(len(segment.pieces) for segment in reasoning)


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
        shows_reasoning=request.thinking.shown,
        digest=request.digest,
    )


def _check_length(request: SimulatedRequest, segments: Iterable[ReplySegment]) -> None:
    top = request.top_logprobs
    times = request.choices * (1 if top is None else _LOGPROB * (1 + top))
    if (
        times > 1
        and times * sum(len(piece) for segment in segments for piece in segment.pieces) > _LONGEST
    ):
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
    if not behaviour.thinks or not request.thinking.wanted:
        return []
    return [ReplySegment("reasoning", _words(think(_echoed_text(request.messages))))]


def _plan_output(request: SimulatedRequest, behaviour: Behaviour) -> list[ReplySegment]:
    if behaviour.reply_kind == "refusal":
        return [ReplySegment("refusal", _words(REFUSAL))]
    called = _called_tools(request, behaviour)
    if called and not _results(request.messages):
        return [ReplySegment("call", _arguments(each), each.name) for each in called]
    if behaviour.reply_kind == "script":
        return [
            _segment_of(step, request) for step in next_steps(request.messages, _callable(request))
        ]
    return [ReplySegment("text", _words(_until_stop(_text(request, behaviour), request.stop)))]


def _segment_of(step: AgentStep, request: SimulatedRequest) -> ReplySegment:
    if isinstance(step, ToolCallStep):
        return ReplySegment("call", _ARGUMENT.findall(step.arguments), step.tool)
    if isinstance(step, ThinkStep):
        return ReplySegment("reasoning", _words(step.text))
    return ReplySegment("text", _words(_until_stop(step.text, request.stop)))


def _callable(request: SimulatedRequest) -> Collection[str]:
    if request.tool_choice == "none":
        return ()
    return {function.name for function in request.functions}


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


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _arguments(function: FunctionTool) -> list[str]:
    return _ARGUMENT.findall(_json(sample_object(function.parameters)))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()

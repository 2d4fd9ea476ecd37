"""What a simulated model says to a request: pure, and the same for the same request.

request ─▶ thoughts? (calls | refusal | text) ─▶ cut at the stop sequence and the token limit
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
"""Of what a request makes longer than it is itself: characters of several choices and their words'
log-probabilities, each of which is about as long as eight characters."""
_LOGPROB: Final = 8
_WORD: Final = re.compile(r"\s*\S+\s*|\s+")
_ARGUMENT: Final = re.compile(r"[^{,:]*[{,:]|[^{,:]+")


@dataclass(frozen=True, slots=True, repr=False)
class ReplySegment:
    """One kind of thing that is said at one go."""

    kind: Literal["thoughts", "text", "refusal", "call"]
    pieces: Sequence[str]
    """Words with the spaces around them, or pieces of a call's arguments; each is a token."""
    name: str = ""
    """The tool's, of a call."""


@dataclass(frozen=True, slots=True, repr=False)
class PlannedReply:
    """What a reply will say."""

    segments: Sequence[ReplySegment]
    """Of every choice."""
    finish: Literal["stop", "length", "tool_calls"]
    choices: int
    prompt_words: int
    top_logprobs: int | None
    """How many words are listed for each word; None where no log-probabilities are wanted."""
    shows_thoughts: bool
    digest: str
    """Of the conversation: what is said in another one has another id."""

    @property
    def words(self) -> int:
        """How many tokens are said."""
        return self.choices * sum(len(run.pieces) for run in self.segments)

    @property
    def thought_words(self) -> int:
        """How many of them are thoughts."""
        thoughts = (run for run in self.segments if run.kind == "thoughts")
        return self.choices * sum(len(run.pieces) for run in thoughts)


def plan_reply(body: bytes, behaviour: Behaviour) -> PlannedReply:
    """Return the reply to a request.

    Raises:
        InvalidSimulatedRequest: A field is not of the chat format, reasoning in the history was
            changed, or the reply would be far longer than the request.
    """
    request = parse_request(body)
    if behaviour.thinks:
        verify(request.messages)
    said = [*_thoughts(request, behaviour), *_answer(request, behaviour)]
    _check_length(request, said)
    limit = request.max_tokens
    cut = limit is not None and sum(len(run.pieces) for run in said) > limit
    runs = said if limit is None else list(_first(said, limit))
    called = any(run.kind == "call" for run in runs)
    return PlannedReply(
        segments=runs,
        finish="length" if cut else "tool_calls" if called else "stop",
        choices=request.choices,
        prompt_words=sum(len(message.text.split()) for message in request.messages),
        top_logprobs=request.top_logprobs,
        shows_thoughts=request.thinking.shown,
        digest=request.digest,
    )


def _check_length(request: SimulatedRequest, runs: Iterable[ReplySegment]) -> None:
    top = request.top_logprobs
    times = request.choices * (1 if top is None else _LOGPROB * (1 + top))
    if times > 1 and times * sum(len(piece) for run in runs for piece in run.pieces) > _LONGEST:
        raise InvalidSimulatedRequest(
            "messages: too long for as many choices and log-probabilities."
        )


def _first(runs: Iterable[ReplySegment], limit: int) -> Iterator[ReplySegment]:
    """Return what is said within a limit of tokens; a text stays, if only as an empty one."""
    for run in runs:
        kept = run.pieces[:limit]
        limit -= len(kept)
        if kept or run.kind == "text":
            yield replace(run, pieces=kept)


def _thoughts(request: SimulatedRequest, behaviour: Behaviour) -> list[ReplySegment]:
    if not behaviour.thinks or not request.thinking.wanted:
        return []
    return [ReplySegment("thoughts", _words(think(_asked(request.messages))))]


def _answer(request: SimulatedRequest, behaviour: Behaviour) -> list[ReplySegment]:
    if behaviour.reply_kind == "refusal":
        return [ReplySegment("refusal", _words(REFUSAL))]
    called = _called(request, behaviour)
    if called and not _results(request.messages):
        return [ReplySegment("call", _arguments(each), each.name) for each in called]
    if behaviour.reply_kind == "script":
        return [_run(act, request) for act in next_steps(request.messages, _callable(request))]
    return [ReplySegment("text", _words(_until_stop(_text(request, behaviour), request.stop)))]


def _run(act: AgentStep, request: SimulatedRequest) -> ReplySegment:
    if isinstance(act, ToolCallStep):
        return ReplySegment("call", _ARGUMENT.findall(act.arguments), act.tool)
    if isinstance(act, ThinkStep):
        return ReplySegment("thoughts", _words(act.text))
    return ReplySegment("text", _words(_until_stop(act.text, request.stop)))


def _callable(request: SimulatedRequest) -> Collection[str]:
    if request.tool_choice == "none":
        return ()
    return {function.name for function in request.functions}


def _called(request: SimulatedRequest, behaviour: Behaviour) -> Sequence[FunctionTool]:
    """Return the tools that are called: those that must be, and at most two that may be."""
    if request.named is not None:
        return [request.named]
    if behaviour.reply_kind == "calls" and request.tool_choice != "none":
        return request.functions[: 2 if request.parallel else 1]
    return request.functions[:1] if request.tool_choice == "required" else []


def _text(request: SimulatedRequest, behaviour: Behaviour) -> str:
    text = _asked(request.messages)
    if behaviour.reply_kind == "calls" and not request.functions and not _results(request.messages):
        text = NO_FUNCTION
    if request.output == "json_schema":
        value = sample(request.schema)
        return _json({} if value is None else value)
    return _json({"echo": text}) if request.output == "json_object" else text


def _asked(messages: Sequence[SimulatedMessage]) -> str:
    """Return what came since the assistant spoke, if tools answered, else the last user's words."""
    results = _results(messages)
    if results:
        return "\n".join(filter(None, (message.acknowledged_text for message in results)))
    return next((each.acknowledged_text for each in reversed(messages) if each.role == "user"), "")


def _results(messages: Sequence[SimulatedMessage]) -> Sequence[SimulatedMessage]:
    """Return the results of tools at the end of a conversation, and what a user adds to them."""
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

"""One run, or a part of it: pydantic-ai's loop, told to the daemon as it goes.

    prompt ──> request to the model ──> calls of tools ──> request ... ──> end
                    └ a step                 └ a step after each

A call that has to be asked about, or that asks itself, ends the part: `paused`. What the library
needs to go on stands in the messages.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydantic_ai import Agent
from pydantic_ai.exceptions import RunCancelled, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    EnqueuedMessagesEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelRequest,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.usage import UsageLimits

from tollhouse.sandbox.agent.failures import BrokenOff, Failure, failure_of
from tollhouse.sandbox.agent.history import History, Unwritable, interrupted
from tollhouse.sandbox.agent.spending import spent_before
from tollhouse.sandbox.agent.tools.consent import DIGEST
from tollhouse.sandbox.agent.tools.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from pydantic_ai import AgentRun
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart

    from tollhouse.sandbox.agent.orders import Answer, Input, Order
    from tollhouse.sandbox.agent.tools.work import Work

    Output: TypeAlias = str | DeferredToolRequests
    """What a part of a run ends with: the model's last words, or calls that wait."""

_PIECE: Final = 8192
"""Characters of a piece of text that is told at once."""
_SHOWN_NAME: Final = 100
"""Characters of a tool's name that are told; a model calls tools that there are not."""
_LONGEST_ID: Final = 16 * 1024
"""Characters. Some gateways put a model's reasoning into the ids of its tool calls."""
_OUTCOMES: Final = {"success": "done", "denied": "rejected", "interrupted": "interrupted"}
_REJECTED: Final = "The user rejected this. Do not try again without asking."
_BUG: Final = Failure("The agent has a bug; the log of the intern has its place.", retryable=False)


class Conduct:
    """Of one run."""

    def __init__(
        self,
        agent: Agent[Work, Output],
        order: Order,
        work: Work,
        say: Callable[..., None],
    ) -> None:
        """Take what is to be done.

        Args:
            agent: With its model, its instructions, and its tools.
            order: What the daemon wants.
            work: What tools work with.
            say: Tells the daemon: a type and fields.
        """
        self._agent = agent
        self._order = order
        self._work = work
        self._say = say
        self._spending = spent_before(order.spent)
        self._history = History(order.messages)
        self._run: AgentRun[Work, Output] | None = None
        self._over = False
        self._early: list[Input] = []
        """Handed in before the run could take it."""
        self._waiting: dict[str, int] = {}
        """Inputs that were handed in and are in no message so far, by the library's id."""
        self._entered: list[int] = []
        self._told: set[str] = {answer.call for answer in order.answers}
        """Calls whose beginning was told, and whose end was not."""
        self._returned: list[ToolReturnPart] = []
        self._spoken = False
        """Whether the model's words so far end in the middle of a line."""
        self._apart = False
        """Whether what it says next is something new, after a call of a tool."""

    async def conduct(self) -> None:
        """Do it; the last line is `paused` or `ended`. Cancelled, it ends the run, and says so."""
        try:
            output = await self._conduct()
        except asyncio.CancelledError as error:
            cancelled = RunCancelled.from_cancellation(error)
            left = None if cancelled is None else cancelled.all_messages() or None
            self._end("ended", messages=left, outcome="cancelled", error=None)
            return
        except Exception as error:  # noqa: BLE001 - the edge of a run: whatever it is, it is told
            failure = failure_of(error) or _bug(error)
            told = {"message": failure.message, "retryable": failure.retryable}
            self._end("ended", outcome="failed", error=told)
            return
        if isinstance(output, DeferredToolRequests):
            self._end("paused", questions=_questions(output))
        else:
            self._end("ended", outcome="completed", error=None)

    def steer(self, given: Input) -> bool:
        """Hand something into the run; return whether that came in time."""
        if self._over:
            return False
        if self._run is None:
            self._early.append(given)
            return True
        try:
            self._enqueue(self._run, given)
        except UserError:  # the library has ended the run, and nothing of it is told so far
            return False
        return True

    def _enqueue(self, run: AgentRun[Work, Output], given: Input) -> None:
        number = run.enqueue(given.text)
        if number is not None:
            self._waiting[number] = given.number

    async def _conduct(self) -> Output:
        order = self._order
        messages = self._history.messages()
        results = _results(order.answers) if order.answers else None
        async with self._agent.iter(
            _prompt(order.inputs),
            message_history=messages if results else repair_messages(messages),
            deferred_tool_results=results,
            deps=self._work,
            usage_limits=UsageLimits(request_limit=None),  # `Spending` counts, over all parts
        ) as run:
            self._run = run
            for given in self._early:
                self._enqueue(run, given)
            counted = True
            async for node in run:
                if Agent.is_model_request_node(node):
                    self._spending.ask()
                    counted = False
                    async with node.stream(run.ctx) as events:
                        self._enter_prompt(run)
                        self._step()
                        async for event in events:
                            self._hear(event)
                elif Agent.is_call_tools_node(node):
                    if not counted:  # else it was before the run paused
                        self._count(node.model_response)
                        counted = True
                        _check(node.model_response)
                    self._step()
                    async with node.stream(run.ctx) as events:
                        async for event in events:
                            self._hear(event)
                    self._returned.clear()
        if run.result is None:
            raise RuntimeError
        return run.result.output

    def _hear(self, event: object) -> None:
        match event:
            case PartStartEvent(part=TextPart(content=text)):
                self._apart = self._spoken
                self._tell("text", text)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                self._tell("text", text)
            case PartStartEvent(part=ThinkingPart(content=text)):
                self._tell("reasoning", text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)):
                self._tell("reasoning", text or "")
            case PartStartEvent(part=ToolCallPart() as part):
                self._spending.hear(part.tool_name + part.tool_call_id + part.args_as_json_str())
            case PartDeltaEvent(
                delta=ToolCallPartDelta(tool_name_delta=name, args_delta=arguments)
            ):
                self._spending.hear(f"{name or ''}{arguments or ''}")
            case FunctionToolCallEvent(part=part):
                self._begin_call(part)
            case FunctionToolResultEvent(part=part):
                self._end_call(part)
            case EnqueuedMessagesEvent(enqueue_id=number) if number in self._waiting:
                self._entered.append(self._waiting.pop(number))
            case _:
                pass

    def _tell(self, kind: str, text: str) -> None:
        if kind == "text" and text:
            text, self._apart = ("\n\n" if self._apart else "") + text, False
            self._spoken = not text[-1].isspace()
        self._spending.hear(text)
        for start in range(0, len(text), _PIECE):
            self._say(kind, text=text[start : start + _PIECE])

    def _begin_call(self, part: ToolCallPart) -> None:
        if part.tool_call_id in self._told:
            return
        self._told.add(part.tool_call_id)
        title = title_of(part.tool_name, part.args)
        tool = part.tool_name[:_SHOWN_NAME]
        self._say("tool", call=part.tool_call_id, tool=tool, title=title)

    def _end_call(self, part: ToolReturnPart) -> None:
        outcome = _OUTCOMES.get(part.outcome, "failed")
        if part.tool_call_id in self._work.rejected:
            outcome = "rejected"
        self._returned.append(part)
        self._step([{"call": part.tool_call_id, "outcome": outcome}])
        # Some models give every call the same id.
        self._told.discard(part.tool_call_id)
        self._work.rejected.discard(part.tool_call_id)

    def _count(self, response: ModelResponse) -> None:
        usage, details = response.usage, response.provider_details or {}
        self._spending.input_tokens += usage.input_tokens
        self._spending.cached_tokens += usage.cache_read_tokens
        self._spending.output_tokens += usage.output_tokens
        # The library leaves a cost of 0 out; that something was told is seen by what stands beside.
        nothing = 0 if "upstream_inference_cost" in details else None
        self._spending.pay(details.get("cost", nothing))

    def _enter_prompt(self, run: AgentRun[Work, Output]) -> None:
        """Note that what was said before the run is in the conversation now."""
        if self._has_prompt(run.all_messages()):
            self._entered += [given.number for given in self._order.inputs]
            self._order = replace(self._order, inputs=())

    def _has_prompt(self, messages: Sequence[ModelMessage]) -> bool:
        last = self._order.inputs[-1].text if self._order.inputs else None
        return last is not None and any(
            isinstance(part, UserPromptPart) and _says(part, last)
            for message in messages[-2:]
            if isinstance(message, ModelRequest)
            for part in message.parts
        )

    def _step(self, ended: Sequence[dict[str, str]] = ()) -> None:
        if self._run is None:
            return
        messages = self._run.all_messages()
        if self._returned:
            messages = interrupted(messages, self._returned)
        self._say("step", **self._fields(messages), ended=list(ended))

    def _end(
        self, kind: str, *, messages: Sequence[ModelMessage] | None = None, **fields: object
    ) -> None:
        """Say the last line."""
        self._over = True
        if self._run is not None:
            self._enter_prompt(self._run)
            # The library keeps what no request took, also of a run that was broken off.
            left = {pending.enqueue_id for pending in self._run.pending_messages}
            self._entered += [
                given for number, given in self._waiting.items() if number not in left
            ]
            if messages is None:
                messages = self._run.all_messages()
        self._waiting.clear()
        self._run = None
        try:
            told = self._fields(messages)
        except Unwritable:
            told = self._fields(None)
        self._say(kind, **fields, **told, ended=[])

    def _fields(self, messages: Sequence[ModelMessage] | None) -> dict[str, Any]:
        keep, added = self._history.kept() if messages is None else self._history.changes(messages)
        entered, self._entered = self._entered, []
        return {
            "keep": keep,
            "messages": added,
            "entered": entered,
            "spent": self._spending.told(),
        }


def _prompt(inputs: Sequence[Input]) -> str | list[str] | None:
    texts = [given.text for given in inputs]
    return texts[0] if len(texts) == 1 else texts or None


def _check(response: ModelResponse) -> None:
    """Refuse an answer that the library takes for a whole one, and no client could be told of.

    Raises:
        BrokenOff: It has no end.
        UnexpectedModelBehavior: A call has an id that is too long.
    """
    if "finish_reason" not in (response.provider_details or {}):
        raise BrokenOff
    if any(len(call.tool_call_id) > _LONGEST_ID for call in response.tool_calls):
        raise UnexpectedModelBehavior(f"a call's id has more than {_LONGEST_ID} characters")


def _says(part: UserPromptPart, text: str) -> bool:
    return part.content == text or (not isinstance(part.content, str) and text in part.content)


def _results(answers: Sequence[Answer]) -> DeferredToolResults:
    results = DeferredToolResults()
    for answer in answers:
        if answer.permission is not None:
            allowed = answer.permission
            results.approvals[answer.call] = True if allowed else ToolDenied(_REJECTED)
            results.metadata[answer.call] = {DIGEST: answer.digest}
        elif answer.content is None:
            results.calls[answer.call] = "The user declined to answer."
        else:
            results.calls[answer.call] = dict(answer.content)
    return results


def _questions(requests: DeferredToolRequests) -> list[dict[str, Any]]:
    """Return what has to be asked, in the order of the calls."""
    asked = [(call, "permission") for call in requests.approvals]
    asked += [(call, "elicitation") for call in requests.calls]
    return [
        {"call": call.tool_call_id, kind: requests.metadata.get(call.tool_call_id, {})}
        for call, kind in asked
    ]


def _bug(error: BaseException) -> Failure:
    """Note where a bug is: its type and its places, not its text, which may quote anything."""
    places = " < ".join(
        f"{frame.name}:{frame.lineno}"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
    )
    sys.stderr.write(f"error tollhouse.sandbox.agent: {type(error).__name__} at {places}\n")
    return _BUG

"""One run, or a part of it up to a pause: pydantic-ai's loop, reported to the daemon as it goes.

    prompt ──> request to the model ──> calls of tools ──> request ... ──> end
                    └ a step                 └ a step after each

A call that needs an approval, or that asks the user, ends the part: `paused`. What the library
needs to go on is in the messages.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_ai import Agent
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    RunCancelled,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import (
    EnqueuedMessagesEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessagesTypeAdapter,
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

from tollhouse.sandbox.agent.tools.context import DIGEST, ToolContext
from tollhouse.sandbox.agent.tools.toolset import title_of
from tollhouse.sandbox.agent.usage import RunFailed, usage_before

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from pydantic_ai import AgentRun as LibraryRun
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart

    from tollhouse.sandbox.agent.protocol import QuestionAnswer, RunCommand, UserInput

    Output: TypeAlias = str | DeferredToolRequests
    """What a part of a run ends with: the model's last text, or calls that wait for answers."""

_LONGEST: Final = 2000
"""Characters of an error's message."""
_RETRYABLE_STATUSES: Final = frozenset((408, 409, 425, 429))
_SERVER_ERRORS: Final = 500
_PIECE: Final = 8192
"""Most characters of a message with text."""
_SHOWN_NAME: Final = 100
"""Characters of a tool's name; a model also calls tools that do not exist."""
_LONGEST_ID: Final = 16 * 1024
"""Characters. Some gateways put a model's reasoning into the ids of its tool calls."""
_MUTABLE_TAIL: Final = 2
"""So many messages at the end pydantic-ai may still change in place."""
_OUTCOMES: Final = {"success": "done", "denied": "rejected", "interrupted": "interrupted"}
_REJECTED: Final = "The user rejected this. Do not try again without asking."


class MessageHistory:
    """The messages of a conversation that the daemon has stored; it stores only what is new."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = list(texts)
        self._seen: list[ModelMessage] = []

    def messages(self) -> list[ModelMessage]:
        """Return them as pydantic-ai's objects; raise `RunFailed` if this version cannot."""
        try:
            self._seen = ModelMessagesTypeAdapter.validate_json(f"[{','.join(self._texts)}]")
        except ValueError:
            raise RunFailed(
                "What was said in this session cannot be read any more; begin another session.",
                retryable=False,
            ) from None
        return self._seen

    def changes(self, messages: Sequence[ModelMessage] | None) -> tuple[int, list[str]]:
        """Return how many stored messages to keep, and those to append, to have these.

        None changes nothing. Raises `RunFailed` if one of them cannot be written as JSON.
        """
        if messages is None:
            return len(self._texts), []
        same = 0
        for ours, theirs in zip(self._seen[:-_MUTABLE_TAIL], messages, strict=False):
            if ours is not theirs:
                break
            same += 1
        try:
            added = [
                ModelMessagesTypeAdapter.dump_json([message]).decode()[1:-1]
                for message in messages[same:]
            ]
        except ValueError:  # half a character, say
            raise RunFailed("The model's answer cannot be written down.", retryable=True) from None
        texts = self._texts[:same] + added
        while same < min(len(texts), len(self._texts)) and texts[same] == self._texts[same]:
            same += 1
        self._texts, self._seen = texts, list(messages)
        return same, texts[same:]


class AgentRun:
    """One run, or a part of it; `say` sends the daemon a message of a type with fields."""

    def __init__(
        self,
        agent: Agent[ToolContext, Output],
        command: RunCommand,
        context: ToolContext,
        say: Callable[..., None],
    ) -> None:
        self._agent = agent
        self._command = command
        self._context = context
        self._say = say
        self._usage = usage_before(command.spent)
        self._history = MessageHistory(command.messages)
        self._run: LibraryRun[ToolContext, Output] | None = None
        self._over = False
        self._early: list[UserInput] = []
        """Handed in before the library had begun the run."""
        self._waiting: dict[str, int] = {}
        """Inputs that are in no message yet, by the library's ids."""
        self._entered: list[int] = []
        self._reported: set[str] = {answer.call for answer in command.answers}
        """Calls whose start was reported, and whose end was not."""
        self._returned: list[ToolReturnPart] = []
        self._mid_line = False
        """Whether the model's text so far ends in the middle of a line."""
        self._new_paragraph = False
        """Whether its next text begins after a call of a tool."""

    async def execute(self) -> None:
        """Run; the last message is `paused` or `ended`. Cancelled, it ends the run, and says so."""
        try:
            output = await self._loop()
        except asyncio.CancelledError as error:
            cancelled = RunCancelled.from_cancellation(error)
            messages = None if cancelled is None else cancelled.all_messages() or None
            self._end("ended", messages=messages, outcome="cancelled", error=None)
            return
        except Exception as error:  # noqa: BLE001 - the edge of a run: whatever it is, it is told
            failure = _failure_of(error)
            told = {"message": str(failure), "retryable": failure.retryable, **failure.limit}
            self._end("ended", outcome="failed", error=told)
            return
        if isinstance(output, DeferredToolRequests):
            self._end("paused", questions=_questions(output))
        else:
            self._end("ended", outcome="completed", error=None)

    def steer(self, given: UserInput) -> bool:
        """Hand an input to the run; return whether that came in time."""
        if self._over:
            return False
        if self._run is None:
            self._early.append(given)
            return True
        try:
            self._enqueue(self._run, given)
        except UserError:  # the library has ended the run, which is not reported yet
            return False
        return True

    def _enqueue(self, run: LibraryRun[ToolContext, Output], given: UserInput) -> None:
        if (number := run.enqueue(given.text)) is not None:
            self._waiting[number] = given.id

    async def _loop(self) -> Output:
        command = self._command
        messages = self._history.messages()
        results = _results(command.answers) if command.answers else None
        texts = [given.text for given in command.inputs]
        async with self._agent.iter(
            texts[0] if len(texts) == 1 else texts or None,
            message_history=messages if results else repair_messages(messages),
            deferred_tool_results=results,
            deps=self._context,
            usage_limits=UsageLimits(request_limit=None),  # `RunUsage` counts, also before pauses
        ) as run:
            self._run = run
            for given in self._early:
                self._enqueue(run, given)
            counted = True
            async for node in run:
                if Agent.is_model_request_node(node):
                    self._usage.count_request()
                    counted = False
                    async with node.stream(run.ctx) as events:
                        self._enter_prompt(run.all_messages())
                        self._step()
                        async for event in events:
                            self._handle(event)
                elif Agent.is_call_tools_node(node):
                    if not counted:  # else it was before the run paused
                        self._count(node.model_response)
                        counted = True
                        _check(node.model_response)
                    self._step()
                    async with node.stream(run.ctx) as events:
                        async for event in events:
                            self._handle(event)
                    self._returned.clear()
        if run.result is None:
            raise RuntimeError
        return run.result.output

    def _handle(self, event: object) -> None:
        match event:
            case PartStartEvent(part=TextPart(content=text)):
                self._new_paragraph = self._mid_line
                self._send_text("text", text)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                self._send_text("text", text)
            case (
                PartStartEvent(part=ThinkingPart(content=text))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text))
            ):
                self._send_text("reasoning", text or "")
            case PartStartEvent(part=ToolCallPart() as part):
                self._usage.count_output(
                    part.tool_name + part.tool_call_id + part.args_as_json_str()
                )
            case PartDeltaEvent(
                delta=ToolCallPartDelta(tool_name_delta=name, args_delta=arguments)
            ):
                self._usage.count_output(f"{name or ''}{arguments or ''}")
            case FunctionToolCallEvent(part=part):
                self._begin_call(part)
            case FunctionToolResultEvent(part=part):
                self._end_call(part)
            case EnqueuedMessagesEvent(enqueue_id=number) if number in self._waiting:
                self._entered.append(self._waiting.pop(number))
            case _:
                pass

    def _send_text(self, kind: str, text: str) -> None:
        if kind == "text" and text:
            text, self._new_paragraph = ("\n\n" if self._new_paragraph else "") + text, False
            self._mid_line = not text[-1].isspace()
        self._usage.count_output(text)
        for start in range(0, len(text), _PIECE):
            self._say(kind, text=text[start : start + _PIECE])

    def _begin_call(self, part: ToolCallPart) -> None:
        if part.tool_call_id in self._reported:
            return
        self._reported.add(part.tool_call_id)
        name, title = part.tool_name[:_SHOWN_NAME], title_of(part.tool_name, part.args)
        self._say("tool", call=part.tool_call_id, tool=name, title=title)

    def _end_call(self, part: ToolReturnPart) -> None:
        outcome = _OUTCOMES.get(part.outcome, "failed")
        if part.tool_call_id in self._context.rejected:
            outcome = "rejected"
        self._returned.append(part)
        self._step([{"call": part.tool_call_id, "outcome": outcome}])
        # Some models give every call the same id.
        self._reported.discard(part.tool_call_id)
        self._context.rejected.discard(part.tool_call_id)

    def _count(self, response: ModelResponse) -> None:
        usage, details = response.usage, response.provider_details or {}
        self._usage.input_tokens += usage.input_tokens
        self._usage.cached_tokens += usage.cache_read_tokens
        self._usage.output_tokens += usage.output_tokens
        # The library leaves out a cost of 0; the field beside it shows that there was one.
        nothing = 0 if "upstream_inference_cost" in details else None
        self._usage.add_cost(details.get("cost", nothing))

    def _enter_prompt(self, messages: Sequence[ModelMessage]) -> None:
        """Note whether the inputs from before the run are in the conversation now."""
        inputs = self._command.inputs
        if inputs and any(
            isinstance(part, UserPromptPart) and _says(part, inputs[-1].text)
            for message in messages[-2:]
            if isinstance(message, ModelRequest)
            for part in message.parts
        ):
            self._entered += [given.id for given in inputs]
            self._command = replace(self._command, inputs=())

    def _step(self, ended: Sequence[dict[str, str]] = ()) -> None:
        if self._run is None:
            return
        messages = self._run.all_messages()
        if self._returned:
            # As the conversation would be if the run ended now, with the results so far.
            messages = [*messages, ModelRequest(parts=list(self._returned), state="interrupted")]
        self._say("step", **self._fields(messages), ended=list(ended))

    def _end(
        self, kind: str, *, messages: Sequence[ModelMessage] | None = None, **fields: object
    ) -> None:
        """Send the last message."""
        self._over = True
        if self._run is not None:
            self._enter_prompt(self._run.all_messages())
            # The library keeps inputs that no request took, also of a run that was cancelled.
            left = {pending.enqueue_id for pending in self._run.pending_messages}
            self._entered += [given for key, given in self._waiting.items() if key not in left]
            if messages is None:
                messages = self._run.all_messages()
        self._waiting.clear()
        self._run = None
        try:
            changes = self._fields(messages)
        except RunFailed:
            changes = self._fields(None)
        self._say(kind, **fields, **changes, ended=[])

    def _fields(self, messages: Sequence[ModelMessage] | None) -> dict[str, Any]:
        """Return a step's fields; without messages, the conversation stays as it is."""
        keep, added = self._history.changes(messages)
        entered, self._entered = self._entered, []
        spent = self._usage.as_message()
        return {"keep": keep, "messages": added, "entered": entered, "spent": spent}


def _check(response: ModelResponse) -> None:
    """Refuse a response that the library accepts, but that is incomplete or cannot be reported."""
    if "finish_reason" not in (response.provider_details or {}):
        raise RunFailed("The model's answer broke off.", retryable=True)
    if any(len(call.tool_call_id) > _LONGEST_ID for call in response.tool_calls):
        raise UnexpectedModelBehavior(f"a call's id has more than {_LONGEST_ID} characters")


def _says(part: UserPromptPart, text: str) -> bool:
    return part.content == text or (not isinstance(part.content, str) and text in part.content)


def _results(answers: Sequence[QuestionAnswer]) -> DeferredToolResults:
    results = DeferredToolResults()
    for answer in answers:
        if answer.permission is not None:
            results.approvals[answer.call] = True if answer.permission else ToolDenied(_REJECTED)
            results.metadata[answer.call] = {DIGEST: answer.digest}
        elif answer.content is None:
            results.calls[answer.call] = "The user declined to answer."
        else:
            results.calls[answer.call] = dict(answer.content)
    return results


def _questions(requests: DeferredToolRequests) -> list[dict[str, Any]]:
    """Return the questions, in the order of the calls."""
    asked = [(call, "permission") for call in requests.approvals]
    asked += [(call, "elicitation") for call in requests.calls]
    return [
        {"call": call.tool_call_id, kind: requests.metadata.get(call.tool_call_id, {})}
        for call, kind in asked
    ]


def _failure_of(error: Exception) -> RunFailed:
    """Return what the client is told of an error."""
    match error:
        case RunFailed():
            return error
        case ModelAPIError():
            return RunFailed(
                _gateway_message(error)[:_LONGEST],
                retryable=_is_retryable(error),
                limit=_limit_of(error),
            )
        case UnexpectedModelBehavior():
            message = f"The model's answer cannot be used: {error.message}"
            return RunFailed(message[:_LONGEST], retryable=True)
        case _:
            # Its type and places, not its text, which may quote anything.
            frames = reversed(traceback.extract_tb(error.__traceback__))
            places = " < ".join(f"{frame.name}:{frame.lineno}" for frame in frames)
            sys.stderr.write(f"error tollhouse.sandbox.agent: {type(error).__name__} at {places}\n")
            message = "The agent has a bug; the log of the intern has its place."
            return RunFailed(message, retryable=False)


def _gateway_message(error: ModelAPIError) -> str:
    """Return the gateway's message; without one, the library's."""
    if isinstance(error.body, str) and error.in_stream:
        return error.body  # the message alone
    if isinstance(message := _told(error).get("message"), str):
        return message
    if isinstance(error, ModelHTTPError):
        return f"The model's gateway answered with status {error.status_code}."
    return f"The model cannot be reached: {error.message}"


def _limit_of(error: ModelAPIError) -> dict[str, str]:
    """Return which limit of credits the gateway refused for, and what it says to do, if it did."""
    metadata = _told(error).get("metadata")
    found = cast("dict[str, object]", metadata) if isinstance(metadata, dict) else {}
    told = {name: found.get(name) for name in ("limit_source", "remedy_hint")}
    return {name: text[:_LONGEST] for name, text in told.items() if isinstance(text, str)}


def _told(error: ModelAPIError) -> dict[str, Any]:
    """Return the fields of the gateway's error; none where it is not as the gateway writes it."""
    body = cast("object", error.body)
    told = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    inner = told.get("error")
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else told


def _is_retryable(error: ModelAPIError) -> bool:
    if isinstance(error, ModelQuotaExceededError):
        return error.retry_after is not None  # a budget that fills up again says when
    if isinstance(error, ModelRequestRejectedError):
        return False
    if isinstance(error, ModelHTTPError):
        return error.status_code in _RETRYABLE_STATUSES or error.status_code >= _SERVER_ERRORS
    return True

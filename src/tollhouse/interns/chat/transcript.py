"""A run's events as the chunks that callers parse; legal to the last byte, however it ends.

    role ──> content | reasoning ... ──> [tool call] ──> finish ──> session and usage ──> [DONE]

    silent for 30 s       `: keepalive`
    300 s                 error chunk `timeout`
    broken or malformed   error chunk `stream_severed`
    the caller leaves     nothing more; whoever holds the connection to the daemon closes it

Tools that an intern uses are told as reasoning, a line each (`$ title`): the grammar has no other
place for them.

Source: the public gateway's chat with interns: chunks, their order, which model they name,
deadlines and disconnects.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from tollhouse.inference import sse
from tollhouse.interns.chat.daemon_client import StreamSevered
from tollhouse.interns.chat.errors import IN_STREAM, RUN_ENDED, SEVERED, TIMED_OUT, TURN_FAILED
from tollhouse.interns.chat.events import (
    DaemonReasoningEvent,
    DaemonTextEvent,
    QuestionEvent,
    RunEnded,
    RunError,
    ToolStarted,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tollhouse.interns.chat.errors import ChatFault
    from tollhouse.interns.chat.events import DaemonEvent, DaemonRunUsage

    Write = Callable[[bytes], Awaitable[None]]

PLACEHOLDER_MODEL: Final = "openrouter/intern"
"""What chunks name before the intern has told its model, and those that it has nothing to do with.

Source: the public gateway's chunks; clients compare it.
"""
KEEP_ALIVE: Final = b": keepalive\n\n"
DONE: Final = sse.event(b"[DONE]")
INPUT_TOOL: Final = "openrouter.provide_input"
"""The one tool that is ever called. Source: published clients refuse any other name."""
LONGEST_TITLE: Final = 200
LONGEST_MESSAGE: Final = 2_000
"""Characters of what an intern says of an error."""

_encode = msgspec.json.Encoder().encode


class Transcript:
    """The stream of one answer, from its first chunk to `[DONE]`."""

    def __init__(self, completion: str, created: int, session: str, *, known: bool) -> None:
        """Begin the answer of an id, at a time in seconds since the epoch; nothing is written yet.

        A session that the caller has not named is told once the intern has begun in it.
        """
        self._base = {"id": completion, "object": "chat.completion.chunk", "created": created}
        self._session = session
        self._is_known = known
        self._model = PLACEHOLDER_MODEL
        self._mid_line = False
        self.outcome: str | None = None
        """How it ended: `stop`, `tool_calls`, or the reason of an error; None while it goes on."""

    def begin(self) -> bytes:
        """Return the first chunk."""
        return self._choice({"role": "assistant", "content": ""})

    def tell(self, event: DaemonEvent) -> bytes:
        """Return what an event is to the caller; nothing once the stream has ended."""
        if self.outcome is not None:
            return b""
        self._is_known = True
        if event.model is not None:
            self._model = event.model
        told = b""
        match event:
            case DaemonTextEvent(text=text) if text:
                told = self._choice({"content": text})
            case DaemonReasoningEvent(text=text) if text:
                told = self._think(text)
            case ToolStarted(title=title):
                before = "\n" if self._mid_line else ""
                told = self._think(f"{before}$ {one_line(title)}\n")
            case QuestionEvent():
                told = self._ask(event)
            case RunEnded():
                told = self._end(event)
            case _:
                pass
        return told

    def fail(self, fault: ChatFault) -> bytes:
        """Return the end of a stream that the intern did not end; nothing after another end."""
        if self.outcome is not None:
            return b""
        return self._fail(fault, fault.message, None)

    def _think(self, text: str) -> bytes:
        self._mid_line = not text.endswith("\n")
        return self._choice({"reasoning": text})

    def _ask(self, question: QuestionEvent) -> bytes:
        function = {"name": INPUT_TOOL, "arguments": _arguments(question)}
        call = {"index": 0, "id": question.interaction, "type": "function", "function": function}
        asked = self._choice({"tool_calls": [call]})
        return asked + self._finish("tool_calls") + self._last(None)

    def _end(self, ended: RunEnded) -> bytes:
        fault = fault_of_end(ended)
        if fault is None:
            return self._finish("stop") + self._last(ended.usage)
        error = ended.error or RunError()
        limit = {
            name: one_line(text)
            for name in ("limit_source", "remedy_hint")
            if fault.reason == TURN_FAILED.reason and (text := getattr(error, name))
        }
        return self._fail(fault, fault.message, ended.usage, limit)

    def _fail(
        self,
        fault: ChatFault,
        message: str,
        usage: DaemonRunUsage | None,
        limit: Mapping[str, str] | None = None,
    ) -> bytes:
        if fault.reason != TURN_FAILED.reason:
            self._model = PLACEHOLDER_MODEL  # the API's own chunks
        metadata = {"reason": fault.reason, "retryable": fault.retryable, **(limit or {})}
        error = {"code": fault.status, "message": message, "metadata": metadata}
        self.outcome = fault.reason
        return self._choice({}, "error", error=error) + self._last(usage)

    def _finish(self, reason: str) -> bytes:
        self.outcome = reason
        return self._choice({}, reason)

    def _last(self, usage: DaemonRunUsage | None) -> bytes:
        session = self._session if self._is_known else None
        told = None if usage is None else _usage(usage)
        return self._chunk({"choices": [], "session_id": session, "usage": told}) + DONE

    def _choice(
        self, delta: dict[str, Any], finish_reason: str | None = None, **beside: object
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return self._chunk({"choices": [choice], **beside})

    def _chunk(self, parts: dict[str, Any]) -> bytes:
        return sse.event(_encode({**self._base, "model": self._model, **parts}))


def one_line(text: str) -> str:
    """Return a text as one line of bounded length."""
    return clipped(" ".join(text.split()), LONGEST_TITLE)


def clipped(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Return a text, or the beginning of one that is too long."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _arguments(question: QuestionEvent) -> str:
    """Return what a caller needs for its answer, as JSON."""
    asked: dict[str, Any]
    if question.permission is not None:
        asked = {"kind": "permission", **msgspec.to_builtins(question.permission)}
    else:
        asked = {"kind": "elicitation", **msgspec.to_builtins(question.elicitation)}
    return _encode(asked).decode()


def fault_of_end(ended: RunEnded) -> ChatFault | None:
    """Return why a run did not complete, in the intern's own words if any; None if it did."""
    if ended.outcome == "completed":
        return None
    fault = RUN_ENDED if ended.outcome == "cancelled" else _fault_of(ended.error)
    told = None if ended.error is None else ended.error.message
    return fault._replace(message=clipped(told or fault.message))


def _fault_of(error: RunError | None) -> ChatFault:
    """Return why a run failed; what has no name of its own is the turn's failure."""
    fault = TURN_FAILED if error is None else IN_STREAM.get(error.reason or "", TURN_FAILED)
    if error is not None and fault is TURN_FAILED:
        return fault._replace(retryable=error.retryable)
    return fault


def _usage(used: DaemonRunUsage) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.input_tokens + used.output_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
    }
    if used.cost is not None:
        shown["cost"] = float(used.cost)
    return shown


@dataclass(frozen=True, slots=True)
class ChatTimeouts:
    """How long things may take, in seconds."""

    head: float = 60.0
    """Until a daemon begins to answer."""
    stream: float = 300.0
    """One stream, from its first chunk on."""
    silence: float = 30.0
    """Until the caller is told that the stream lives."""
    farewell: float = 5.0
    """For the end of a stream, where the caller does not read."""


class EventSource(Protocol):
    """A daemon's events, as they come."""

    async def events(self) -> Sequence[DaemonEvent]:
        """Wait for the next ones, maybe none; raises `StreamSevered` where none will come."""
        ...


async def relay(
    events: EventSource, transcript: Transcript, write: Write, timeouts: ChatTimeouts
) -> None:
    """Write a stream to its end; raises `TimeoutError`, without one, if nobody reads."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeouts.stream
    try:
        async with asyncio.timeout_at(ends + timeouts.farewell):
            await write(transcript.begin())
            written = loop.time()
            while transcript.outcome is None:
                limit = min(ends, written + timeouts.silence)
                told = await _next_chunks(events, transcript, limit)
                if told is None:
                    told = KEEP_ALIVE if limit < ends else transcript.fail(TIMED_OUT)
                if told:
                    await write(told)
                    written = loop.time()
    except asyncio.CancelledError:
        # The server stops.
        if told := transcript.fail(SEVERED):
            with suppress(TimeoutError):
                async with asyncio.timeout(timeouts.farewell):
                    await write(told)
        raise


async def _next_chunks(events: EventSource, transcript: Transcript, limit: float) -> bytes | None:
    """Return the chunks of the next events, maybe none; None where the limit passes before."""
    try:
        async with asyncio.timeout_at(limit):
            found = await events.events()
    except TimeoutError:
        return None
    except StreamSevered:
        return transcript.fail(SEVERED)
    return b"".join([transcript.tell(event) for event in found])

"""A run's events as the chunks that callers parse; legal to the last byte, however it ends. Pure.

    role ──> content | reasoning ... ──> [tool call] ──> finish ──> session and usage ──> [DONE]

Tools that an intern uses are told as reasoning, a line each (`$ title`): the grammar has no other
place for them.

Source: the public gateway's chat with interns: chunks, their order, and which model they name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tollhouse.inference import sse
from tollhouse.interns.chat.errors import IN_STREAM, RUN_ENDED, TURN_FAILED
from tollhouse.interns.chat.events import (
    Ended,
    Question,
    Reasoning,
    Text,
    ToolStarted,
)

if TYPE_CHECKING:
    from tollhouse.interns.chat.errors import Fault
    from tollhouse.interns.chat.events import Event, RunError, Used

OWN_MODEL: Final = "openrouter/intern"
"""What chunks name before the intern has told its model, and those that it has nothing to do with.

Source: the public gateway's chunks; clients compare it.
"""
KEEP_ALIVE: Final = b": keepalive\n\n"
DONE: Final = sse.event(b"[DONE]")
TOOL: Final = "openrouter.provide_input"
"""The one tool that is ever called. Source: published clients refuse any other name."""
LONGEST_TITLE: Final = 200
LONGEST_MESSAGE: Final = 2_000
"""Characters of what an intern says of an error."""

_encode = msgspec.json.Encoder().encode


class Transcript:
    """The stream of one answer, from its first chunk to `[DONE]`."""

    def __init__(self, completion: str, created: int, session: str, *, known: bool) -> None:
        """Begin; nothing is written yet.

        Args:
            completion: Id of the answer.
            created: When it began, in seconds since the epoch.
            session: Where it belongs.
            known: Whether the caller has named the session; one of ours is told once the intern
                has begun in it.
        """
        self._base = {"id": completion, "object": "chat.completion.chunk", "created": created}
        self._session = session
        self._is_known = known
        self._model = OWN_MODEL
        self._mid_line = False
        self.outcome: str | None = None
        """How it ended: `stop`, `tool_calls`, or the reason of an error; None while it goes on."""

    def begin(self) -> bytes:
        """Return the first chunk."""
        return self._choice({"role": "assistant", "content": ""})

    def tell(self, event: Event) -> bytes:
        """Return what an event is to the caller; nothing once the stream has ended."""
        if self.outcome is not None:
            return b""
        self._is_known = True
        if event.model is not None:
            self._model = event.model
        told = b""
        match event:
            case Text(text=text) if text:
                told = self._choice({"content": text})
            case Reasoning(text=text) if text:
                told = self._think(text)
            case ToolStarted(title=title):
                before = "\n" if self._mid_line else ""
                told = self._think(f"{before}$ {one_line(title)}\n")
            case Question():
                told = self._ask(event)
            case Ended():
                told = self._end(event)
            case _:
                pass
        return told

    def fail(self, fault: Fault) -> bytes:
        """Return the end of a stream that the intern did not end; nothing after another end."""
        if self.outcome is not None:
            return b""
        return self._fail(fault, fault.message, None)

    # Parts

    def _think(self, text: str) -> bytes:
        self._mid_line = not text.endswith("\n")
        return self._choice({"reasoning": text})

    def _ask(self, question: Question) -> bytes:
        function = {"name": TOOL, "arguments": _arguments(question)}
        call = {"index": 0, "id": question.interaction, "type": "function", "function": function}
        asked = self._choice({"tool_calls": [call]})
        return asked + self._finish("tool_calls") + self._last(None)

    def _end(self, ended: Ended) -> bytes:
        if ended.outcome == "completed":
            return self._finish("stop") + self._last(ended.usage)
        fault = RUN_ENDED if ended.outcome == "cancelled" else _fault_of(ended.error)
        told = None if ended.error is None else ended.error.message
        return self._fail(fault, clipped(told or fault.message), ended.usage)

    def _fail(self, fault: Fault, message: str, usage: Used | None) -> bytes:
        if fault.reason != TURN_FAILED.reason:
            self._model = OWN_MODEL  # the API's own chunks
        metadata = {"reason": fault.reason, "retryable": fault.retryable}
        error = {"code": fault.status, "message": message, "metadata": metadata}
        self.outcome = fault.reason
        return self._choice({}, "error", error=error) + self._last(usage)

    def _finish(self, reason: str) -> bytes:
        self.outcome = reason
        return self._choice({}, reason)

    def _last(self, usage: Used | None) -> bytes:
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


def _arguments(question: Question) -> str:
    """Return what a caller needs for its answer, as JSON."""
    asked: dict[str, Any]
    if question.permission is not None:
        asked = {"kind": "permission", **msgspec.to_builtins(question.permission)}
    else:
        asked = {"kind": "elicitation", **msgspec.to_builtins(question.elicitation)}
    return _encode(asked).decode()


def _fault_of(error: RunError | None) -> Fault:
    """Return why a run failed; what has no name of its own is the turn's failure."""
    fault = TURN_FAILED if error is None else IN_STREAM.get(error.reason or "", TURN_FAILED)
    if error is not None and fault is TURN_FAILED:
        return fault._replace(retryable=error.retryable)
    return fault


def _usage(used: Used) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.input_tokens + used.output_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
    }
    if used.cost is not None:
        shown["cost"] = float(used.cost)
    return shown

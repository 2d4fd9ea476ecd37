"""A run's events for whoever acts on them in this process, up to its next question or its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.interns.chat.daemon_client import StreamSevered
from tollhouse.interns.chat.errors import CLIENT_CLOSED, SEVERED, ChatFailed
from tollhouse.interns.chat.events import QuestionEvent, RunEnded
from tollhouse.interns.chat.transcript import fault_of_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tollhouse.interns.chat.daemon_client import DaemonResponse
    from tollhouse.interns.chat.events import DaemonEvent
    from tollhouse.observability.metrics import Metrics


@dataclass(frozen=True, slots=True)
class FollowedRun:
    """A run that works, or goes on with an answer; it ends where nobody follows it."""

    session: str
    reply: DaemonResponse
    metrics: Metrics

    async def run(
        self, show: Callable[[DaemonEvent], Awaitable[None]] | None = None
    ) -> QuestionEvent | RunEnded:
        """Show every event, and return the last one: what the run asks, or its end.

        Raises `ChatFailed` where the connection breaks.
        """
        outcome = CLIENT_CLOSED.reason
        try:
            with self.metrics.intern_streams.track_inprogress():
                while True:
                    for event in await self.reply.events():
                        if show is not None:
                            await show(event)
                        if isinstance(event, QuestionEvent):
                            outcome = "tool_calls"
                            return event
                        if isinstance(event, RunEnded):
                            fault = fault_of_end(event)
                            outcome = "stop" if fault is None else fault.reason
                            return event
        except StreamSevered:
            outcome = SEVERED.reason
            raise ChatFailed(SEVERED) from None
        finally:
            self.metrics.count_chat(outcome)

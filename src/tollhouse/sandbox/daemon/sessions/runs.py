"""All runs: one works at a time, some wait for answers.

begin ──> working ──> ended
            │  ▲
            ▼  └── answer, once nothing more is asked
          waiting ──> ended, where nobody answers in time
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tollhouse.sandbox.daemon.http import RequestError
from tollhouse.sandbox.daemon.sessions.active_run import ActiveRun, end_run
from tollhouse.sandbox.daemon.sessions.agent import AgentGone, AgentSupervisor
from tollhouse.sandbox.daemon.sessions.approvals import (
    Approvals,
    InvalidAnswer,
    public_question,
    read_answer,
    standing_answer,
)
from tollhouse.sandbox.daemon.sessions.log import (
    CANCELLED,
    SEVERED,
    UNANSWERED,
    PendingQuestion,
    RunEnding,
    SessionRun,
)
from tollhouse.sandbox.daemon.sessions.log_file import (
    LogBusy,
    LogDamaged,
    LogFailed,
    LogFull,
    new_id,
    utc_now,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tollhouse.sandbox.daemon.sessions.log import LogTransaction, SessionEvent, SessionLog

MOST_WAITING: Final = 8
"""Runs that may wait for answers at a time."""
RETRY_SECONDS: Final = 5
"""What clients are told to wait if the intern is busy."""
_RETRY_LOG_SECONDS: Final = 30.0
"""Until an end that could not be logged is tried again."""
_RETRY: Final = {"Retry-After": str(RETRY_SECONDS)}
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class RunScheduler:
    """Starts runs, continues and ends them; one works at a time.

    Without `agents` the intern has none. A question waits for `interaction_seconds`. What clients
    ask for is refused with a `RequestError`, and a `LogFailed` where it cannot be logged.
    """

    log: SessionLog
    agents: AgentSupervisor | None
    model: str
    interaction_seconds: float
    _working: ActiveRun | None = field(default=None, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict, init=False)
    _restoring: asyncio.TimerHandle | None = field(default=None, init=False)
    _approvals: Approvals = field(default_factory=Approvals, init=False)

    def restore(self) -> None:
        """End or continue the runs that an earlier daemon has left."""
        if not self.log.exists():
            return
        try:
            with self._checking_log():
                if self._working is None:
                    self._end_abandoned()
                for run in self.log.runs("waiting"):
                    asked = self.log.questions(run.id, "asked")
                    self._await_answer(run, max(map(self._left, asked), default=0.0))
        except LogFailed as error:
            _log.warning("the log of sessions cannot be used: %s", error)
            loop = asyncio.get_running_loop()
            self._restoring = loop.call_later(_RETRY_LOG_SECONDS, self.restore)

    async def begin(self, session: str, text: str, mode: str) -> tuple[str, int | None]:
        """Start a run, or hand the text to the session's run that works.

        Returned are the run, and the number of the event before its first; None if it ran already.
        """
        working = self._working
        if working is not None and working.run.session == session:
            if await working.steer(text):
                return working.run.id, None
            raise _busy_error("The run cannot take this now.")
        self._need_idle()
        with self._checking_log():
            self._end_abandoned()
        if self.log.open_run(session) is not None:
            raise _busy_error("The session's run waits for an answer.")
        if len(self.log.runs("waiting")) >= MOST_WAITING:
            raise _busy_error(f"{MOST_WAITING} runs wait for answers already.", 503)
        agents = self._need_agent()
        run = SessionRun(new_id(), session, mode, {})
        with self.log.writing() as write:
            write.run(run)
            write.input(run, text)
            first = write.event(
                run, "run.started", input=text, approval_mode=mode, model=self.model
            )
        self._work(ActiveRun(run, self.log), agents)
        return run.id, first - 1

    def answer(self, session: str, interaction: str, text: str) -> tuple[str, int]:
        """Answer a question; the run continues, or asks its next one.

        Returned are the run, and the number of the event before the answer's.
        """
        self._need_idle()
        question, run = self._pending(session, interaction)
        run = replace(run, mode=self._approvals.mode(question))
        body = self._approvals.body(question)
        try:
            answer = read_answer(body, text)
        except InvalidAnswer as error:
            raise RequestError(400, str(error), reason="bad_request") from None
        agents = self._need_agent()
        verdicts = self._approvals.verdicts_with(session, question, answer)
        with self.log.writing() as write:
            number = write.event(
                run, "answered", interaction=question.id, outcome=answer.outcome, model=self.model
            )
            write.answered(question.id, {"call": body["call"], **answer.order})
            waits = self._ask_next(write, run, verdicts)
        self._approvals.answer(session, question, answer)
        self._stop_timer(run.id)
        if waits:
            self._await_answer(run, self.interaction_seconds)
        else:
            self._work(ActiveRun(run, self.log), agents)
        return run.id, number - 1

    async def cancel(self, session: str) -> None:
        """Cancel a session's run; return once it has ended."""
        working = self._working
        if working is not None and working.run.session == session:
            working.cancel(CANCELLED)
            await working.over.wait()
            return
        run = self.log.open_run(session)
        if run is None:
            raise RequestError(404, "The session has no run.", reason="not_found")
        self._end_waiting(run, CANCELLED)

    def events(self, session: str, after: int, limit: int) -> list[SessionEvent]:
        """Return a session's events after a number, in order.

        A question that waits is as it was asked, whatever the log says by now.
        """
        found = self.log.events(session, after, limit)
        return [self._approvals.restore_question(event) for event in found]

    def leave(self, run: str, ending: RunEnding) -> None:
        """End a run whose client has left, if it works."""
        if self._working is not None and self._working.run.id == run:
            self._working.cancel(ending)

    async def close(self) -> None:
        """End the run that works, and the agent; runs that wait keep waiting."""
        if self._working is not None:
            self._working.sever()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for run in list(self._timers):
            self._stop_timer(run)
        if self._restoring is not None:
            self._restoring.cancel()
        if self.agents is not None:
            await self.agents.close()

    # Working

    def _work(self, working: ActiveRun, agents: AgentSupervisor) -> None:
        self._working = working
        task = asyncio.create_task(self._drive(working, agents))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drive(self, working: ActiveRun, agents: AgentSupervisor) -> None:
        session = working.run.session
        verdicts = self._approvals.verdicts(session)
        try:
            agent = agents.take()
            await agent.open()
            while (line := await working.drive(agent, self._order(working.run))) is not None:
                with self.log.writing() as write:
                    asked = working.pause(write, line)
                    self._approvals.wait(working.run, asked)
                    waits = self._ask_next(write, working.run, verdicts)
                if waits:
                    self._await_answer(working.run, self.interaction_seconds)
                    break
        except AgentGone:
            _log.warning("the agent has ended amid a run")
            agents.drop()
        except Exception as error:  # noqa: BLE001 - the edge of a run: nothing may keep the next from beginning
            if isinstance(error, LogFailed):
                _log.warning("a run cannot be logged: %s", error)
            else:
                _log.exception("a run failed")
            agents.drop()
            self.log.feed.disconnect(session)
        finally:
            if working.run.id not in self._timers:  # it has ended
                self._approvals.forget(working.run.id)
            self._working = None
            working.over.set()
            agents.give_back()

    def _order(self, run: SessionRun) -> dict[str, Any]:
        """Return the message to the agent that starts a run or continues it."""
        return {
            "type": "run",
            "approval_mode": run.mode,
            "messages": self.log.messages(run.session),
            "inputs": self.log.inputs(run.session),
            "answers": self._approvals.with_digests(run.id, self.log.answers(run.id)),
            "verdicts": self._approvals.verdicts(run.session),
            "spent": run.spent,
        }

    def _end_abandoned(self) -> None:
        """End runs that an earlier daemon left working, or whose end could not be logged."""
        for run in self.log.runs("working"):
            with self.log.writing() as write:
                end_run(write, run, SEVERED)

    @contextmanager
    def _checking_log(self) -> Generator[None]:
        """Set the log aside if it holds values that the daemon never writes; raise `LogFailed`."""
        try:
            yield
        except LogFailed:
            raise
        except Exception as error:
            _log.warning("the log of sessions holds what cannot be: %s", type(error).__name__)
            self.log.set_aside()
            raise LogDamaged from error

    # Waiting

    def _ask_next(
        self, write: LogTransaction, run: SessionRun, verdicts: Mapping[str, str]
    ) -> bool:
        """Ask a run's next question; return whether there is one. The run waits or works then."""
        for question in self.log.questions(run.id, "later"):
            body = self._approvals.body(question)
            standing = standing_answer(body, verdicts)
            if standing is None:
                deadline = utc_now() + timedelta(seconds=self.interaction_seconds)
                until = write.asked(question.id, deadline)
                frame = {"interaction": question.id, "expires_at": until}
                write.event(run, "question", **frame, **public_question(body))
                write.run_state(run, "waiting")
                return True
            write.answered(question.id, {"call": body["call"], **standing.order})
        write.run_state(run, "working")
        return False

    def _pending(self, session: str, interaction: str) -> tuple[PendingQuestion, SessionRun]:
        question = self.log.question(session, interaction)
        if question is None or question.state == "later":
            raise RequestError(
                404, "The session has no such question.", reason="interaction_unknown"
            )
        run = self.log.run(question.run)
        is_asked = question.state == "asked" and self._left(question) > 0
        if not is_asked or run is None or run.session != session:
            raise RequestError(
                409, "Nobody waits for this answer any more.", reason="interaction_not_pending"
            )
        return question, run

    def _await_answer(self, run: SessionRun, seconds: float) -> None:
        """End a waiting run once it has waited too long."""
        self._stop_timer(run.id)
        self._timers[run.id] = asyncio.get_running_loop().call_later(seconds, self._expire, run)

    def _expire(self, run: SessionRun) -> None:
        self._stop_timer(run.id)
        try:
            with self._checking_log():
                if any(run.id == waiting.id for waiting in self.log.runs("waiting")):
                    self._end_waiting(run, UNANSWERED)
            self._approvals.forget(run.id)
        except LogFailed as error:
            _log.warning("a run's end cannot be logged: %s", error)
            self._await_answer(run, _RETRY_LOG_SECONDS)

    def _end_waiting(self, run: SessionRun, ending: RunEnding) -> None:
        self._stop_timer(run.id)
        with self.log.writing() as write:
            end_run(write, run, ending)
        self._approvals.forget(run.id)

    def _stop_timer(self, run: str) -> None:
        if timer := self._timers.pop(run, None):
            timer.cancel()

    def _left(self, question: PendingQuestion) -> float:
        """Return for how many seconds a question still waits."""
        with suppress(ValueError, TypeError):
            until = datetime.fromisoformat(str(question.expires_at))
            return min((until - utc_now()).total_seconds(), self.interaction_seconds)
        return 0.0

    # Refusals

    def _need_idle(self) -> None:
        if self._working is not None:
            raise _busy_error("The intern works on something else.")

    def _need_agent(self) -> AgentSupervisor:
        """Return the supervisor of an agent that runs; refuse if none can be started."""
        try:
            if self.agents is not None:
                self.agents.prepare()
                return self.agents
        except OSError:
            _log.warning("the agent cannot be started")
        raise _busy_error("The agent cannot be started.", 503)


def _busy_error(message: str, status: int = 409) -> RequestError:
    return RequestError(status, message, _RETRY, reason="busy")


def error_from_log(error: LogFailed) -> RequestError:
    """Return the answer to a request that needs the log."""
    if isinstance(error, LogFull):
        return RequestError(507, str(error), reason="workspace_full")
    if isinstance(error, LogBusy):
        return _busy_error(str(error), 503)
    return RequestError(500, str(error), reason="internal_error")

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
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tollhouse.sandbox.daemon.errors import Refused
from tollhouse.sandbox.daemon.sessions.agent import AgentGone
from tollhouse.sandbox.daemon.sessions.consents import Consents
from tollhouse.sandbox.daemon.sessions.file import LogBusy, LogFailed, LogFull, damaged
from tollhouse.sandbox.daemon.sessions.questions import (
    BadAnswer,
    read_answer,
    shown,
    standing_answer,
)
from tollhouse.sandbox.daemon.sessions.values import (
    CANCELLED,
    SEVERED,
    UNANSWERED,
    Ending,
    Question,
    Run,
)
from tollhouse.sandbox.daemon.sessions.working import Working, end_run

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tollhouse.sandbox.daemon.clock import Clock
    from tollhouse.sandbox.daemon.sessions.agent import Agents
    from tollhouse.sandbox.daemon.sessions.feed import Feed
    from tollhouse.sandbox.daemon.sessions.log import Log, Writing
    from tollhouse.sandbox.daemon.sessions.values import Event

MOST_WAITING: Final = 8
"""Runs that wait for answers."""
RETRY_SECONDS: Final = 5
"""What clients are told to wait who find the intern busy."""
_AGAIN_SECONDS: Final = 30.0
"""Until what could not be written down is tried again."""
_RETRY: Final = {"Retry-After": str(RETRY_SECONDS)}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all runs."""

    model: str
    """Of the agent, as clients see it."""
    interaction_seconds: float
    """How long a question waits for its answer."""


@dataclass(frozen=True, slots=True)
class Following:
    """What a client of a run gets."""

    run: str
    after: int
    """Its events begin after this one."""


@dataclass(frozen=True, slots=True)
class Steered:
    """The text was handed into this run."""

    run: str


class Runs:
    """Begins runs, goes on with them, and ends them."""

    def __init__(
        self, log: Log, feed: Feed, agents: Agents | None, clock: Clock, terms: Terms
    ) -> None:
        """Take what runs need.

        Args:
            log: Has them all.
            feed: Of those who follow.
            agents: None where the intern has none.
            clock: For ids, and for how long questions wait.
            terms: Of them all.
        """
        self._log = log
        self._feed = feed
        self._agents = agents
        self._clock = clock
        self._interaction = timedelta(seconds=terms.interaction_seconds)
        self._model = terms.model
        self._working: Working | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._restoring: asyncio.TimerHandle | None = None
        self._consents = Consents()

    def restore(self) -> None:
        """Go on where a daemon of before has ended: see to what it left behind."""
        if not self._log.exists():
            return
        try:
            with self._doubting():
                if self._working is None:
                    self._mend()
                for run in self._log.runs("waiting"):
                    asked = self._log.questions(run.id, "asked")
                    self._await_answer(run, max(map(self._left, asked), default=0.0))
        except LogFailed as error:
            _log.warning("the log of sessions cannot be used: %s", error)
            loop = asyncio.get_running_loop()
            self._restoring = loop.call_later(_AGAIN_SECONDS, self.restore)

    async def begin(self, session: str, text: str, mode: str) -> Following | Steered:
        """Begin a run, or hand the text into the session's one that works.

        Raises:
            Refused: Neither can be done now.
            LogFailed: It cannot be written down.
        """
        working = self._working
        if working is not None and working.run.session == session:
            if await working.steer(text):
                return Steered(working.run.id)
            raise _busy("The run cannot take this now.")
        self._need_idle()
        with self._doubting():
            self._mend()
        if self._log.open_run(session) is not None:
            raise _busy("The session's run waits for an answer.")
        if len(self._log.runs("waiting")) >= MOST_WAITING:
            raise Refused(
                503, f"{MOST_WAITING} runs wait for answers already.", _RETRY, reason="busy"
            )
        agents = self._need_agent()
        run = Run(self._clock.new_id(), session, mode, {})
        with self._log.writing() as write:
            write.run(run)
            write.input(run, text)
            first = write.event(
                run, "run.started", input=text, approval_mode=mode, model=self._model
            )
        self._work(Working(run, self._log, self._feed), agents)
        return Following(run.id, first - 1)

    def answer(self, session: str, interaction: str, text: str) -> Following:
        """Answer a question; the run goes on, or asks the next one.

        Raises:
            Refused: There is no such question, nobody asks it any more, it does not offer this
                answer, or another run works.
            LogFailed: It cannot be written down.
        """
        self._need_idle()
        question, run = self._pending(session, interaction)
        run = replace(run, mode=self._consents.mode(question))
        body = self._consents.body(question)
        try:
            answer = read_answer(body, text)
        except BadAnswer as error:
            raise Refused(400, str(error), reason="bad_request") from None
        agents = self._need_agent()
        verdicts = self._consents.verdicts_with(session, question, answer)
        with self._log.writing() as write:
            number = write.event(
                run,
                "answered",
                interaction=question.id,
                outcome=answer.outcome,
                model=self._model,
            )
            write.answered(question.id, {"call": body["call"], **answer.order})
            waits = self._ask_next(write, run, verdicts)
        self._consents.answer(session, question, answer)
        self._stop_timer(run.id)
        if waits:
            self._await_answer(run, self._interaction.total_seconds())
        else:
            self._work(Working(run, self._log, self._feed), agents)
        self._feed.ring(session)
        return Following(run.id, number - 1)

    async def cancel(self, session: str) -> None:
        """End a session's run; return once it has ended.

        Raises:
            Refused: There is none.
            LogFailed: It cannot be written down.
        """
        working = self._working
        if working is not None and working.run.session == session:
            working.cancel(CANCELLED)
            await working.over.wait()
            return
        run = self._log.open_run(session)
        if run is None:
            raise Refused(404, "The session has no run.", reason="not_found")
        self._end_waiting(run, CANCELLED)

    def events(self, session: str, after: int, limit: int) -> list[Event]:
        """Return a session's events after a number, in their order.

        A question that waits is as it was asked, whatever the log says by now.

        Raises:
            LogFailed: They cannot be read.
        """
        return [self._consents.told(event) for event in self._log.events(session, after, limit)]

    def leave(self, run: str, ending: Ending) -> None:
        """End a run whose client has left, if it works."""
        if self._working is not None and self._working.run.id == run:
            self._working.cancel(ending)

    async def close(self) -> None:
        """End the run that works, and the agent; those that wait wait on."""
        if self._working is not None:
            self._working.sever()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for run in list(self._timers):
            self._stop_timer(run)
        if self._restoring is not None:
            self._restoring.cancel()
        if self._agents is not None:
            await self._agents.close()

    # Working

    def _work(self, working: Working, agents: Agents) -> None:
        self._working = working
        task = asyncio.create_task(self._drive(working, agents))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drive(self, working: Working, agents: Agents) -> None:
        session = working.run.session
        verdicts = self._consents.verdicts(session)
        try:
            agent = agents.take()
            await agent.open()
            while (line := await working.drive(agent, self._order(working.run))) is not None:
                with self._log.writing() as write:
                    asked = working.pause(write, line, self._clock.new_id)
                    self._consents.wait(working.run, asked)
                    waits = self._ask_next(write, working.run, verdicts)
                if waits:
                    self._await_answer(working.run, self._interaction.total_seconds())
                    break
        except AgentGone:
            _log.warning("the agent has ended amid a run")
            agents.drop()
        except LogFailed as error:
            _log.warning("a run cannot be written down: %s", error)
            agents.drop()
            self._feed.cut(session)
        except Exception:  # noqa: BLE001 - the edge of a run: nothing may keep the next from beginning
            _log.exception("a run failed")
            agents.drop()
            self._feed.cut(session)
        finally:
            if working.run.id not in self._timers:  # it has ended
                self._consents.forget(working.run.id)
            self._working = None
            working.over.set()
            self._feed.ring(session)
            agents.give_back()

    def _order(self, run: Run) -> dict[str, Any]:
        """Return what the agent has to know of a run."""
        return {
            "type": "run",
            "approval_mode": run.mode,
            "messages": self._log.messages(run.session),
            "inputs": self._log.inputs(run.session),
            "answers": self._consents.vouched(run.id, self._log.answers(run.id)),
            "verdicts": self._consents.verdicts(run.session),
            "spent": run.spent,
        }

    def _mend(self) -> None:
        """End runs that a daemon of before has left working, or that could not be written down."""
        for run in self._log.runs("working"):
            with self._log.writing() as write:
                end_run(write, run, SEVERED)
            self._feed.ring(run.session)

    @contextmanager
    def _doubting(self) -> Generator[None]:
        """Set a log aside whose values are such as the daemon never writes.

        Raises:
            LogFailed: It is set aside, or cannot be used now.
        """
        try:
            yield
        except LogFailed:
            raise
        except Exception as error:
            _log.warning("the log of sessions holds what cannot be: %s", type(error).__name__)
            self._log.set_aside()
            raise damaged() from error

    # Waiting

    def _ask_next(self, write: Writing, run: Run, verdicts: Mapping[str, str]) -> bool:
        """Ask a run's next question, and let it wait, or work where none is left; tell which."""
        waits = self._ask(write, run, verdicts)
        write.run_state(run, "waiting" if waits else "working", run.spent)
        return waits

    def _ask(self, write: Writing, run: Run, verdicts: Mapping[str, str]) -> bool:
        for question in self._log.questions(run.id, "later"):
            body = self._consents.body(question)
            standing = standing_answer(body, verdicts)
            if standing is None:
                until = write.asked(question.id, self._clock.now() + self._interaction)
                write.event(
                    run,
                    "question",
                    interaction=question.id,
                    expires_at=until,
                    **shown(body),
                )
                return True
            write.answered(question.id, {"call": body["call"], **standing.order})
        return False

    def _pending(self, session: str, interaction: str) -> tuple[Question, Run]:
        question = self._log.question(session, interaction)
        if question is None or question.state == "later":
            raise Refused(404, "The session has no such question.", reason="interaction_unknown")
        run = self._log.run(question.run)
        is_asked = question.state == "asked" and not self._has_expired(question)
        if not is_asked or run is None or run.session != session:
            raise Refused(
                409, "Nobody waits for this answer any more.", reason="interaction_not_pending"
            )
        return question, run

    def _await_answer(self, run: Run, seconds: float) -> None:
        """End a run that waits, once it has waited too long."""
        self._stop_timer(run.id)
        loop = asyncio.get_running_loop()
        self._timers[run.id] = loop.call_later(seconds, self._expire, run)

    def _expire(self, run: Run) -> None:
        self._stop_timer(run.id)
        try:
            with self._doubting():
                if any(run.id == waiting.id for waiting in self._log.runs("waiting")):
                    self._end_waiting(run, UNANSWERED)
            self._consents.forget(run.id)
        except LogFailed as error:
            _log.warning("a run's end cannot be written down: %s", error)
            loop = asyncio.get_running_loop()
            self._timers[run.id] = loop.call_later(_AGAIN_SECONDS, self._expire, run)

    def _end_waiting(self, run: Run, ending: Ending) -> None:
        self._stop_timer(run.id)
        with self._log.writing() as write:
            end_run(write, run, ending)
        self._consents.forget(run.id)
        self._feed.ring(run.session)

    def _stop_timer(self, run: str) -> None:
        if timer := self._timers.pop(run, None):
            timer.cancel()

    def _has_expired(self, question: Question) -> bool:
        return self._left(question) <= 0

    def _left(self, question: Question) -> float:
        """Return for how many seconds a question waits."""
        with suppress(ValueError, TypeError):
            until = datetime.fromisoformat(str(question.expires_at))
            most = self._interaction.total_seconds()
            return min((until - self._clock.now()).total_seconds(), most)
        return 0.0

    # Refusals

    def _need_idle(self) -> None:
        if self._working is not None:
            raise _busy("The intern works on something else.")

    def _need_agent(self) -> Agents:
        """Return the agents, where one runs or can be started."""
        try:
            if self._agents is not None:
                self._agents.prepare()
                return self._agents
        except OSError:
            _log.warning("the agent cannot be started")
        raise Refused(503, "The agent cannot be started.", _RETRY, reason="busy")


def _busy(message: str) -> Refused:
    return Refused(409, message, _RETRY, reason="busy")


def refusal_of_log(error: LogFailed) -> Refused:
    """Return what a client is told whose request needs the log."""
    if isinstance(error, LogFull):
        return Refused(507, str(error), reason="workspace_full")
    if isinstance(error, LogBusy):
        return Refused(503, str(error), _RETRY, reason="busy")
    return Refused(500, str(error), reason="internal_error")

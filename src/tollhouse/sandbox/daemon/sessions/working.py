"""A run that works: what the agent says becomes events, and the conversation grows with them.

All that belongs together is written down at once: what a tool did, and that the conversation has
it; that a run waits, and what it asks.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tollhouse.sandbox.daemon.sessions.agent import AgentGone
from tollhouse.sandbox.daemon.sessions.pieces import Pieces
from tollhouse.sandbox.daemon.sessions.values import SEVERED, Ending, Run, failed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tollhouse.sandbox.daemon.sessions.agent import AgentProcess
    from tollhouse.sandbox.daemon.sessions.feed import Feed
    from tollhouse.sandbox.daemon.sessions.log import Log, Writing

CANCEL_SECONDS: Final = 5.0
"""For the agent to end a run; then the agent is killed."""
STEER_SECONDS: Final = 10.0
"""For the agent to take what is handed into a run. Later it takes it no more."""
_WORD_SECONDS: Final = 5.0
"""For its word of that, beyond."""
_TEXTS: Final = frozenset(("text", "reasoning"))


class Working:
    """One run, while it works."""

    def __init__(self, run: Run, log: Log, feed: Feed) -> None:
        """Take what it writes to.

        Args:
            run: Which one.
            log: Has it already, as one that works.
            feed: Of those who follow.
        """
        self.run = run
        self.over = asyncio.Event()
        """Set once it works no more."""
        self._log = log
        self._feed = feed
        self._pieces = Pieces()
        self._agent: AgentProcess | None = None
        self._ending: Ending | None = None
        self._steers: dict[int, tuple[asyncio.Future[bool], str]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    async def drive(
        self, agent: AgentProcess, order: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Have the agent do it; return what it waits for, and `pause` is next; None once it ended.

        Raises:
            AgentGone: The agent has to be dropped. The run has ended, and its end is written down.
            LogFailed: The same, but that nothing is written down.
        """
        self._agent = agent
        if self._ending is not None:
            self._end(self._ending, {})
            return None
        agent.send(order)
        try:
            line = await self._listen(agent)
            return self._last(line)
        except (AgentGone, KeyError, TypeError, AttributeError) as error:
            agent.kill()  # what it ran has ended, too, before anybody is told
            self._end(self._ending or SEVERED, {})
            raise AgentGone from error
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for taken, _ in self._steers.values():
                taken.cancel()

    def cancel(self, ending: Ending) -> None:
        """End it; `over` says when that is done. Who is first says why."""
        if self._ending is not None or self.over.is_set():
            return
        self._ending = ending
        if self._agent is not None:
            self._agent.send({"type": "cancel"})
            self._timer = self._loop.call_later(CANCEL_SECONDS, self._agent.kill)

    def sever(self) -> None:
        """End it at once, with the agent."""
        self._ending = self._ending or SEVERED
        if self._agent is not None:
            self._agent.kill()

    async def steer(self, text: str) -> bool:
        """Hand something into it; return whether the agent took it, which it did not do later.

        Raises:
            LogFailed: It cannot be written down.
        """
        if self._agent is None or self._ending is not None or self.over.is_set():
            return False
        with self._log.writing() as write:
            number = write.input(self.run, text)
        taken: asyncio.Future[bool] = self._loop.create_future()
        self._steers[number] = taken, text
        until = self._loop.time() + STEER_SECONDS
        self._agent.send({"type": "steer", "until": until, "input": {"id": number, "text": text}})
        await asyncio.wait({taken}, timeout=STEER_SECONDS + _WORD_SECONDS)
        if not taken.done() or taken.cancelled() or not taken.result():
            # Nobody has it, and the client is told.
            self._steers.pop(number, None)
            with self._log.writing() as write:
                write.entered([number])
            return False
        return True

    async def _listen(self, agent: AgentProcess) -> dict[str, Any]:
        """Write down what the agent says, up to its last line, which is returned."""
        while True:
            try:
                async with asyncio.timeout(self._pieces.wait(self._loop.time())):
                    line = await agent.read()
            except TimeoutError:
                self._write_text()
                continue
            kind = line["type"]
            if kind in _TEXTS:
                self._take_text(kind, line["text"])
            elif kind == "tool":
                self._begin_call(line)
            elif kind == "step":
                with self._log.writing() as write:
                    self._step(write, line)
                self._feed.ring(self.run.session)
            elif kind == "steered":
                self._steered(line["input"], taken=line["taken"])
            else:
                return line

    def _take_text(self, kind: str, text: str) -> None:
        if kind != self._pieces.kind:
            self._write_text()
        if text and self._pieces.add(kind, clean(text), self._loop.time()):
            self._write_text()

    def _write_text(self) -> None:
        if self._pieces.wait(0) is None:
            return
        with self._log.writing() as write:
            self._text(write)
        self._feed.ring(self.run.session)

    def _text(self, write: Writing) -> None:
        kind = self._pieces.kind
        if text := self._pieces.take():
            write.event(self.run, kind, text=text)

    def _begin_call(self, line: Mapping[str, Any]) -> None:
        told = {name: clean(line[name]) for name in ("call", "tool", "title")}
        with self._log.writing() as write:
            self._text(write)
            write.call_begun(self.run, told["call"])
            write.event(self.run, "tool.started", **told)
        self._feed.ring(self.run.session)

    def _step(self, write: Writing, line: Mapping[str, Any]) -> None:
        self._text(write)
        for ended in line["ended"]:
            call = clean(ended["call"])
            if write.call_ended(self.run, call):
                write.event(self.run, "tool.ended", call=call, outcome=clean(ended["outcome"]))
        write.messages(self.run.session, line["keep"], line["messages"])
        write.entered(line["entered"])
        self.run = replace(self.run, spent=dict(line["spent"]))

    def _steered(self, number: int, *, taken: bool) -> None:
        waiting = self._steers.pop(number, None)
        if waiting is None:
            return
        future, text = waiting
        if taken:
            with self._log.writing() as write:
                self._text(write)
                write.event(self.run, "steered", input=text)
            self._feed.ring(self.run.session)
        if not future.done():
            future.set_result(taken)

    def _last(self, line: Mapping[str, Any]) -> Mapping[str, Any] | None:
        outcome = line["outcome"] if line["type"] == "ended" else line["type"]
        if outcome == "completed":
            self._end(None, line)
        elif self._ending is not None:
            self._end(self._ending, line)
        elif outcome == "paused":
            return line
        elif outcome == "failed":
            error = line["error"]
            self._end(failed(clean(error["message"]), retryable=error["retryable"]), line)
        else:
            self._end(SEVERED, line)
        return None

    def pause(
        self, write: Writing, line: Mapping[str, Any], new_id: Callable[[], str]
    ) -> dict[str, Mapping[str, Any]]:
        """Write down how far it came, and its questions, which are asked later.

        Args:
            write: Where.
            line: What `drive` returned.
            new_id: Makes ids for the questions.

        Returns:
            The questions, by their ids.
        """
        self._step(write, line)
        write.questions_over(self.run)
        questions = {new_id(): body for body in line["questions"]}
        for position, (question, body) in enumerate(questions.items()):
            write.question(self.run, question, position, body)
        return questions

    def _end(self, ending: Ending | None, line: Mapping[str, Any]) -> None:
        with self._log.writing() as write:
            if line:
                self._step(write, line)
            else:
                self._text(write)
            end_run(write, self.run, ending)
        self._feed.ring(self.run.session)


def end_run(write: Writing, run: Run, ending: Ending | None) -> None:
    """Write down the end of a run.

    Args:
        write: Where.
        run: Which one.
        ending: Why it did not complete; None where it did.
    """
    for call in write.open_calls(run):
        write.call_ended(run, call)
        write.event(run, "tool.ended", call=call, outcome="interrupted")
    write.questions_over(run)
    write.run_state(run, "ended", run.spent)
    told: dict[str, object] = {} if ending is None else {"error": ending.error()}
    outcome = "completed" if ending is None else ending.outcome
    write.event(run, "run.ended", outcome=outcome, usage=run.spent.get("usage"), **told)


def clean(text: str) -> str:
    """Return a text that can be written as UTF-8."""
    return text.encode(errors="replace").decode()

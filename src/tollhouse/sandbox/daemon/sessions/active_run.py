"""A run that works: the agent's messages become events, and the conversation grows with them.

What belongs together is logged in one transaction: what a tool did and the messages that have it;
that a run waits and what it asks.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tollhouse.sandbox.daemon.sessions.agent import AgentGone, AgentProcess
from tollhouse.sandbox.daemon.sessions.log import SEVERED, RunEnding, SessionRun
from tollhouse.sandbox.daemon.sessions.log_file import new_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.sandbox.daemon.sessions.log import LogTransaction, SessionLog

BUFFER_SECONDS: Final = 0.03
"""How long text waits for more of it."""
BUFFER_CHARACTERS: Final = 4096
"""As soon as there is so much, it waits no longer."""
CANCEL_SECONDS: Final = 5.0
"""For the agent to end a run; after that it is killed."""
STEER_SECONDS: Final = 10.0
"""For the agent to take an input into a run; later it takes it no more."""
_REPLY_SECONDS: Final = 5.0
"""After that, for its reply."""


class TextBuffer:
    """Text of one kind that waits for more, so that it makes fewer events."""

    def __init__(self) -> None:
        self.kind = ""
        self._texts: list[str] = []
        self._size = 0
        self._due = 0.0

    def add(self, kind: str, text: str, now: float) -> bool:
        """Add a piece of the kind that waits, or of any; return whether it is time to take all.

        Times are in seconds, on a clock that only goes forward.
        """
        if not self._texts:
            self.kind = kind
            self._due = now + BUFFER_SECONDS
        self._texts.append(text)
        self._size += len(text)
        return self._size >= BUFFER_CHARACTERS or now >= self._due

    def wait(self, now: float) -> float | None:
        """Return in how many seconds it is time to take all; None if nothing waits."""
        return max(0.0, self._due - now) if self._texts else None

    def take(self) -> str:
        """Return all text, and forget it."""
        text = "".join(self._texts)
        self._texts.clear()
        self._size = 0
        return text


class ActiveRun:
    """A run while it works. The log has it already."""

    def __init__(self, run: SessionRun, log: SessionLog) -> None:
        self.run = run
        self.over = asyncio.Event()
        """Set once it has paused or ended."""
        self._log = log
        self._pieces = TextBuffer()
        self._agent: AgentProcess | None = None
        self._ending: RunEnding | None = None
        self._steers: dict[int, tuple[asyncio.Future[bool], str]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    async def drive(
        self, agent: AgentProcess, order: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Have the agent run it; return its message that it pauses, or None once the run has ended.

        The agent has to be dropped after `AgentGone`, when the run's end is logged, and after
        `LogFailed`, when nothing is.
        """
        self._agent = agent
        if self._ending is not None:
            self._end(self._ending, {})
            return None
        agent.send(order)
        try:
            return self._last(await self._listen(agent))
        except (AgentGone, KeyError, TypeError, AttributeError) as error:
            agent.kill()  # with its programs, before clients learn of the end
            self._end(self._ending or SEVERED, {})
            raise AgentGone from error
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for taken, _ in self._steers.values():
                taken.cancel()

    def cancel(self, ending: RunEnding) -> None:
        """End it, for the first ending that was given; `over` is set once that is done."""
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
        """Hand it an input; return whether the agent took it. If not, it will not take it later."""
        if self._agent is None or self._ending is not None or self.over.is_set():
            return False
        with self._log.writing() as write:
            number = write.input(self.run, text)
        taken: asyncio.Future[bool] = self._loop.create_future()
        self._steers[number] = taken, text
        until = self._loop.time() + STEER_SECONDS
        self._agent.send({"type": "steer", "until": until, "input": {"id": number, "text": text}})
        await asyncio.wait({taken}, timeout=STEER_SECONDS + _REPLY_SECONDS)
        if not taken.done() or taken.cancelled() or not taken.result():
            # The agent does not have it, and the client learns that.
            self._steers.pop(number, None)
            with self._log.writing() as write:
                write.entered([number])
            return False
        return True

    async def _listen(self, agent: AgentProcess) -> dict[str, Any]:
        """Log the agent's messages up to its last one, which is returned."""
        while True:
            try:
                async with asyncio.timeout(self._pieces.wait(self._loop.time())):
                    message = await agent.read()
            except TimeoutError:
                self._write_text()
                continue
            match message["type"]:
                case "text" | "reasoning" as kind:
                    self._take_text(kind, message["text"])
                case "tool":
                    self._begin_call(message)
                case "step":
                    with self._log.writing() as write:
                        self._step(write, message)
                case "steered":
                    self._steered(message["input"], taken=message["taken"])
                case _:
                    return message

    def _take_text(self, kind: str, text: str) -> None:
        if kind != self._pieces.kind:
            self._write_text()
        if text and self._pieces.add(kind, clean(text), self._loop.time()):
            self._write_text()

    def _write_text(self) -> None:
        if self._pieces.wait(0) is not None:
            with self._log.writing() as write:
                self._text(write)

    def _text(self, write: LogTransaction) -> None:
        kind = self._pieces.kind
        if text := self._pieces.take():
            write.event(self.run, kind, text=text)

    def _begin_call(self, message: Mapping[str, Any]) -> None:
        told = {name: clean(message[name]) for name in ("call", "tool", "title")}
        with self._log.writing() as write:
            self._text(write)
            write.call_begun(self.run, told["call"])
            write.event(self.run, "tool.started", **told)

    def _step(self, write: LogTransaction, message: Mapping[str, Any]) -> None:
        self._text(write)
        for ended in message["ended"]:
            call = clean(ended["call"])
            if write.call_ended(self.run, call):
                write.event(self.run, "tool.ended", call=call, outcome=clean(ended["outcome"]))
        write.messages(self.run.session, message["keep"], message["messages"])
        write.entered(message["entered"])
        self.run = replace(self.run, spent=dict(message["spent"]))

    def _steered(self, number: int, *, taken: bool) -> None:
        waiting = self._steers.pop(number, None)
        if waiting is None:
            return
        future, text = waiting
        if taken:
            with self._log.writing() as write:
                self._text(write)
                write.event(self.run, "steered", input=text)
        if not future.done():
            future.set_result(taken)

    def _last(self, message: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Log the end that the agent's last message tells; return the message of a pause."""
        outcome = message["outcome"] if message["type"] == "ended" else message["type"]
        ending = self._ending or SEVERED
        if outcome == "completed":
            ending = None
        elif self._ending is None and outcome == "paused":
            return message
        elif self._ending is None and outcome == "failed":
            error = message["error"]
            text, retryable = clean(error["message"]), error["retryable"]
            limit = {
                name: clean(error[name])
                for name in ("limit_source", "remedy_hint")
                if name in error
            }
            ending = RunEnding("failed", 502, "turn_failed", text, retryable, limit)
        self._end(ending, message)
        return None

    def pause(
        self, write: LogTransaction, message: Mapping[str, Any]
    ) -> dict[str, Mapping[str, Any]]:
        """Log the last step and the questions, to be asked later; return these by their ids."""
        self._step(write, message)
        write.questions_over(self.run)
        questions = {new_id(): body for body in message["questions"]}
        for position, (question, body) in enumerate(questions.items()):
            write.question(self.run, question, position, body)
        return questions

    def _end(self, ending: RunEnding | None, message: Mapping[str, Any]) -> None:
        with self._log.writing() as write:
            if message:
                self._step(write, message)
            else:
                self._text(write)
            end_run(write, self.run, ending)


def end_run(write: LogTransaction, run: SessionRun, ending: RunEnding | None) -> None:
    """Log the end of a run; `ending` says why it did not complete, None if it did."""
    for call in write.open_calls(run):
        write.call_ended(run, call)
        write.event(run, "tool.ended", call=call, outcome="interrupted")
    write.questions_over(run)
    write.run_state(run, "ended")
    outcome, told = "completed", dict[str, object]()
    if ending is not None:
        fields = ("code", "reason", "message", "retryable")
        error = {name: getattr(ending, name) for name in fields}
        outcome, told["error"] = ending.outcome, {**error, **ending.limit}
    write.event(run, "run.ended", outcome=outcome, usage=run.spent.get("usage"), **told)


def clean(text: str) -> str:
    """Return a text that can be encoded as UTF-8."""
    return text.encode(errors="replace").decode()

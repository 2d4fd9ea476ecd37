"""One conversation with an intern, through the gateway.

    conversation = Conversation(server, intern, session_id)
    outcome = await conversation.prompt("Build it", view=view, asker=asker)

    prompt ──▶ stream ──▶ [DONE]                                          Finished, or Failed
                  └─ a question ──▶ asker ──▶ answer ──▶ stream ──▶ ...   the same run goes on

Nothing is ever sent twice by itself: a prompt that was taken may have done its work, whatever
became of the reply. To cancel the task that waits here is to hang up, and that stops the run.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from tollhouse.cli.failures import BrokenOff, CommandFailed
from tollhouse.cli.interns.chat_questions import Question, cancelled
from tollhouse.cli.interns.chat_stream import Asked, ChatReader, Closing, Failure, Garbled
from tollhouse.cli.interns.lookup import path_of
from tollhouse.cli.json_objects import parsed
from tollhouse.cli.output import one_line
from tollhouse.cli.refusals import chat_advice
from tollhouse.sandbox.daemon.sessions.limits import MOST_INPUT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from tollhouse.cli.client import Server, Streamed
    from tollhouse.cli.interns.chat_stream import Event
    from tollhouse.cli.interns.chat_waiting import Waiting

_BEGIN_SECONDS: Final = 330.0
"""The server gives up after 300, and says so."""
_SILENT_SECONDS: Final = 90.0
"""The server writes something every 30."""
_LEAVE_SECONDS: Final = 5.0
_NEXT_SECONDS: Final = 1.0
"""A question that was asked together with another follows the answer to that one at once."""
_MOST_LEFT: Final = 50
"""Questions of one run: more are no run's."""
_STEERED: Final = 202
_LARGEST_STEERED: Final = 65_536


class Interrupted(Exception):
    """A person has left a question with Ctrl-C."""


class View(Protocol):
    """Shows what happens."""

    async def show(self, event: Event) -> None:
        """Show it at once."""
        ...


class Asker(Protocol):
    """Finds answers."""

    async def answer(self, question: Question, complaint: str | None) -> str | None:
        """Return the answer; None to leave the question open, which ends the turn here.

        Args:
            question: What is asked.
            complaint: Why the server refused the last answer, where it did.

        Raises:
            Interrupted: The run is to be stopped.
        """
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """The run came to its end."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The run failed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Steered:
    """The prompt was handed into a run that another request shows."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The run waits for an answer."""

    question: Question


Outcome = Finished | Failed | Steered | Paused


class Conversation:
    """A session with an intern."""

    def __init__(
        self, server: Server, intern: dict[str, Any], session_id: str, waiting: Waiting
    ) -> None:
        """Begin or continue a session; the first prompt makes one that is not there.

        Args:
            server: The gateway.
            intern: As the gateway told it.
            session_id: 1 to 256 characters.
            waiting: For an intern that is at work for somebody else.
        """
        self._server = server
        self._waiting = waiting
        self._leaving: set[asyncio.Task[None]] = set()
        self._path = f"{path_of(intern)}/chat/completions"
        self.session_id = session_id

    async def prompt(self, text: str, *, manual: bool, view: View, asker: Asker) -> Outcome:
        """Have the intern do something.

        Args:
            text: 1 to 32,000 characters.
            manual: Whether its tools ask first.
            view: Is shown what happens.
            asker: Is asked what the intern asks.

        Raises:
            CommandFailed: The prompt cannot be sent, the server refused, could not be reached, or
                the reply broke off.
            Interrupted: As `asker` raised it.
        """
        _require_usable(text)
        mode = "manual" if manual else "self-drive"
        message = {"role": "user", "content": text}
        outcome = await self._exchange([message], view, approval_mode=mode)
        return await self._until_answered(outcome, view, asker)

    async def resume(
        self, question: Question, content: str, *, view: View, asker: Asker
    ) -> Outcome:
        """Answer a question that was left open; otherwise as `prompt`."""
        outcome = await self._exchange(question.answered(content), view)
        return await self._until_answered(outcome, view, asker)

    async def left(self) -> None:
        """Wait until the runs are stopped that were left at a question."""
        await asyncio.gather(*self._leaving)

    async def _until_answered(self, outcome: Outcome, view: View, asker: Asker) -> Outcome:
        while isinstance(outcome, Paused):
            answered = await self._answer(outcome.question, view, asker)
            if answered is None:
                break
            outcome = answered
        return outcome

    async def _answer(self, question: Question, view: View, asker: Asker) -> Outcome | None:
        """Answer a question, twice where the first answer is refused; None to leave it open."""
        complaint: str | None = None
        while True:
            try:
                content = await asker.answer(question, complaint)
            except (Interrupted, asyncio.CancelledError):
                leaving = asyncio.ensure_future(self._leave(question))
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)
                await asyncio.shield(leaving)
                raise
            if content is None:
                return None
            try:
                return await self._exchange(question.answered(content), view)
            except CommandFailed as refused:
                if refused.reason != "bad_request" or complaint is not None:
                    raise
                complaint = str(refused)

    async def _leave(self, question: Question) -> None:
        """Stop a run that waits: it goes on with a stream, and to hang up on that one stops it.

        One that has more to ask waits again instead, and is left again.
        """
        asked: Question | None = question
        with suppress(CommandFailed, Garbled, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                for _ in range(_MOST_LEFT):
                    if asked is None:
                        return
                    asked = await self._leave_once(asked)

    async def _leave_once(self, question: Question) -> Question | None:
        """Cancel at a question, and hang up; return the next one, where that is asked at once."""
        reader = ChatReader()
        async with self._streamed(self._body(question.answered(cancelled(question)))) as reply:
            with suppress(TimeoutError):
                async with asyncio.timeout(_NEXT_SECONDS):
                    async for piece in reply.pieces:
                        for event in reader.feed(piece):
                            return event.question if isinstance(event, Asked) else None
        return None

    async def _exchange(
        self, messages: list[dict[str, Any]], view: View, **further: str
    ) -> Outcome:
        """Send a request and show what comes of it; again, only where it was refused as busy."""
        waited = 0.0
        while True:
            try:
                return await self._once(self._body(messages, **further), view)
            except CommandFailed as refused:
                seconds = self._waiting.seconds(refused, waited)
            await asyncio.sleep(seconds)
            waited += seconds

    async def _once(self, body: dict[str, Any], view: View) -> Outcome:
        reader = ChatReader()
        outcome: Outcome = Finished()
        try:
            async with self._streamed(body) as reply:
                if reply.status == _STEERED:
                    await self._steered(reply.pieces)
                    return Steered()
                _require_stream(reply)
                async for piece in reply.pieces:
                    for event in reader.feed(piece):
                        outcome = self._after(event, outcome)
                        await view.show(event)
                    if reader.ended:
                        break
        except Garbled as error:
            message = f"the server sent what is no chat of an intern ({one_line(str(error))})"
            raise CommandFailed(message) from None
        except BrokenOff as error:
            raise _cut(str(error)) from None
        if not reader.ended:
            raise _cut("the reply ended in the middle")
        return outcome

    def _after(self, event: Event, outcome: Outcome) -> Outcome:
        match event:
            case Asked(question):
                return Paused(question)
            case Failure():
                return Failed(event)
            case Closing(session_id, _) if session_id:
                self.session_id = session_id
            case _:
                pass
        return outcome

    async def _steered(self, pieces: AsyncIterator[bytes]) -> None:
        body = b""
        async for piece in pieces:
            body = (body + piece)[:_LARGEST_STEERED]
        said = parsed(body).get("session_id")
        if isinstance(said, str):
            self.session_id = said

    def _body(self, messages: list[dict[str, Any]], **further: str) -> dict[str, Any]:
        return {"stream": True, "session_id": self.session_id, "messages": messages, **further}

    def _streamed(self, body: dict[str, Any]) -> AbstractAsyncContextManager[Streamed]:
        return self._server.streamed(
            self._path, body, begin_seconds=_BEGIN_SECONDS, silent_seconds=_SILENT_SECONDS
        )


def _require_usable(prompt: str) -> None:
    if not prompt.strip():
        message = "the prompt is empty: nothing was sent"
        raise CommandFailed(message)
    if len(prompt) > MOST_INPUT:
        message = (
            f"a prompt has at most {MOST_INPUT} characters: send the rest as a file, with "
            "`tollhouse intern files put`"
        )
        raise CommandFailed(message)
    try:
        prompt.encode()
    except UnicodeEncodeError:
        message = "the prompt holds bytes that are no UTF-8 text"
        raise CommandFailed(message) from None


def failure_text(failure: Failure) -> str:
    """Return a failed run in one line: what was said, and what to do."""
    said = one_line(failure.message) or "the run failed"
    said = said if said.endswith((".", "!", "?")) else f"{said}."
    advice = chat_advice(failure.reason)
    if not advice and failure.retryable:
        advice = "The same may work later."
    return f"{said} {advice}".rstrip()


def _require_stream(reply: Streamed) -> None:
    if reply.content_type != "text/event-stream":
        kind = one_line(reply.content_type) or "nothing that has a type"
        message = f"the server answered with {kind} and not with a stream: check the address"
        raise CommandFailed(message)


def _cut(what: str) -> CommandFailed:
    text = (
        f"{what}. The run was stopped, or will be; what it did stays. Nothing was sent again: the "
        "next prompt of this session goes on"
    )
    return CommandFailed(text, passes=True)

"""One chat with an intern, through the gateway.

    chat = InternChat(server, intern, session_id, retry)
    outcome = await chat.prompt("Build it", manual=False, view=view, handler=handler)

    prompt ──▶ stream ──▶ [DONE]                                      RunEnd, or an RunErrorEvent
                  └─ a question ──▶ handler ──▶ answer ──▶ stream ──▶ ...   the same run goes on

Nothing is ever sent twice by itself: a prompt that was taken may have done its work, whatever
became of the reply. To cancel the task that waits here is to hang up, and that stops the run.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from tollhouse.cli.client import Server, StreamedReply
from tollhouse.cli.errors import CommandFailed, ReplyTruncated, chat_advice
from tollhouse.cli.interns.chat_stream import (
    ChatEvent,
    ChatQuestion,
    ClosingEvent,
    InternChatDecoder,
    InvalidStream,
    RunErrorEvent,
)
from tollhouse.cli.references import intern_path
from tollhouse.cli.values import is_unicode, one_line, parse_object
from tollhouse.sandbox.daemon.settings import MOST_INPUT

HANG_UP_SECONDS: Final = 35.0
"""Within these a server notices that a client has hung up, and the run is stopped."""
_BUSY: Final = frozenset({"busy", "rate_limited"})
_RETRY_SECONDS: Final = 5.0
"""Until the next attempt, where the server says nothing about it."""
_SHORTEST_SECONDS: Final = 0.1
_BEGIN_SECONDS: Final = 330.0
"""The server gives up after 300, and says so."""
_SILENT_SECONDS: Final = 90.0
"""The server writes something every 30."""
_CANCEL_SECONDS: Final = 5.0
_NEXT_SECONDS: Final = 1.0
"""A question that was asked together with another follows the answer to that one at once."""
_MOST_QUESTIONS: Final = 50
"""Of one run that is cancelled."""
_STEERED: Final = 202
_LARGEST_STEERED: Final = 65_536


class UserInterrupted(Exception):
    """A person has left a question with Ctrl-C."""


class ChatView(Protocol):
    """Shows what happens."""

    async def show(self, event: ChatEvent) -> None:
        """Show it at once."""
        ...


class QuestionHandler(Protocol):
    """Answers what an intern asks."""

    async def answer(self, question: ChatQuestion, complaint: str | None) -> str | None:
        """Return the answer; None to leave the question open, which ends the turn here.

        The complaint is why the server refused the last answer. UserInterrupted stops the run.
        """
        ...


class RunEnd(Enum):
    """How a turn ended that neither failed nor waits for an answer."""

    FINISHED = auto()
    STEERED = auto()
    """The prompt was handed into a run that another request shows."""


RunOutcome = RunEnd | RunErrorEvent | ChatQuestion
"""A question where the run waits for an answer."""


def discard(_text: str) -> None:
    """Show nobody a line."""


@dataclass(frozen=True, slots=True)
class BusyRetry:
    """Decides how long to wait for an intern that is busy with another client's run.

    It is refused before anything was begun, so the same request may be sent again.
    """

    limit_seconds: float = 0.0
    """Of waiting for one request, at most."""
    say: Callable[[str], None] = discard
    """Shows people a line."""
    hint: str = ""
    """What else to do when the limit is reached."""

    def seconds(self, refused: CommandFailed, waited_seconds: float) -> float:
        """Return how long to wait until the same is sent again, or raise a refusal that stands."""
        if refused.reason not in _BUSY:
            raise refused
        told = refused.retry_after_seconds
        seconds = max(_RETRY_SECONDS if told is None else told, _SHORTEST_SECONDS)
        if waited_seconds + seconds > self.limit_seconds:
            raise CommandFailed(
                f"{refused} {self.hint}".rstrip(),
                retryable=True,
                status=refused.status,
                reason=refused.reason,
                retry_after_seconds=told,
            )
        self.say(f"It is busy; trying again in {seconds:.0f} s.")
        return seconds


class InternChat:
    """A session with an intern, as the gateway told it; the first prompt makes a new one.

    Its id has 1 to 256 characters. `retry` is for an intern that is at work for another client.
    """

    def __init__(
        self, server: Server, intern: dict[str, Any], session_id: str, retry: BusyRetry
    ) -> None:
        self._server = server
        self._retry = retry
        self._cancelling: set[asyncio.Task[None]] = set()
        self._path = f"{intern_path(intern)}/chat/completions"
        self.session_id = session_id

    async def prompt(
        self, text: str, *, manual: bool, view: ChatView, handler: QuestionHandler
    ) -> RunOutcome:
        """Have the intern do something; 1 to 32,000 characters say what.

        CommandFailed where the prompt cannot be sent, the server refused or could not be reached,
        or the reply broke off; UserInterrupted as the handler raised it.
        """
        _require_usable(text)
        mode = "manual" if manual else "self-drive"
        message = {"role": "user", "content": text}
        outcome = await self._send([message], view, approval_mode=mode)
        return await self._until_answered(outcome, view, handler)

    async def resume(
        self, question: ChatQuestion, content: str, *, view: ChatView, handler: QuestionHandler
    ) -> RunOutcome:
        """Answer a question that was left open; otherwise as `prompt`."""
        outcome = await self._send(question.answered(content), view)
        return await self._until_answered(outcome, view, handler)

    async def wait_cancelled(self) -> None:
        """Wait until the runs are stopped that were left at a question."""
        await asyncio.gather(*self._cancelling)

    async def _until_answered(
        self, outcome: RunOutcome, view: ChatView, handler: QuestionHandler
    ) -> RunOutcome:
        while isinstance(outcome, ChatQuestion):
            answered = await self._answer(outcome, view, handler)
            if answered is None:
                break
            outcome = answered
        return outcome

    async def _answer(
        self, question: ChatQuestion, view: ChatView, handler: QuestionHandler
    ) -> RunOutcome | None:
        """Answer a question, twice where the first answer is refused; None to leave it open."""
        complaint: str | None = None
        while True:
            try:
                content = await handler.answer(question, complaint)
            except (UserInterrupted, asyncio.CancelledError):
                cancelling = asyncio.ensure_future(self._cancel_run(question))
                self._cancelling.add(cancelling)
                cancelling.add_done_callback(self._cancelling.discard)
                await asyncio.shield(cancelling)
                raise
            if content is None:
                return None
            try:
                return await self._send(question.answered(content), view)
            except CommandFailed as refused:
                if refused.reason != "bad_request" or complaint is not None:
                    raise
                complaint = str(refused)

    async def _cancel_run(self, question: ChatQuestion) -> None:
        """Stop a run that waits: it goes on with a stream, and to hang up on that one stops it.

        One that has more to ask waits again instead, and is cancelled again.
        """
        asked: ChatQuestion | None = question
        with suppress(CommandFailed, InvalidStream, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                for _ in range(_MOST_QUESTIONS):
                    if asked is None:
                        return
                    asked = await self._cancel_at(asked)

    async def _cancel_at(self, question: ChatQuestion) -> ChatQuestion | None:
        """Cancel at a question, and hang up; return the next one, where that is asked at once."""
        decoder = InternChatDecoder()
        async with self._streamed(question.answered(question.asks.cancel())) as reply:
            with suppress(TimeoutError):
                async with asyncio.timeout(_NEXT_SECONDS):
                    async for piece in reply.pieces:
                        for event in decoder.feed(piece):
                            return event if isinstance(event, ChatQuestion) else None
        return None

    async def _send(
        self, messages: list[dict[str, Any]], view: ChatView, **further: str
    ) -> RunOutcome:
        """Send a request and show what comes of it; again, only where it was refused as busy."""
        waited = 0.0
        while True:
            try:
                return await self._send_once(messages, view, **further)
            except CommandFailed as refused:
                seconds = self._retry.seconds(refused, waited)
            await asyncio.sleep(seconds)
            waited += seconds

    async def _send_once(
        self, messages: list[dict[str, Any]], view: ChatView, **further: str
    ) -> RunOutcome:
        decoder = InternChatDecoder()
        outcome: RunOutcome = RunEnd.FINISHED
        try:
            async with self._streamed(messages, **further) as reply:
                if reply.status == _STEERED:
                    await self._read_steered(reply.pieces)
                    return RunEnd.STEERED
                _require_stream(reply)
                async for piece in reply.pieces:
                    for event in decoder.feed(piece):
                        if isinstance(event, ChatQuestion | RunErrorEvent):
                            outcome = event
                        elif isinstance(event, ClosingEvent) and event.session_id:
                            self.session_id = event.session_id
                        await view.show(event)
                    if decoder.ended:
                        break
        except InvalidStream as error:
            raise CommandFailed(
                f"the server sent what is no chat of an intern ({one_line(str(error))})"
            ) from None
        except ReplyTruncated as error:
            raise _cut(str(error)) from None
        if not decoder.ended:
            raise _cut("the reply ended in the middle")
        return outcome

    async def _read_steered(self, pieces: AsyncIterator[bytes]) -> None:
        body = b""
        async for piece in pieces:
            body = (body + piece)[:_LARGEST_STEERED]
        session_id = parse_object(body).get("session_id")
        if isinstance(session_id, str):
            self.session_id = session_id

    def _streamed(
        self, messages: list[dict[str, Any]], **further: str
    ) -> AbstractAsyncContextManager[StreamedReply]:
        body = {"stream": True, "session_id": self.session_id, "messages": messages, **further}
        return self._server.stream(
            self._path, body, begin_seconds=_BEGIN_SECONDS, silent_seconds=_SILENT_SECONDS
        )


def _require_usable(prompt: str) -> None:
    if not prompt.strip():
        raise CommandFailed("the prompt is empty: nothing was sent")
    if len(prompt) > MOST_INPUT:
        raise CommandFailed(
            f"a prompt has at most {MOST_INPUT} characters: send the rest as a file, with "
            "`tollhouse intern files put`"
        )
    if not is_unicode(prompt):
        raise CommandFailed("the prompt holds bytes that are no UTF-8 text")


def failure_text(failure: RunErrorEvent) -> str:
    """Return a failed run in one line: what was said, and what to do."""
    said = one_line(failure.message) or "the run failed"
    said = said if said.endswith((".", "!", "?")) else f"{said}."
    advice = chat_advice(failure.reason) or one_line(failure.remedy_hint or "")
    if not advice and failure.retryable:
        advice = "The same may work later."
    return f"{said} {advice}".rstrip()


def _require_stream(reply: StreamedReply) -> None:
    if reply.content_type != "text/event-stream":
        kind = one_line(reply.content_type) or "nothing that has a type"
        raise CommandFailed(
            f"the server answered with {kind} and not with a stream: check the address"
        )


def _cut(what: str) -> CommandFailed:
    return CommandFailed(
        f"{what}. The run was stopped, or will be; what it did stays. Nothing was sent again: the "
        "next prompt of this session goes on",
        retryable=True,
    )

"""Who may talk to which intern, and what becomes of it.

    converse ──> intern (404) ──> rate (429) ──> state (409) ──> its daemon here? (502) ──> asked

The spend of a chat is that of the intern's own key, which its agent calls models with: nothing is
charged here.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from tollhouse.identity.types import KeyKind, Subject
from tollhouse.interns import policy
from tollhouse.interns.chat import daemon_client
from tollhouse.interns.chat.daemon_client import (
    DaemonEndpoint,
    DaemonUnreachable,
    InvalidDaemonResponse,
    open_response,
    put_file,
)
from tollhouse.interns.chat.errors import (
    BAD_REQUEST,
    CLIENT_CLOSED,
    REJECTED,
    SEVERED,
    TIMED_OUT,
    TURN_FAILED,
    UNREACHABLE,
    ChatFailed,
    fault_of_refusal,
    retry_seconds,
)
from tollhouse.interns.chat.following import FollowedRun
from tollhouse.interns.chat.request import ChatAnswer, ChatPrompt
from tollhouse.interns.chat.transcript import ChatTimeouts, Transcript, one_line, relay
from tollhouse.interns.types import Operation
from tollhouse.kernel.clock import Now, unix_seconds
from tollhouse.kernel.errors import (
    Conflict,
    Forbidden,
    RateLimited,
    RateWindow,
    TollhouseError,
    Unavailable,
)
from tollhouse.kernel.sliding_window import SlidingMinute

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from tollhouse.interns.chat.daemon_client import DaemonResponse
    from tollhouse.interns.chat.transcript import Write
    from tollhouse.interns.context import InternContext
    from tollhouse.interns.sandboxes import Sandboxes
    from tollhouse.interns.service import InternService
    from tollhouse.interns.types import Intern
    from tollhouse.observability.metrics import Metrics

_MOST_IDLE: Final = 1_000
"""Accounts that are remembered before those are forgotten that have been quiet for a minute."""


class ChatRateLimiter:
    """The chats of the last minute, account by account."""

    def __init__(self, per_minute: int) -> None:
        self._most = per_minute
        self._minutes: dict[str, SlidingMinute] = {}

    def take(self, account_id: str, now: Now) -> None:
        """Count a chat; raises `RateLimited` where the account has begun too many."""
        minute = self._minutes.get(account_id)
        if minute is None:
            self._forget(now)
            minute = self._minutes[account_id] = SlidingMinute()
        wait = minute.wait(self._most, now.monotonic)
        if not wait:
            minute.take(now.monotonic)
            return
        window = RateWindow(self._most, 0, now.at + timedelta(seconds=wait))
        message = f"Interns may be talked to {self._most} times a minute; wait a moment."
        raise RateLimited(message, window=window, retry_after=retry_seconds(wait))

    def _forget(self, now: Now) -> None:
        if len(self._minutes) >= _MOST_IDLE:
            idle = [name for name, each in self._minutes.items() if each.idle(now.monotonic)]
            for name in idle:
                del self._minutes[name]


_TIMEOUTS: Final = ChatTimeouts()
_OK: Final = 200
_ACCEPTED: Final = 202
_STORED: Final = (200, 201)
_OWN_WORDS: Final = frozenset({BAD_REQUEST.reason, TURN_FAILED.reason})
"""Reasons of which an intern may say more in its own words."""
_log = structlog.get_logger(__name__)


class SteeredChat(NamedTuple):
    """A message that was handed into the run that works."""

    session: str


@dataclass(frozen=True, slots=True)
class InternChatStream:
    """A stream that is about to begin."""

    reply: DaemonResponse
    transcript: Transcript
    timeouts: ChatTimeouts
    metrics: Metrics

    async def run(self, write: Write) -> None:
        """Write the stream to its end, which is legal even where we have a fault.

        Raises `TimeoutError` where the caller does not read.
        """
        with self.metrics.intern_streams.track_inprogress():
            try:
                await relay(self.reply, self.transcript, write, self.timeouts)
            except TimeoutError:
                raise
            except Exception:  # noqa: BLE001 - the edge of the stream
                _log.exception("intern_chat_fault")
                async with asyncio.timeout(self.timeouts.farewell):
                    await write(self.transcript.fail(SEVERED))
            finally:
                outcome = self.transcript.outcome or CLIENT_CLOSED.reason
                self.metrics.count_chat(outcome)

    def leave(self) -> None:
        """Note that the caller has left: nothing is written any more."""
        self.transcript.fail(CLIENT_CLOSED)


@dataclass(frozen=True, slots=True)
class ChatService:
    """Chats with the interns that run here."""

    context: InternContext
    interns: InternService
    sandboxes: Sandboxes | None
    """None in a command that runs no interns."""
    rate_limiter: ChatRateLimiter
    metrics: Metrics
    timeouts: ChatTimeouts = _TIMEOUTS

    async def admit(self, caller: Subject, intern_id: str) -> None:
        """Make sure that a caller may ask for this at all, before its body is looked at.

        Raises:
            Unauthenticated: Its key is none for interns.
            NotFound: Its workspace is not in the programme, or its key is another intern's own.
            Forbidden: Its key is this intern's own, which would wait for itself.
        """
        await self.interns.admit(caller, intern_id)
        if caller.kind is KeyKind.INTERN:
            raise Forbidden("An intern cannot talk to itself: use a key of its workspace.")

    @asynccontextmanager
    async def converse(
        self, caller: Subject, intern_id: str, wanted: ChatPrompt | ChatAnswer
    ) -> AsyncGenerator[SteeredChat | InternChatStream]:
        """Ask an intern, and yield what follows; leaving the block ends a run that works.

        Raises:
            NotFound: There is no such intern in the caller's workspace.
            RateLimited: The account has begun too many chats.
            InternBusy: It does not run.
            ChatFailed: Its daemon cannot be reached, or refuses.
        """
        intern = await self.begin(caller, intern_id)
        async with self._asked(intern, wanted) as (session, reply):
            if reply is None:
                yield SteeredChat(session)
                return
            completion, now = f"chatcmpl-{self.context.ids.uuid()}", self.context.clock.now()
            known = wanted.session is not None
            transcript = Transcript(completion, unix_seconds(now), session, known=known)
            yield InternChatStream(reply, transcript, self.timeouts, self.metrics)

    async def begin(self, caller: Subject, intern_id: str) -> Intern:
        """Return an intern that a caller may talk to now, which counts as a chat.

        Raises `NotFound`, `RateLimited` and `InternBusy` as `converse` does.
        """
        with self._counting():
            async with self.context.database.reading() as read:
                intern = await self.interns.intern(read, caller, intern_id)
            self.rate_limiter.take(caller.account_id, Now.by(self.context.clock))
            policy.check_state(Operation.CHAT, intern)
        return intern

    async def begin_unattended(self, intern_id: str) -> Intern:
        """Do what `begin` does for somebody without a key, whom a chat service lets talk to it."""
        with self._counting():
            intern = await self.interns.found(intern_id)
            self.rate_limiter.take(intern.account_id, Now.by(self.context.clock))
            policy.check_state(Operation.CHAT, intern)
        return intern

    async def put_file(self, intern: Intern, path: str, content: bytes) -> None:
        """Write a file into an intern's workspace; raises `ChatFailed`."""
        daemon = await self._daemon(intern)
        try:
            async with asyncio.timeout(self.timeouts.head):
                status = await put_file(daemon, path, content)
        except TimeoutError:
            raise ChatFailed(TIMED_OUT) from None
        except (DaemonUnreachable, InvalidDaemonResponse):
            raise ChatFailed(UNREACHABLE) from None
        if status not in _STORED:
            raise ChatFailed(fault_of_refusal(status, None))

    @asynccontextmanager
    async def follow(
        self, intern: Intern, wanted: ChatPrompt | ChatAnswer
    ) -> AsyncGenerator[SteeredChat | FollowedRun]:
        """Do what `converse` does, for somebody in this process."""
        async with self._asked(intern, wanted) as (session, reply):
            yield (
                SteeredChat(session) if reply is None else FollowedRun(session, reply, self.metrics)
            )

    @asynccontextmanager
    async def _asked(
        self, intern: Intern, wanted: ChatPrompt | ChatAnswer
    ) -> AsyncGenerator[tuple[str, DaemonResponse | None]]:
        """Ask an intern; yield the session, and the stream unless the prompt only steered."""
        async with AsyncExitStack() as stack:
            with self._counting():
                session = wanted.session or self.context.ids.uuid()
                daemon = await self._daemon(intern)
                reply = await self._ask(stack, daemon, wanted, session, intern.id)
                is_prompt = not isinstance(wanted, ChatAnswer) and wanted.session is not None
                is_steered = reply.status == _ACCEPTED and is_prompt
                if not is_steered and (reply.status != _OK or not reply.is_stream):
                    raise await self._refusal(reply, wanted, intern.id)
            if is_steered:
                self.metrics.count_chat("steered")
            yield session, None if is_steered else reply

    @contextmanager
    def _counting(self) -> Generator[None]:
        """Count a chat that does not begin by why it does not."""
        try:
            yield
        except TollhouseError as error:
            self.metrics.count_chat(_outcome(error))
            raise

    async def _daemon(self, intern: Intern) -> DaemonEndpoint:
        path = self.sandboxes and self.sandboxes.socket_of(intern.id)
        if path is None:
            raise ChatFailed(UNREACHABLE)  # it runs on another machine, or ends in this moment
        try:
            return DaemonEndpoint(path, await self.interns.token_of(intern))
        except (Conflict, Unavailable):
            raise ChatFailed(UNREACHABLE) from None

    async def _ask(
        self,
        stack: AsyncExitStack,
        daemon: DaemonEndpoint,
        wanted: ChatPrompt | ChatAnswer,
        session: str,
        intern_id: str,
    ) -> DaemonResponse:
        try:
            async with asyncio.timeout(self.timeouts.head):
                return await stack.enter_async_context(open_response(daemon, wanted, session))
        except TimeoutError:
            raise ChatFailed(TIMED_OUT) from None
        except DaemonUnreachable:
            raise ChatFailed(UNREACHABLE) from None
        except InvalidDaemonResponse:
            _log.warning("intern_answered_nonsense", intern=intern_id)
            raise ChatFailed(REJECTED) from None

    async def _refusal(
        self, reply: DaemonResponse, wanted: ChatPrompt | ChatAnswer, intern_id: str
    ) -> ChatFailed:
        """Return what an answer that is neither a stream nor a steering means."""
        try:
            async with asyncio.timeout(self.timeouts.farewell):
                said = daemon_client.parse_error(await reply.whole())
        except (InvalidDaemonResponse, TimeoutError):
            said = daemon_client.parse_error(b"")
        fault = fault_of_refusal(
            reply.status,
            said.reason,
            retryable=said.retryable,
            answering=isinstance(wanted, ChatAnswer),
        )
        if fault.reason == REJECTED.reason:
            _log.warning("intern_rejected", intern=intern_id, status=reply.status)
        told = one_line(said.message) if said.message and fault.reason in _OWN_WORDS else None
        return ChatFailed(fault, told)


def _outcome(error: TollhouseError) -> str:
    """Return what a chat that never began is counted as."""
    if isinstance(error, RateLimited):
        return "rate_limited"
    reason = error.metadata.get("reason", error.code)
    return str(reason)

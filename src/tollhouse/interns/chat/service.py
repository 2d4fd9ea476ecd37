"""Who may talk to which intern, and what becomes of it.

    converse ──> intern (404) ──> pace (429) ──> state (409) ──> its daemon here? (502) ──> asked

The spend of a chat is that of the intern's own key, which its agent calls models with: nothing is
charged here.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from tollhouse.identity.types import KeyKind
from tollhouse.interns import policy
from tollhouse.interns.chat import daemon_client
from tollhouse.interns.chat.daemon_client import Line, Nonsense, Unreachable, asking
from tollhouse.interns.chat.errors import (
    BAD_REQUEST,
    CLIENT_CLOSED,
    REJECTED,
    SEVERED,
    TIMED_OUT,
    TURN_FAILED,
    UNREACHABLE,
    ChatFailed,
    refused,
)
from tollhouse.interns.chat.grammar import Transcript, one_line
from tollhouse.interns.chat.relay import Paces, relay
from tollhouse.interns.chat.request import Answer
from tollhouse.interns.types import Operation
from tollhouse.kernel.clock import Now, unix_seconds
from tollhouse.kernel.errors import Conflict, Forbidden, RateLimited, TollhouseError, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tollhouse.identity.types import Subject
    from tollhouse.interns.chat.daemon_client import Reply
    from tollhouse.interns.chat.pace import ChatPace
    from tollhouse.interns.chat.relay import Write
    from tollhouse.interns.chat.request import Prompt
    from tollhouse.interns.context import Context
    from tollhouse.interns.ports import Rooms
    from tollhouse.interns.service import InternService
    from tollhouse.observability.metrics import Metrics

_OK: Final = 200
_ACCEPTED: Final = 202
_PACES: Final = Paces()
_TELLING: Final = frozenset({BAD_REQUEST.reason, TURN_FAILED.reason})
"""Reasons of which an intern may say more in its own words."""
_log = structlog.get_logger(__name__)


class Steered(NamedTuple):
    """A message that was handed into the run that works."""

    session: str


class Conversation:
    """A stream that is about to begin."""

    def __init__(
        self, reply: Reply, transcript: Transcript, paces: Paces, metrics: Metrics
    ) -> None:
        """Take both ends, and where it is counted."""
        self._reply = reply
        self._transcript = transcript
        self._paces = paces
        self._metrics = metrics

    async def run(self, write: Write) -> None:
        """Write the stream to its end, which is legal even where we have a fault.

        Raises:
            TimeoutError: The caller does not read.
        """
        with self._metrics.intern_streams.track_inprogress():
            try:
                await relay(self._reply, self._transcript, write, self._paces)
            except TimeoutError:
                raise
            except Exception:  # noqa: BLE001 - the edge of the stream
                _log.exception("intern_chat_fault")
                async with asyncio.timeout(self._paces.farewell):
                    await write(self._transcript.fail(SEVERED))
            finally:
                outcome = self._transcript.outcome or CLIENT_CLOSED.reason
                self._metrics.chatted(outcome)

    def leave(self) -> None:
        """Note that the caller has left: nothing is written any more."""
        self._transcript.fail(CLIENT_CLOSED)


class ChatService:
    """Chats with the interns that run here."""

    def __init__(  # noqa: PLR0913, PLR0917 - the composition root builds it once
        self,
        context: Context,
        interns: InternService,
        rooms: Rooms,
        pace: ChatPace,
        metrics: Metrics,
        paces: Paces = _PACES,
    ) -> None:
        """Take what the use cases need.

        Args:
            context: The slice's own.
            interns: Who may see which, and their tokens.
            rooms: Where daemons listen.
            pace: How often an account may begin.
            metrics: Where chats are counted.
            paces: How long things may take.
        """
        self._context = context
        self._interns = interns
        self._rooms = rooms
        self._pace = pace
        self._metrics = metrics
        self._paces = paces

    async def admit(self, caller: Subject, intern_id: str) -> None:
        """Make sure that a caller may ask for this at all, before its body is looked at.

        Raises:
            Unauthenticated: Its key is none for interns.
            NotFound: Its workspace is not in the programme, or its key is another intern's own.
            Forbidden: Its key is this intern's own, which would wait for itself.
        """
        await self._interns.admit(caller, intern_id)
        if caller.kind is KeyKind.INTERN:
            message = "An intern cannot talk to itself: use a key of its workspace."
            raise Forbidden(message)

    @asynccontextmanager
    async def converse(
        self, caller: Subject, intern_id: str, wanted: Prompt | Answer
    ) -> AsyncGenerator[Steered | Conversation]:
        """Ask an intern, and yield what follows; leaving the block ends a run that works.

        Raises:
            NotFound: There is no such intern in the caller's workspace.
            RateLimited: The account has begun too many chats.
            InternBusy: It does not run.
            ChatFailed: Its daemon cannot be reached, or refuses.
        """
        async with AsyncExitStack() as stack:
            try:
                found = await self._begin(stack, caller, intern_id, wanted)
            except TollhouseError as error:
                self._metrics.chatted(_outcome(error))
                raise
            yield found

    async def _begin(
        self, stack: AsyncExitStack, caller: Subject, intern_id: str, wanted: Prompt | Answer
    ) -> Steered | Conversation:
        line = await self._line(caller, intern_id)
        session = wanted.session or self._context.ids.uuid()
        reply = await self._ask(stack, line, wanted, session, intern_id)
        if reply.status == _ACCEPTED and not isinstance(wanted, Answer) and wanted.session:
            self._metrics.chatted("steered")
            return Steered(session)
        if reply.status != _OK or not reply.is_stream:
            raise await self._refusal(reply, wanted, intern_id)
        completion, now = f"chatcmpl-{self._context.ids.uuid()}", self._context.clock.now()
        known = wanted.session is not None
        transcript = Transcript(completion, unix_seconds(now), session, known=known)
        return Conversation(reply, transcript, self._paces, self._metrics)

    async def _line(self, caller: Subject, intern_id: str) -> Line:
        async with self._context.database.reading() as read:
            intern = await self._interns.intern(read, caller, intern_id)
        self._pace.take(caller.account_id, Now.by(self._context.clock))
        policy.check_state(Operation.CHAT, intern)
        path = self._rooms.socket_of(intern.id)
        if path is None:
            raise ChatFailed(UNREACHABLE)  # it runs on another machine, or ends in this moment
        try:
            return Line(path, await self._interns.token_of(intern))
        except (Conflict, Unavailable):
            raise ChatFailed(UNREACHABLE) from None

    async def _ask(
        self,
        stack: AsyncExitStack,
        line: Line,
        wanted: Prompt | Answer,
        session: str,
        intern_id: str,
    ) -> Reply:
        try:
            async with asyncio.timeout(self._paces.head):
                return await stack.enter_async_context(asking(line, wanted, session))
        except TimeoutError:
            raise ChatFailed(TIMED_OUT) from None
        except Unreachable:
            raise ChatFailed(UNREACHABLE) from None
        except Nonsense:
            _log.warning("intern_answered_nonsense", intern=intern_id)
            raise ChatFailed(REJECTED) from None

    async def _refusal(self, reply: Reply, wanted: Prompt | Answer, intern_id: str) -> ChatFailed:
        """Return what an answer that is neither a stream nor a steering means."""
        try:
            async with asyncio.timeout(self._paces.farewell):
                said = daemon_client.refusal(await reply.whole())
        except (Nonsense, TimeoutError):
            said = daemon_client.refusal(b"")
        fault = refused(
            reply.status,
            said.reason,
            retryable=said.retryable,
            answering=isinstance(wanted, Answer),
        )
        if fault.reason == REJECTED.reason:
            _log.warning("intern_rejected", intern=intern_id, status=reply.status)
        told = one_line(said.message) if said.message and fault.reason in _TELLING else None
        return ChatFailed(fault, told)


def _outcome(error: TollhouseError) -> str:
    """Return what a chat that never began is counted as."""
    if isinstance(error, RateLimited):
        return "rate_limited"
    reason = error.metadata.get("reason", error.code)
    return str(reason)

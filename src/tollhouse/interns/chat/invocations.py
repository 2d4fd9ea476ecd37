"""Runs that nobody watches: begun by a request, and driven to their end in the background.

    invoke ──> session (404) ──> asked as a chat is ──> 202 started | steered
                                                          └ to its end, or its deadline

Such a run consents to its own tools, and what it asks people is declined, so that it goes on
without. It ends with its time, and with the server.

A session's id is a seal under the key of the intern's vault, bound to the caller that it was issued
to: nothing has to be kept of it, and nobody else can go on with it.

Source: the public gateway's `POST /interns/{internId}/invoke`.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import structlog

from tollhouse.interns.chat.errors import TIMED_OUT, UNREACHABLE, ChatFailed
from tollhouse.interns.chat.events import QuestionEvent
from tollhouse.interns.chat.request import ChatAnswer, ChatPrompt
from tollhouse.interns.chat.service import SteeredChat
from tollhouse.kernel.errors import NotFound, TollhouseError, Unavailable
from tollhouse.kernel.secret import Secret

if TYPE_CHECKING:
    from tollhouse.identity.types import Subject
    from tollhouse.interns.chat.service import ChatService
    from tollhouse.interns.types import Intern
    from tollhouse.vault.service import VaultService

_ALLOWED: Final = "allow_once"
_DECLINED: Final = '{"action":"decline"}'
_NOTHING: Final = Secret("")
_log = structlog.get_logger(__name__)


class Invocation(NamedTuple):
    """What an intern is to do."""

    intern_id: str
    text: str
    session: str | None
    """None for a new one."""


class Invoked(NamedTuple):
    """A prompt that an intern has taken."""

    session: str
    status: Literal["started", "steered"]


class Invocations:
    """Begins runs, and drives them to their end."""

    def __init__(self, chats: ChatService, vaults: VaultService, *, seconds: float) -> None:
        """Give each run so many seconds."""
        self._chats = chats
        self._vaults = vaults
        self._seconds = seconds
        self._running: set[asyncio.Task[None]] = set()

    async def invoke(self, caller: Subject, wanted: Invocation) -> Invoked:
        """Have an intern do something; return once it has taken the prompt.

        Raises what a chat does, and `NotFound` where the session was not issued to this caller for
        this intern.
        """
        taken: asyncio.Future[Invoked] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(self._run(caller, wanted, taken))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            return await taken
        except asyncio.CancelledError:
            running.cancel()  # the caller has left before the intern has taken it
            raise

    async def stop(self) -> None:
        """End the runs that are driven here."""
        running = list(self._running)
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(
        self, caller: Subject, wanted: Invocation, taken: asyncio.Future[Invoked]
    ) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._drive(caller, wanted, taken)
        except TimeoutError:
            _fail(taken, wanted, ChatFailed(TIMED_OUT))
        except TollhouseError as error:
            _fail(taken, wanted, error)
        except Exception as error:  # noqa: BLE001 - the edge of the task
            _log.exception("intern_invocation_fault", intern=wanted.intern_id)
            if not taken.done():
                taken.set_exception(error)
        finally:
            taken.cancel()  # does nothing once it is done

    async def _drive(
        self, caller: Subject, wanted: Invocation, taken: asyncio.Future[Invoked]
    ) -> None:
        intern = await self._chats.begin(caller, wanted.intern_id)
        session = await self._session(intern, caller, wanted.session)
        said: ChatPrompt | ChatAnswer = ChatPrompt(session, wanted.text, "self-drive")
        while True:
            async with self._chats.follow(intern, said) as followed:
                is_steered = isinstance(followed, SteeredChat)
                if not taken.done():
                    taken.set_result(Invoked(session, "steered" if is_steered else "started"))
                if isinstance(followed, SteeredChat):
                    return
                last = await followed.run()
            if not isinstance(last, QuestionEvent):
                return
            said = ChatAnswer(session, last.interaction, _fallback(last))

    async def _session(self, intern: Intern, caller: Subject, issued: str | None) -> str:
        """Return a new session's id, or check the one that was issued."""
        vault_id, name = str(intern.vault_id), f"invoked-by {caller.key_hash}"
        if issued is None:
            try:
                return _encode(await self._vaults.seal_beside(vault_id, name, _NOTHING))
            except Unavailable:
                raise ChatFailed(UNREACHABLE) from None
        try:
            sealed = urlsafe_b64decode(issued + "=" * (-len(issued) % 4))
            await self._vaults.open_beside(vault_id, name, sealed)
            is_ours = _encode(sealed) == issued
        except (Unavailable, ValueError):
            is_ours = False
        if not is_ours:
            raise NotFound("No session with this id was issued to this key.")
        return issued


def _fail(taken: asyncio.Future[Invoked], wanted: Invocation, error: TollhouseError) -> None:
    """Tell the caller why a run did not begin, or the log why one ended without a word."""
    if taken.done():
        reason = error.metadata.get("reason", error.code)
        _log.info("intern_invocation_ended", intern=wanted.intern_id, reason=reason)
    else:
        taken.set_exception(error)


def _encode(sealed: bytes) -> str:
    return urlsafe_b64encode(sealed).decode().rstrip("=")


def _fallback(asked: QuestionEvent) -> str:
    """Return the answer to what is asked where nobody is there."""
    if asked.permission is None:
        return _DECLINED
    return _ALLOWED if _ALLOWED in asked.permission.options else "cancel"

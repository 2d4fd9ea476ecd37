"""The chat services of all interns of this machine: installing one, and keeping it connected.

    install ──> Slack knows the tokens? ──> sealed under the intern's vault ──> queued, if it waited
                                                                     │
    every round: those that are installed ──> connected; others ──> not any more

The tokens are no secrets of the vault: nothing that runs in the intern's sandbox receives them.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import structlog

from tollhouse.audit.types import AuditAction, AuditEntry
from tollhouse.interns import policy, repository
from tollhouse.interns.chat.channels import ChannelFailed, ChannelTokens
from tollhouse.interns.chat.channels.conversations import Conversations
from tollhouse.interns.types import InternChannel, Operation
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.errors import Invalid, TollhouseError, Unavailable
from tollhouse.kernel.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.identity.types import Subject
    from tollhouse.interns.chat.channels import Channel, HttpEvent
    from tollhouse.interns.chat.channels.slack import SlackChannel
    from tollhouse.interns.chat.channels.slack_server import SlackServer
    from tollhouse.interns.chat.request import ApprovalMode
    from tollhouse.interns.chat.service import ChatService
    from tollhouse.interns.types import Intern

SLACK: Final = "slack"
_SEALED_AS: Final = "slack-tokens"
_ROUND_SECONDS: Final = 2.0
_MOST_FETCHED: Final = 4
"""Files that are fetched at once: each is in memory whole."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Installation:
    """What an intern's app is installed with."""

    tokens: Mapping[str, Secret]
    allowed: Sequence[str]
    """Users and channels that may talk to it."""
    mode: ApprovalMode


class _Connected(NamedTuple):
    stored: InternChannel
    channel: Channel
    serving: asyncio.Task[None]


class Channels:
    """Chat services of interns."""

    def __init__(
        self, chats: ChatService, machine: str | None, server: SlackServer, *, seconds: float
    ) -> None:
        """Connect the interns of a machine, None for none; a run may take so many seconds."""
        self._chats = chats
        self._context = chats.context
        self._machine = machine
        self._server = server
        self._seconds = seconds
        self._fetching = asyncio.Semaphore(_MOST_FETCHED)
        self._connected: dict[str, _Connected] = {}
        self._changed = asyncio.Event()
        self._rounds: asyncio.Task[None] | None = None

    # Installing

    async def install(self, caller: Subject, intern_id: str, wanted: Installation) -> Intern:
        """Install an intern's app, or install it anew with other tokens, and return the intern.

        Raises `Invalid` where the service refuses the tokens, and what `provision` raises where the
        intern has waited for this.
        """
        interns = self._chats.interns
        async with self._context.database.reading() as read:
            intern = await interns.intern(read, caller, intern_id)
        policy.check_state(Operation.PATCH, intern)
        try:
            check = (await asyncio.to_thread(_load_slack)).check_tokens
            about = await check(ChannelTokens(wanted.tokens), self._server)
        except ChannelFailed as error:
            raise Invalid(str(error)) from None
        kept = json.dumps({name: each.reveal() for name, each in wanted.tokens.items()})
        vaults, vault_id = self._context.vaults, str(intern.vault_id)
        sealed = await vaults.seal_beside(vault_id, _SEALED_AS, Secret(kept))
        settings = {**about, "allowed": [*wanted.allowed], "mode": wanted.mode}
        entry = AuditEntry(
            AuditAction.CHANNEL_INSTALLED,
            caller.key_hash,
            caller.workspace_id,
            intern_id,
            intern.vault_id,
        )
        now = self._context.clock.now()
        async with self._context.database.writing() as write:
            intern = await interns.finish_install(write, caller, intern_id)
            channel = InternChannel(intern_id, SLACK, settings, sealed)
            await repository.save_channel(write, channel, now)
            await self._context.audit.record(write, caller.account_id, [entry])
        self._changed.set()
        return intern

    async def receive(self, intern_id: str, event: HttpEvent) -> bytes:
        """Take an event that a service sends over HTTP, and return what to answer.

        Raises `Unauthenticated` where it is not signed, `NotFound` where the intern is in no
        service, and `Unavailable` where it is not connected here, so that it is sent again.
        """
        connected = self._connected.get(intern_id)
        if connected is None:
            async with self._context.database.reading() as read:
                if await repository.channel(read, intern_id) is None:
                    raise policy.intern_not_found()
            raise Unavailable("The intern is not connected here now.")
        return await connected.channel.receive(event)

    # Connecting

    def start(self) -> None:
        """Begin to connect."""
        if self._machine is not None:
            self._rounds = asyncio.create_task(self._run(self._machine), name="intern-channels")

    async def stop(self) -> None:
        """Disconnect all."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
        for intern_id in list(self._connected):
            await self._disconnect(intern_id)

    async def _run(self, machine: str) -> None:
        while True:
            try:
                await self._round(machine)
            except Exception:  # noqa: BLE001 - the edge: the next round tries again
                _log.exception("intern_channels_failed")
            await wait_for_event(self._changed, _ROUND_SECONDS)
            self._changed.clear()

    async def _round(self, machine: str) -> None:
        async with self._context.database.reading() as read:
            now = self._context.clock.now()
            found = await repository.installed_channels(read, machine, now)
        wanted = {each.intern_id: each for each in found}
        for intern_id, connected in list(self._connected.items()):
            if wanted.get(intern_id) != connected.stored or connected.serving.done():
                await self._disconnect(intern_id)
        for intern_id, stored in wanted.items():
            if intern_id not in self._connected:
                with suppress(TollhouseError):  # its vault is gone, or cannot be opened now
                    await self._connect(stored)

    async def _connect(self, stored: InternChannel) -> None:
        intern = await self._chats.interns.found(stored.intern_id)
        sealed, vault_id = stored.sealed_tokens or b"", str(intern.vault_id)
        opened = await self._context.vaults.open_beside(vault_id, _SEALED_AS, sealed)
        kept = cast("dict[str, str]", json.loads(opened.reveal()))
        tokens = ChannelTokens({name: Secret(value) for name, value in kept.items()})
        settings: Mapping[str, Any] = stored.settings
        conversations = Conversations(
            self._chats,
            stored.intern_id,
            mode=settings["mode"],
            seconds=self._seconds,
            fetching=self._fetching,
        )
        connect = await asyncio.to_thread(_load_slack)
        channel = connect(conversations, tokens, settings, self._server, self._context.clock)
        serving = asyncio.create_task(channel.run(), name="intern-channel")
        self._connected[stored.intern_id] = _Connected(stored, channel, serving)

    async def _disconnect(self, intern_id: str) -> None:
        serving = self._connected.pop(intern_id).serving
        serving.cancel()
        (ended,) = await asyncio.gather(serving, return_exceptions=True)
        if isinstance(ended, Exception):
            _log.error("intern_channel_failed", intern=intern_id, reason=type(ended).__name__)


def _load_slack() -> type[SlackChannel]:
    """Return Slack's file, in a thread: its library takes half a second and 12 MB of memory."""
    from tollhouse.interns.chat.channels.slack import SlackChannel  # noqa: PLC0415 - see above

    return SlackChannel

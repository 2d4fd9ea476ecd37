"""Disclosing values for requests to hosts: decided by the policy, recorded, then given.

    names ──> resolved ──> verdict ──> opened ─┐
                                               ├─ one transaction: still so? ──> record ──> given
    names of other requests ──> ... ───────────┘

A row for each is durable before its value leaves this module; where it cannot be written, the value
does not. What waits while one transaction runs shares the next: a commit costs the same for one
request and for a hundred.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.audit.types import AuditAction, AuditEntry
from tollhouse.kernel.errors import NotFound, TollhouseError, Unavailable
from tollhouse.storage.notifications import Topic
from tollhouse.vault.types import Recipient, Resolved, StoredSecret, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tollhouse.kernel.secret import Secret
    from tollhouse.storage.database import Database, Read, Write
    from tollhouse.vault.service import VaultContext, VaultService

MOST_REMEMBERED: Final = 1_000
_MOST_TRIES: Final = 3
_log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True, repr=False)
class ResolutionCache:
    """Remembers what names mean for interns and workspaces, until a vault changes."""

    database: Database
    service: VaultService
    _known: dict[str, Mapping[str, Resolved]] = field(
        default_factory=dict[str, "Mapping[str, Resolved]"]
    )
    """By intern or workspace."""
    _changes: int = 0

    def __post_init__(self) -> None:
        self.database.notifications.subscribe(Topic.VAULT, self.forget)

    async def of(self, intern_id: str) -> Mapping[str, Resolved]:
        """Return what each name means for an intern, and raise what `VaultService.resolve` does."""
        return await self._remembered(intern_id, lambda read: self.service.resolve(read, intern_id))

    async def of_recipient(self, who: Recipient) -> Mapping[str, Resolved]:
        """Return the same, for an intern or for a program of a workspace's."""
        if who.intern_id is not None:
            return await self.of(who.intern_id)
        return await self._remembered(
            who.workspace_id, lambda read: self.service.resolve_shared(read, who.workspace_id)
        )

    async def _remembered(
        self, whose: str, resolve: Callable[[Read], Awaitable[Mapping[str, Resolved]]]
    ) -> Mapping[str, Resolved]:
        known = self._known.get(whose)
        if known is not None:
            return known
        before = self._changes
        async with self.database.reading() as read:
            resolved = await resolve(read)
        if before == self._changes:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[whose] = resolved
        return resolved

    def forget(self, vault_id: str | None) -> None:
        """Forget everything: a vault has changed, and may be lent to many.

        A reading that is under way is not remembered either.
        """
        del vault_id
        self._changes += 1
        self._known.clear()


class DisclosureDenied(Exception):
    """A value is not disclosed; the record says so."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.value)
        self.verdict = verdict


class _Changed(Exception):
    """A secret was changed after it was opened and before that was written down."""


@dataclass(eq=False, slots=True)
class _PendingRecord:
    """What the record is to say of one request."""

    who: Recipient
    host: str
    secrets: Sequence[StoredSecret]
    """Opened; nothing where one was withheld."""
    withheld: tuple[str, Verdict] | None
    done: asyncio.Future[None]


@dataclass(eq=False, slots=True)
class Disclosures:
    """Discloses values, recording a group of requests at a time."""

    context: VaultContext
    service: VaultService
    resolutions: ResolutionCache
    _waiting: list[_PendingRecord] = field(default_factory=list[_PendingRecord])
    _writing: asyncio.Task[None] | None = None

    async def disclose(
        self, who: Recipient, host: str, names: Sequence[str]
    ) -> Sequence[tuple[StoredSecret, Secret]]:
        """Return the secrets of some names, each once, and their values, for a request to a host.

        The host is normalised. Raises `DisclosureDenied` where one of them does not go there,
        `NotFound` where there is no such intern, or the vault that it borrows is gone, or its
        workspace has no vaults any more, and `Unavailable` where one cannot be opened now, or the
        record cannot be written.
        """
        for _ in range(_MOST_TRIES):
            try:
                return await self._try(who, host, names)
            except _Changed:
                continue
        raise Unavailable("The secrets change all the time; try again.")

    def is_current(
        self, resolved: Mapping[str, Resolved], host: str, name: str, vault_id: str, version: int
    ) -> bool:
        """Tell whether a version of a secret would be released to a host."""
        if self.service.verdict(resolved, name, host) is not Verdict.RELEASED:
            return False
        found = resolved[name].secret
        return (found.vault_id, found.version) == (vault_id, version)

    async def _try(
        self, who: Recipient, host: str, names: Sequence[str]
    ) -> Sequence[tuple[StoredSecret, Secret]]:
        resolved = await self.resolutions.of_recipient(who)
        for name in names:
            verdict = self.service.verdict(resolved, name, host)
            if verdict is not Verdict.RELEASED:
                await self._written(who, host, (), (name, verdict))
                raise DisclosureDenied(verdict)
        secrets = [resolved[name].secret for name in names]
        opened = [(secret, await self.service.open(secret)) for secret in secrets]
        await self._written(who, host, secrets, None)
        return opened

    async def _written(
        self,
        who: Recipient,
        host: str,
        secrets: Sequence[StoredSecret],
        withheld: tuple[str, Verdict] | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        waiting = _PendingRecord(who, host, secrets, withheld, loop.create_future())
        self._waiting.append(waiting)
        if self._writing is None:
            self._writing = loop.create_task(self._write_all())
        await waiting.done

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                await self._write_group([each for each in group if not each.done.done()])
        finally:
            self._writing = None

    async def _write_group(self, group: Sequence[_PendingRecord]) -> None:
        failed: dict[_PendingRecord, Exception] = {}
        try:
            async with self.context.database.writing() as write:
                failed = await self._failed(write, group)
                await self._record(write, [each for each in group if each not in failed])
        except Exception as error:  # noqa: BLE001 - the writer's edge: whoever waits is told
            _log.error("release_not_recorded", error=type(error).__name__)
            message = "The record cannot be written."
            failed = dict.fromkeys(group, Unavailable(message))
        for each in group:
            if each.done.done():
                continue
            if each in failed:
                each.done.set_exception(failed[each])
            else:
                each.done.set_result(None)

    async def _failed(
        self, write: Write, group: Sequence[_PendingRecord]
    ) -> dict[_PendingRecord, Exception]:
        """Return those that nothing is released for any more, looked at in the transaction."""
        failed: dict[_PendingRecord, Exception] = {}
        closed: dict[str, bool] = {}
        for each in group:
            workspace_id = each.who.workspace_id
            if workspace_id not in closed:
                switches = await self.context.identity.switches(write, workspace_id)
                closed[workspace_id] = not switches.intern_programme
            if closed[workspace_id]:
                failed[each] = NotFound("The workspace has no vaults.")
            elif (error := await self._changed(each)) is not None:
                failed[each] = error
        return failed

    async def _changed(self, waiting: _PendingRecord) -> Exception | None:
        if not waiting.secrets:
            return None
        try:
            resolved = await self.resolutions.of_recipient(waiting.who)
        except TollhouseError as error:
            return error
        unchanged = all(
            self.is_current(resolved, waiting.host, each.name, each.vault_id, each.version)
            for each in waiting.secrets
        )
        return None if unchanged else _Changed()

    async def _record(self, write: Write, group: Sequence[_PendingRecord]) -> None:
        # In one order, so that two processes do not wait for each other.
        ordered = sorted(group, key=lambda each: each.who.account_id)
        for account_id, some in groupby(ordered, key=lambda each: each.who.account_id):
            entries = [entry for each in some for entry in _entries(each)]
            await self.context.audit.record(write, account_id, entries)


def _entries(pending: _PendingRecord) -> list[AuditEntry]:
    who, action = pending.who, AuditAction.SECRET_RELEASED
    entry = AuditEntry(action, who.actor, who.workspace_id, who.intern_id, hosts=(pending.host,))
    if pending.withheld is not None:
        name, verdict = pending.withheld
        return [replace(entry, name=name, verdict=verdict.value)]
    return [
        replace(entry, vault_id=each.vault_id, name=each.name, version=each.version)
        for each in pending.secrets
    ]

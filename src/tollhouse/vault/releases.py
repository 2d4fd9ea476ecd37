"""Releasing values to hosts: decided by the resolver, written down first, then given.

    names ──> resolved ──> verdict ──> opened ─┐
                                               ├─ one transaction: still so? ──> record ──> given
    names of other requests ──> ... ───────────┘

A row for each is durable before its value leaves this module; where it cannot be written, the value
does not. What waits while one transaction runs shares the next: a commit costs the same for one
request and for a hundred.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import structlog

from tollhouse.audit.types import AuditAction, AuditEntry
from tollhouse.kernel.errors import NotFound, TollhouseError, Unavailable
from tollhouse.vault.types import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.kernel.secret import Secret
    from tollhouse.storage.transaction import Write
    from tollhouse.vault.context import Context
    from tollhouse.vault.resolutions import Resolutions
    from tollhouse.vault.service import VaultService
    from tollhouse.vault.types import Recipient, Resolved, StoredSecret

_MOST_TRIES = 3
_log = structlog.get_logger(__name__)


class Withheld(Exception):
    """A value is not released; the record says so."""

    def __init__(self, verdict: Verdict) -> None:
        """Take why."""
        super().__init__(verdict.value)
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class Release:
    """A value that goes to a host."""

    secret: StoredSecret
    value: Secret = field(repr=False)


class _Changed(Exception):
    """A secret was changed after it was opened and before that was written down."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """What is to be written down for one request."""

    who: Recipient
    host: str
    secrets: Sequence[StoredSecret]
    """Opened; nothing where one was withheld."""
    withheld: tuple[str, Verdict] | None
    done: asyncio.Future[None]


class Releases:
    """Releases values, a group of requests at a time."""

    def __init__(self, context: Context, service: VaultService, resolutions: Resolutions) -> None:
        """Take who resolves and opens."""
        self._context = context
        self._service = service
        self._resolutions = resolutions
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def release(self, who: Recipient, host: str, names: Sequence[str]) -> Sequence[Release]:
        """Return the values of some names for one request.

        Args:
            who: Whose request it is.
            host: Where it goes, normalised.
            names: Each once.

        Raises:
            Withheld: One of them does not go there.
            NotFound: There is no such intern, or the vault that it borrows is gone, or its
                workspace has no vaults any more.
            Unavailable: One cannot be opened now, or the record cannot be written.
        """
        for _ in range(_MOST_TRIES):
            try:
                return await self._try(who, host, names)
            except _Changed:
                continue
        message = "The secrets change all the time; try again."
        raise Unavailable(message)

    def stands(self, resolved: Mapping[str, Resolved], host: str, secret: StoredSecret) -> bool:
        """Tell whether a secret, in this version, would be released to a host."""
        return self.is_current(resolved, host, secret.name, secret.vault_id, secret.version)

    def is_current(
        self, resolved: Mapping[str, Resolved], host: str, name: str, vault_id: str, version: int
    ) -> bool:
        """Tell whether a version of a secret would be released to a host."""
        if self._service.verdict(resolved, name, host) is not Verdict.RELEASED:
            return False
        found = resolved[name].secret
        return (found.vault_id, found.version) == (vault_id, version)

    async def _try(self, who: Recipient, host: str, names: Sequence[str]) -> Sequence[Release]:
        resolved = await self._resolutions.of_recipient(who)
        for name in names:
            verdict = self._service.verdict(resolved, name, host)
            if verdict is not Verdict.RELEASED:
                await self._written(who, host, (), (name, verdict))
                raise Withheld(verdict)
        secrets = [resolved[name].secret for name in names]
        opened = [Release(secret, await self._service.open(secret)) for secret in secrets]
        await self._written(who, host, secrets, None)
        return opened

    async def _written(
        self,
        who: Recipient,
        host: str,
        secrets: Sequence[StoredSecret],
        withheld: tuple[str, Verdict] | None,
    ) -> None:
        """Return once the record has it."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(who, host, secrets, withheld, loop.create_future())
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

    async def _write_group(self, group: Sequence[_Waiting]) -> None:
        failed: dict[_Waiting, Exception] = {}
        try:
            async with self._context.database.writing() as write:
                failed = await self._failed(write, group)
                await self._record(write, [each for each in group if each not in failed])
        except Exception as error:  # noqa: BLE001 - the writer's edge: whoever waits is told
            _log.error("release_not_recorded", error=type(error).__name__)
            message = "The record cannot be written."
            failed = dict.fromkeys(group, Unavailable(message))
        for each in group:
            if each.done.done():
                continue
            if (error := failed.get(each)) is not None:
                each.done.set_exception(error)
            else:
                each.done.set_result(None)

    async def _failed(self, write: Write, group: Sequence[_Waiting]) -> dict[_Waiting, Exception]:
        """Return those that nothing is released for any more, looked at in the transaction."""
        failed: dict[_Waiting, Exception] = {}
        closed: dict[str, bool] = {}
        for each in group:
            workspace_id = each.who.workspace_id
            if workspace_id not in closed:
                switches = await self._context.identity.switches(write, workspace_id)
                closed[workspace_id] = not switches.intern_programme
            if closed[workspace_id]:
                failed[each] = NotFound("The workspace has no vaults.")
            elif (error := await self._changed(each)) is not None:
                failed[each] = error
        return failed

    async def _changed(self, waiting: _Waiting) -> Exception | None:
        if not waiting.secrets:
            return None
        try:
            resolved = await self._resolutions.of_recipient(waiting.who)
        except TollhouseError as error:
            return error
        stand = all(self.stands(resolved, waiting.host, each) for each in waiting.secrets)
        return None if stand else _Changed()

    async def _record(self, write: Write, group: Sequence[_Waiting]) -> None:
        # In one order, so that two processes do not wait for each other.
        ordered = sorted(group, key=lambda each: each.who.account_id)
        for account_id, some in groupby(ordered, key=lambda each: each.who.account_id):
            entries = [entry for each in some for entry in _entries(each)]
            await self._context.audit.record(write, account_id, entries)


def _entries(waiting: _Waiting) -> list[AuditEntry]:
    who, hosts = waiting.who, (waiting.host,)
    if waiting.withheld is not None:
        name, verdict = waiting.withheld
        return [
            AuditEntry(
                AuditAction.SECRET_RELEASED,
                who.actor,
                who.workspace_id,
                who.intern_id,
                name=name,
                hosts=hosts,
                verdict=verdict.value,
            )
        ]
    return [
        AuditEntry(
            AuditAction.SECRET_RELEASED,
            who.actor,
            who.workspace_id,
            who.intern_id,
            secret.vault_id,
            secret.name,
            secret.version,
            hosts,
        )
        for secret in waiting.secrets
    ]

"""The audit log: an entry is durable with what it tells of, or neither is."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

import sqlalchemy as sa

from tollhouse.audit.chain import link
from tollhouse.audit.types import (
    GENESIS,
    START,
    AuditAction,
    AuditEntry,
    AuditRow,
    ChainHead,
    RedactedValue,
)
from tollhouse.kernel.clock import Clock, iso_utc
from tollhouse.storage.database import Read, Write, insert
from tollhouse.storage.tables.audit import audit_heads, audit_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_AT_ONCE: Final = 500
"""Rows of a statement: its values have a number of 16 bits on PostgreSQL."""
_LEFT_OUT: Final = frozenset(
    {"id", "account_id", "hash", "secret_hash", "label", "scope", "created_at", "updated_at"}
)
"""What the row says elsewhere, and what is made of a key's text."""
_COUNTED: Final = frozenset({"patterns"})
"""Texts that no request may hold are as confidential as what they stand for."""


class AuditService:
    """The audit log of every account, and of the installation."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def record(self, write: Write, chain: str, entries: Sequence[AuditEntry]) -> None:
        """Append entries in the transaction that does what they tell of, as its last step.

        Without them it must not be committed; where they cannot be written, it is lost. The chain
        is an account's id, or `INSTALLATION`.
        """
        head, now = await _locked_head(write, chain), self._clock.now()
        for start in range(0, len(entries), _AT_ONCE):
            rows: list[AuditRow] = []
            for seq, entry in enumerate(entries[start : start + _AT_ONCE], head.seq + 1):
                row = link(AuditRow(chain, seq, now, entry, GENESIS), head)
                rows.append(row)
                head = ChainHead(row.seq, row.hash)
            await _append(write, rows)

    async def record_change(  # noqa: PLR0913, PLR0917 - each is a fact of the change
        self,
        write: Write,
        chain: str,
        action: AuditAction,
        actor: str,
        object_id: str,
        old: Mapping[str, Any] | None = None,
        new: Mapping[str, Any] | None = None,
    ) -> None:
        """Append the entry of a change; see `record` and `entry_of_change`."""
        await self.record(write, chain, [entry_of_change(action, actor, object_id, old, new)])

    async def head(self, read: Read, chain: str) -> ChainHead:
        """Return where a chain ends."""
        query = sa.select(audit_heads).where(audit_heads.c.chain == chain)
        row = (await read.execute(query)).mappings().first()
        return START if row is None else ChainHead(row["seq"], row["hash"])

    async def last(self, read: Read, chain: str, action: AuditAction) -> AuditEntry | None:
        """Return the last entry of an action in a chain; None where there is none."""
        newest = _of_action(chain, action).order_by(audit_rows.c.seq.desc()).limit(1)
        row = (await read.execute(newest)).mappings().first()
        return None if row is None else _row(row).entry

    async def all_of(self, read: Read, chain: str, action: AuditAction) -> Sequence[AuditEntry]:
        """Return every entry of an action in a chain, in their order."""
        found = await read.execute(_of_action(chain, action).order_by(audit_rows.c.seq))
        return [_row(each).entry for each in found.mappings()]

    async def rows(self, read: Read, chain: str, after: int, limit: int) -> Sequence[AuditRow]:
        """Return at most `limit` rows of a chain behind the row `after`, in their order."""
        query = sa.select(audit_rows).where(audit_rows.c.chain == chain, audit_rows.c.seq > after)
        found = await read.execute(query.order_by(audit_rows.c.seq).limit(limit))
        return [_row(each) for each in found.mappings()]


async def _locked_head(write: Write, chain: str) -> ChainHead:
    """Return where a chain ends; until the transaction does, nobody else appends to it."""
    start = {"chain": chain, "seq": START.seq, "hash": START.hash}
    await write.execute(insert(write, audit_heads).values(**start).on_conflict_do_nothing())
    query = sa.select(audit_heads).where(audit_heads.c.chain == chain).with_for_update()
    row = (await write.execute(query)).mappings().one()
    return ChainHead(row["seq"], row["hash"])


async def _append(write: Write, rows: Sequence[AuditRow]) -> None:
    """Add rows of one chain behind its head, which the last of them becomes."""
    await write.execute(sa.insert(audit_rows).values([_values(row) for row in rows]))
    last = rows[-1]
    moved = sa.update(audit_heads).where(audit_heads.c.chain == last.chain)
    await write.execute(moved.values(seq=last.seq, hash=last.hash))


def _of_action(chain: str, action: AuditAction) -> sa.Select[Any]:
    return sa.select(audit_rows).where(
        audit_rows.c.chain == chain, audit_rows.c.action == action.value
    )


def _values(row: AuditRow) -> dict[str, Any]:
    hosts = row.entry.hosts
    return {
        **asdict(row.entry),
        "hosts": None if hosts is None else list(hosts),
        "chain": row.chain,
        "seq": row.seq,
        "at": row.at,
        "hash": row.hash,
    }


def _row(row: sa.RowMapping) -> AuditRow:
    facts: dict[str, Any] = {name: row[name] for name in AuditEntry.__slots__}
    facts["action"] = AuditAction(facts["action"])
    facts["hosts"] = None if facts["hosts"] is None else tuple(facts["hosts"])
    return AuditRow(row["chain"], row["seq"], row["at"], AuditEntry(**facts), row["hash"])


# What an entry tells of a change to an account, key, policy, person or setting


def entry_of_change(
    action: AuditAction,
    actor: str,
    object_id: str,
    old: Mapping[str, Any] | None = None,
    new: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Return the entry of a change, done with the key of a hash or by `operator`.

    `old` are the object's fields before, None where it was not there; `new` those after, None where
    it is not there any more.
    """
    before, after = old or {}, new or {}
    known = {**before, **after}
    name = known.get("name")
    return AuditEntry(
        action,
        actor,
        workspace_id=known.get("workspace_id"),
        name=None if isinstance(name, RedactedValue) else name,
        object_id=object_id,
        changes=None if new is None else _changes(before, after),
    )


def after_changes(
    start: Mapping[str, Any], changes: Iterable[Mapping[str, Any] | None]
) -> dict[str, Any]:
    """Return the fields that an object has after some of its changes, one after the other."""
    fields = dict(start)
    for each in changes:
        fields |= {name: change["new"] for name, change in (each or {}).items()}
    return fields


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"old": _recorded(name, old.get(name)), "new": _recorded(name, new.get(name))}
        for name in {**old, **new}
        if name not in _LEFT_OUT and new.get(name) != old.get(name)
    }


def _recorded(name: str, value: object) -> object:
    if isinstance(value, RedactedValue):
        return None if value.value is None else "hidden"
    if name in _COUNTED and isinstance(value, tuple):
        texts = cast("tuple[object, ...]", value)
        return f"{len(texts)} texts"
    return iso_utc(value) if isinstance(value, datetime) else value

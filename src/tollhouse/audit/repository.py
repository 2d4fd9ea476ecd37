"""The SQL of the record."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tollhouse.audit.types import START, AuditAction, AuditEntry, AuditRow, ChainHead
from tollhouse.storage.tables.audit import audit_heads, audit_rows
from tollhouse.storage.upsert import insert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.storage.transaction import Read, Write


async def hold_head(write: Write, chain: str) -> ChainHead:
    """Return where a chain ends; until the transaction does, nobody else appends to it."""
    start = {"chain": chain, "seq": START.seq, "hash": START.hash}
    await write.execute(insert(write, audit_heads).values(**start).on_conflict_do_nothing())
    query = sa.select(audit_heads).where(audit_heads.c.chain == chain).with_for_update()
    row = (await write.execute(query)).mappings().one()
    return ChainHead(row["seq"], row["hash"])


async def append(write: Write, rows: Sequence[AuditRow]) -> None:
    """Add rows of one chain behind its head, which the last of them becomes."""
    await write.execute(sa.insert(audit_rows).values([_values(row) for row in rows]))
    last = rows[-1]
    moved = sa.update(audit_heads).where(audit_heads.c.chain == last.chain)
    await write.execute(moved.values(seq=last.seq, hash=last.hash))


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


async def head(read: Read, chain: str) -> ChainHead:
    """Return where a chain ends."""
    query = sa.select(audit_heads).where(audit_heads.c.chain == chain)
    row = (await read.execute(query)).mappings().first()
    return START if row is None else ChainHead(row["seq"], row["hash"])


async def last(read: Read, chain: str, action: AuditAction) -> AuditEntry | None:
    """Return the last entry of an action in a chain; None where there is none."""
    query = sa.select(audit_rows).where(
        audit_rows.c.chain == chain, audit_rows.c.action == action.value
    )
    found = await read.execute(query.order_by(audit_rows.c.seq.desc()).limit(1))
    row = found.mappings().first()
    return None if row is None else _row(row).entry


async def all_of(read: Read, chain: str, action: AuditAction) -> Sequence[AuditEntry]:
    """Return every entry of an action in a chain, in their order."""
    query = sa.select(audit_rows).where(
        audit_rows.c.chain == chain, audit_rows.c.action == action.value
    )
    found = await read.execute(query.order_by(audit_rows.c.seq))
    return [_row(each).entry for each in found.mappings()]


async def rows(read: Read, chain: str, after: int, limit: int) -> Sequence[AuditRow]:
    """Return rows of a chain behind one of them, in their order."""
    query = sa.select(audit_rows).where(audit_rows.c.chain == chain, audit_rows.c.seq > after)
    found = await read.execute(query.order_by(audit_rows.c.seq).limit(limit))
    return [_row(each) for each in found.mappings()]


def _row(row: sa.RowMapping) -> AuditRow:
    facts: dict[str, Any] = {name: row[name] for name in AuditEntry.__slots__}
    facts["action"] = AuditAction(facts["action"])
    facts["hosts"] = None if facts["hosts"] is None else tuple(facts["hosts"])
    return AuditRow(row["chain"], row["seq"], row["at"], AuditEntry(**facts), row["hash"])

"""The hash chain: each row's hash covers the row and the hash before it. Pure.

    GENESIS ──> hash 1 = SHA-256(GENESIS, row 1) ──> hash 2 = SHA-256(hash 1, row 2) ──> ...

Whoever changes, removes or swaps a row would have to write every later hash anew, and the head that
is kept beside the rows, and every head that somebody noted elsewhere. The last is what counts
against someone who may write to the database: keep a head now and then, and verify against it.

Source: Haber and Stornetta, "How to time-stamp a digital document" (1991).
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from tollhouse.audit.types import START, AuditRow, ChainFault, ChainHead
from tollhouse.kernel.clock import iso_utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def digest(row_without_hash: Mapping[str, object], previous: str) -> str:
    """Return the hash of a row, as `facts` returns it, behind another one with its hash."""
    told = json.dumps(row_without_hash, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256(f"{previous}\n{told}".encode()).hexdigest()


def facts(row: AuditRow) -> dict[str, object]:
    """Return what a row's hash covers, as it is exported."""
    entry = row.entry
    # Rows of earlier releases have neither: their hashes cover no null for them.
    later = {"object_id": entry.object_id, "changes": entry.changes}
    return {
        "chain": row.chain,
        "seq": row.seq,
        "at": iso_utc(row.at),
        "action": entry.action.value,
        "actor": entry.actor,
        "workspace_id": entry.workspace_id,
        "intern_id": entry.intern_id,
        "vault_id": entry.vault_id,
        "name": entry.name,
        "version": entry.version,
        "hosts": None if entry.hosts is None else list(entry.hosts),
        "verdict": entry.verdict,
        **{name: value for name, value in later.items() if value is not None},
    }


def exported(row: AuditRow) -> dict[str, object]:
    """Return a row with its hash."""
    return {**facts(row), "hash": row.hash}


class ChainVerifier:
    """Checks a chain row by row, in little memory however long it is."""

    def __init__(self, after: ChainHead = START) -> None:
        self.head = after
        """The last row that was as it should be."""

    def fault_in(self, rows: Iterable[Mapping[str, object]]) -> ChainFault | None:
        """Check further rows, as they are exported; return the first that is wrong."""
        for row in rows:
            expected = self.head.seq + 1
            if row.get("seq") != expected:
                return ChainFault(expected, f"row {expected} is not there")
            told = {name: value for name, value in row.items() if name != "hash"}
            own = digest(told, self.head.hash)
            if row.get("hash") != own:
                return ChainFault(expected, "it was changed, or one before it")
            self.head = ChainHead(expected, own)
        return None

    def fault_at_end(self, head: ChainHead) -> ChainFault | None:
        """Compare what was checked with the head that is kept; rows may be gone at the end."""
        if head == self.head:
            return None
        if head.seq > self.head.seq:
            return ChainFault(self.head.seq + 1, f"rows {self.head.seq + 1} to {head.seq} are gone")
        if head.seq < self.head.seq:
            return ChainFault(
                head.seq + 1, f"the chain ended with row {head.seq} when it was written"
            )
        return ChainFault(head.seq, "the last row is not the one that was written")


def link(row: AuditRow, head: ChainHead) -> AuditRow:
    """Return a row with the hash that it has behind a head."""
    return AuditRow(row.chain, row.seq, row.at, row.entry, digest(facts(row), head.hash))

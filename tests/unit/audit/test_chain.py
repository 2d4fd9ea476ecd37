"""A chain shows whatever was done to it."""

import json
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import START as NOW
from tollhouse.audit.chain import ChainVerifier, exported, facts, link
from tollhouse.audit.types import (
    GENESIS,
    START,
    AuditAction,
    AuditEntry,
    AuditRow,
    ChainFault,
    ChainHead,
)

ENTRY = AuditEntry(
    AuditAction.SECRET_WRITTEN, "hash", "workspace", None, "vault", "github_token", 1, ("a.com",)
)


def chain(length: int = 5) -> list[AuditRow]:
    rows: list[AuditRow] = []
    head = START
    for seq in range(1, length + 1):
        entry = replace(ENTRY, version=seq)
        row = link(AuditRow("account", seq, NOW + timedelta(seconds=seq), entry, GENESIS), head)
        rows.append(row)
        head = ChainHead(row.seq, row.hash)
    return rows


def fault(rows: list[dict[str, Any]], head: ChainHead) -> ChainFault | None:
    verifier = ChainVerifier()
    return verifier.fault_in(rows) or verifier.fault_at_end(head)


def whole(rows: list[AuditRow]) -> tuple[list[dict[str, Any]], ChainHead]:
    return [exported(row) for row in rows], ChainHead(rows[-1].seq, rows[-1].hash)


def test_a_hash_covers_the_row_and_the_hash_before_it() -> None:
    first, second = chain(2)
    told = json.dumps(facts(second), sort_keys=True, separators=(",", ":"))
    assert second.hash == sha256(f"{first.hash}\n{told}".encode()).hexdigest()


def test_a_row_is_written_down_as_records_that_are_kept_have_it() -> None:
    """Whatever changes here makes every record that was ever exported look tampered with."""
    entry = AuditEntry(
        AuditAction.SECRET_COPIED, "abc", "ws", "in", "va", "tok", 3, ("a.com", "b.com"), "döne"
    )
    row = link(AuditRow("acc", 1, NOW, entry, GENESIS), START)
    assert exported(row) == {
        "chain": "acc",
        "seq": 1,
        "at": "2026-03-12T10:30:00.000Z",
        "action": "secret_copied",
        "actor": "abc",
        "workspace_id": "ws",
        "intern_id": "in",
        "vault_id": "va",
        "name": "tok",
        "version": 3,
        "hosts": ["a.com", "b.com"],
        "verdict": "döne",
        "hash": "35b421e74fab473496884f2a3eee8e8c546f6274aa553c816d300cd1f9dd198c",
    }


@pytest.mark.parametrize("field", [*facts(chain(1)[0]), "hash"])
def test_a_changed_field_is_found_at_its_row(field: str) -> None:
    rows, head = whole(chain())
    rows[2] = {**rows[2], field: "changed"}
    found = fault(rows, head)
    assert found is not None
    assert found.seq == 3


@pytest.mark.parametrize("extra", [{"more": 1}, {"verdict": None}])
def test_an_added_or_emptied_field_is_found(extra: dict[str, Any]) -> None:
    rows, head = whole(chain())
    rows[1] |= extra
    assert fault(rows, head) == ChainFault(2, "it was changed, or one before it")


def test_swapped_rows_are_found_also_where_their_numbers_are_swapped_too() -> None:
    rows, head = whole(chain())
    rows[1], rows[2] = rows[2], rows[1]
    assert fault(rows, head) == ChainFault(2, "row 2 is not there")
    rows[1]["seq"], rows[2]["seq"] = 2, 3
    assert fault(rows, head) == ChainFault(2, "it was changed, or one before it")


def test_rows_that_were_added_at_the_end_are_found_by_the_head() -> None:
    rows, _ = whole(chain())
    assert fault(rows, ChainHead(3, rows[2]["hash"])) == ChainFault(
        4, "the chain ended with row 3 when it was written"
    )


def test_it_goes_on_behind_a_row_that_is_trusted() -> None:
    rows, head = whole(chain())
    verifier = ChainVerifier(ChainHead(3, rows[2]["hash"]))
    assert verifier.fault_in(rows[3:]) is None
    assert verifier.head == head


@given(st.integers(0, 4), st.integers(0, 4))
def test_no_row_can_stand_in_anothers_place(at: int, other: int) -> None:
    rows, head = whole(chain())
    rows[at] = {**rows[other], "seq": at + 1}
    assert (fault(rows, head) is None) == (at == other)

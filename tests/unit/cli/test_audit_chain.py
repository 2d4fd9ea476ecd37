import json
from typing import Any

import pytest

from tollhouse.audit.chain import digest
from tollhouse.audit.types import GENESIS, START, ChainHead
from tollhouse.cli.audit_chain import ChainCheck, format_head, parse_head
from tollhouse.kernel.errors import StartError


def chain(count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for seq in range(1, count + 1):
        told = {"seq": seq, "action": "secret_written", "name": f"n{seq}"}
        rows.append({**told, "hash": digest(told, rows[-1]["hash"] if rows else GENESIS)})
    return rows


def head(row: dict[str, Any]) -> ChainHead:
    return ChainHead(row["seq"], row["hash"])


def lines(rows: list[dict[str, Any]]) -> list[bytes]:
    return [f"{json.dumps(row)}\n".encode() for row in rows]


def test_a_head_is_read_as_it_is_written() -> None:
    for end in (head(chain(3)[-1]), START):
        assert parse_head(f" {format_head(end)}\n") == end


@pytest.mark.parametrize("text", ["", "3", f"03:{'0' * 64}", f"3:{'A' * 64}", f"-1:{'a' * 64}"])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(StartError):
        parse_head(text)


def test_a_chain_that_holds() -> None:
    rows = chain(3)
    check = ChainCheck(head(rows[1]))
    assert check.fault_in(rows) is None
    assert check.fault_at_end(head(rows[2])) is None
    assert check.head == head(rows[2])


def test_a_chain_in_pieces() -> None:
    rows, check = chain(3), ChainCheck(None)
    assert check.fault_in_lines([*lines(rows[:2]), b" \n"]) is None
    assert check.fault_in_lines(lines(rows[2:])) is None
    assert check.fault_at_end(None) is None


@pytest.mark.parametrize("line", [b"", b"x\n", b"[1]\n", b"\xff\n", b"[" * 100_000])
def test_a_line_that_is_no_row(line: bytes) -> None:
    fault = ChainCheck(None).fault_in_lines([*lines(chain(1)), line or b"null"])
    assert fault is not None
    assert fault.seq == 2


def test_a_row_that_differs_from_the_noted_one() -> None:
    rows = chain(3)
    fault = ChainCheck(ChainHead(2, rows[2]["hash"])).fault_in(rows)
    assert fault is not None
    assert fault.seq == 2


def test_an_end_that_is_gone_since_it_was_noted() -> None:
    rows = chain(3)
    check = ChainCheck(head(rows[2]))
    assert check.fault_in(rows[:1]) is None
    fault = check.fault_at_end(head(rows[0]))
    assert fault is not None
    assert (fault.seq, fault.reason) == (2, "rows 2 to 3 are gone, which were there with --head")


def test_nothing_is_a_chain_that_holds() -> None:
    check = ChainCheck(None)
    assert check.fault_at_end(START) is None
    assert check.head == START

"""What ended processes left in their journals: taken over by a start, or by a sibling."""

import asyncio
import struct
from binascii import crc32
from pathlib import Path

import pytest
import structlog

from tests.support.builders import generation_record
from tests.support.seams.accounting import (
    Attribution,
    Journal,
    JournalNotes,
    RecoveredCharges,
    Recovery,
    Settler,
    journals_in,
    payload_of,
    record_of,
)
from tests.support.seams.accounting import recovery as module
from tests.support.waiting import take_turns
from tests.unit.accounting.writer import Writer
from tollhouse.kernel.errors import StartError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def recovery(root: Path, writer: Writer) -> Recovery:
    return Recovery(root, writer)


def journal_of(root: Path, *ids: str, holder: str = "dead") -> Journal:
    """Return the journal of a process with charges that are not booked."""
    made = Journal(root, holder)
    made.open()
    for id_ in ids:
        made.append(payload_of(generation_record(id=id_)))
    return made


def killed_with(root: Path, *ids: str, holder: str = "dead") -> Path:
    """Leave charges behind, as a process that was killed before it booked them."""
    left = journal_of(root, *ids, holder=holder)
    left.close()
    return left.folder


def left_in(root: Path) -> list[str]:
    journals = [Journal(root, holder).read_unbooked() for holder in journals_in(root)]
    return sorted(record_of(each).id for journal in journals for each in journal.payloads)


def broken(_: object) -> OSError:
    return OSError("disk full")


async def test_a_stop_leaves_no_journal_and_hurts_no_other(root: Path, writer: Writer) -> None:
    sibling = journal_of(root, "of the sibling", holder="sibling")
    settler = Settler(Journal(root, "own"), writer)
    await settler.settle(generation_record(id="a"))
    await settler.close()
    assert (writer.booked, writer.released) == ({"a"}, ["own"])
    assert (journals_in(root), left_in(root)) == (["sibling"], ["of the sibling"])
    sibling.close()


@pytest.mark.parametrize("what", ["a charge", "a request under way", "a holder"])
async def test_what_a_stop_cannot_settle_is_left_to_who_comes_after(
    root: Path, writer: Writer, recovery: Recovery, what: str
) -> None:
    settler = Settler(Journal(root, "own"), writer)
    if what == "a request under way":
        settler.reserve_capacity(1)
        settler.begin(generation_record(id="a"))
    else:
        await settler.settle(generation_record(id="a"))
        if what == "a holder":
            await settler.settled()
        writer.failure = broken
    await settler.close()
    assert (writer.released, journals_in(root)) == ([], ["own"])
    writer.failure = lambda _: None
    await recovery.recover()
    assert writer.booked == {"a"}
    assert (writer.released, journals_in(root)) == (["own"], [])


async def test_a_start_takes_over_from_who_is_gone_and_from_nobody_else(
    root: Path, writer: Writer, recovery: Recovery
) -> None:
    killed_with(root, "a", "b", holder="one")
    sibling = journal_of(root, "c", holder="two")
    killed_with(root, holder="three")
    assert (await recovery.recover()).charges == 2
    assert writer.booked == {"a", "b"}
    assert sorted(writer.released) == ["one", "three"]
    assert journals_in(root) == ["two"]
    sibling.close()


async def test_a_sibling_that_dies_is_taken_over_as_soon_as_that_can_be_done(
    root: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0)
    changed: list[str] = []
    sibling = journal_of(root, "a", holder="sibling")
    watching = asyncio.create_task(Recovery(root, writer, changed=changed.append).watch())
    await take_turns()
    assert writer.groups == []
    writer.failure = broken
    with structlog.testing.capture_logs() as logs:
        sibling.close()
        while len(writer.groups) < 3:
            await asyncio.sleep(0)
        writer.failure = lambda _: None
        while journals_in(root):
            await asyncio.sleep(0)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert (writer.booked, writer.released, changed) == ({"a"}, ["sibling"], ["account"])
    assert [each["event"] for each in logs] == ["journal_not_taken_over", "charges_recovered"]


async def test_many_charges_are_booked_in_groups(
    root: Path, writer: Writer, recovery: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_GROUP", 2)
    killed_with(root, "a", "b", "c")
    assert (await recovery.recover()).charges == 3
    assert writer.groups == [["a", "b"], ["c"]]


def line_of(id_: str) -> bytes:
    payload = payload_of(generation_record(id=id_))
    return b"%08x %b\n" % (crc32(payload), payload)


def leave_last_version(root: Path) -> None:
    """Leave two charges, of which one lacks bytes behind it, and a request that was cut off."""
    a, b = line_of("one"), line_of("two")
    root.mkdir()
    (root / "a.log").write_bytes(a.ljust(1024 * 1024, b"\0"))
    (root / "b.log").write_bytes(b.ljust(1024 * 1024, b"\0"))
    (root / "under_way.log").write_bytes(line_of("cut off").ljust(128 * 2048, b"\0"))
    (root / "missing.log").write_text("a.log 300 0\n")
    marks = struct.pack("<IIII", len(a), crc32(a), len(b) + 4, crc32(b + b"gone"))
    root.with_name("journal.marks").write_bytes(marks)


def files_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.rglob("*") if each.is_file())


async def test_the_journal_of_the_last_version_is_booked_and_removed(
    root: Path, writer: Writer, recovery: Recovery
) -> None:
    leave_last_version(root)
    found = await recovery.recover()
    assert found == RecoveredCharges(charges=2, interrupted=1)
    assert writer.booked == {"one", "two", "cut off"}
    assert writer.released == []
    missing = [(each.file, each.found) for each in JournalNotes(root).missing()]
    assert missing == [("a.log", 0), ("b.log", len(line_of("two")))]
    assert files_in(root.parent) == ["missing.log"]


async def test_a_charge_whose_foreign_texts_are_no_unicode_survives_a_kill(
    root: Path, recovery: Recovery
) -> None:
    nasty = "\0 \ud800 \u2028"
    record = generation_record(id="a", upstream_id=nasty, attribution=Attribution(nasty))
    left = journal_of(root)
    left.append(payload_of(record))
    left.close()
    assert await recovery.recover() == RecoveredCharges(charges=1)


async def test_a_tail_that_the_kill_cut_off_is_counted_and_the_rest_is_booked(
    root: Path, writer: Writer, recovery: Recovery
) -> None:
    file = killed_with(root, "a", "b") / "a.log"
    file.write_bytes(file.read_bytes().rstrip(b"\0")[:-5])
    assert await recovery.recover() == RecoveredCharges(charges=1, damaged=1)
    assert writer.booked == {"a"}
    assert b'[2,"b",' in (root / "damaged.log").read_bytes()


async def test_a_recovery_that_fails_loses_nothing(
    root: Path, writer: Writer, recovery: Recovery
) -> None:
    killed_with(root, "a")
    writer.failure = broken
    with pytest.raises(StartError, match="not lost"):
        await recovery.recover()
    assert left_in(root) == ["a"]


@pytest.mark.parametrize(
    "payload",
    [
        b'{"id":"of 0.1.0","account_id":"a"}',
        payload_of(generation_record(id="from the future")).replace(b"[2,", b"[3,", 1),
        payload_of(generation_record(id="from the future"))[:-1] + b",null]",
    ],
    ids=["the release before", "a later one", "one with another field"],
)
async def test_charges_of_another_version_are_not_dropped(
    root: Path, writer: Writer, recovery: Recovery, payload: bytes
) -> None:
    left = journal_of(root)
    left.append(payload)
    left.close()
    with pytest.raises(StartError, match="version"):
        await recovery.recover()
    assert left.read_unbooked().payloads == [payload]
    assert writer.groups == []


async def test_charges_that_are_gone_from_a_journal_are_logged_and_noted(
    root: Path, recovery: Recovery
) -> None:
    (killed_with(root, "gone") / "a.log").write_bytes(b"")
    with structlog.testing.capture_logs() as logs:
        await recovery.recover()
    [line] = [each for each in logs if each["event"] == "journal_charges_missing"]
    assert (line["log_level"], line["file"], line["found_bytes"]) == ("error", "dead/a.log", 0)
    assert [each.file for each in JournalNotes(root).missing()] == ["dead/a.log"]
    assert journals_in(root) == []

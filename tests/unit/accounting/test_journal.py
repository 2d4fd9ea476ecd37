"""The journal alone: what is on disk after an append, a turn, a kill and a full disk."""

import os
from binascii import crc32
from collections.abc import Callable, Iterator, Sequence
from mmap import mmap
from pathlib import Path
from shutil import rmtree
from typing import NoReturn
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import generation_record
from tests.support.disk import largest_file
from tests.support.seams.accounting import (
    GROWTH_BYTES,
    RECORD_BYTES,
    SHRINK_BYTES,
    Journal,
    JournalContents,
    JournalNotes,
    MissingCharges,
    journals_in,
    parse,
    record_of,
)
from tests.support.seams.accounting import journal as module

HOLDER = "holder"
ONE, TWO, THREE = b'{"id":"one"}', b'{"id":"two"}', b'{"id":"three"}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def folder(root: Path) -> Path:
    return root / HOLDER


@pytest.fixture
def journal(root: Path) -> Iterator[Journal]:
    made = Journal(root, HOLDER)
    yield made
    made.close()


def contents(folder: Path) -> JournalContents:
    """Return what another process would find, without the first one having closed anything."""
    return Journal(folder.parent, folder.name).read_unbooked()


def left_in(folder: Path) -> Sequence[bytes]:
    found = contents(folder)
    assert found.damaged == []
    return found.payloads


def test_a_record_is_on_disk_when_append_returns(journal: Journal, folder: Path) -> None:
    journal.append(ONE)
    assert left_in(folder) == [ONE]
    journal.append(TWO)
    assert left_in(folder) == [ONE, TWO]


def test_only_the_owner_may_read_it(journal: Journal, folder: Path) -> None:
    journal.append(ONE)
    journal.notes.quarantine(TWO)
    assert {path.stat().st_mode & 0o077 for path in folder.parent.parent.rglob("*")} == {0}


def test_what_comes_after_a_turn_is_kept_when_the_rest_is_forgotten(
    journal: Journal, folder: Path
) -> None:
    journal.append(ONE)
    journal.switch_files()
    journal.append(TWO)
    assert sorted(left_in(folder)) == [ONE, TWO]
    journal.empty_booked()
    assert left_in(folder) == [TWO]


def test_the_files_take_turns_for_ever(journal: Journal, folder: Path) -> None:
    for number in range(20):
        payload = b'{"id":%d}' % number
        journal.append(payload)
        journal.switch_files()
        journal.empty_booked()
        assert left_in(folder) == []
    assert files_in(folder) == ["a.log", "b.log", "lock"]


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_record_set_aside_is_not_found_again(journal: Journal, root: Path) -> None:
    journal.notes.quarantine(ONE)
    journal.notes.quarantine(TWO)
    assert journals_in(root) == []
    aside = (root / "unbookable.log").read_bytes()
    assert parse("unbookable.log", aside).payloads == [ONE, TWO]


@pytest.mark.parametrize("room", [0, 5_000])
def test_a_record_that_finds_no_room_leaves_nothing_behind(
    journal: Journal, folder: Path, room: int
) -> None:
    large = b'"%b"' % (b"x" * GROWTH_BYTES)
    journal.append(ONE)
    size = (folder / "a.log").stat().st_size
    with largest_file(size + room), pytest.raises(OSError, match=r"space|large"):
        journal.append(large)
    assert left_in(folder) == [ONE]
    assert (folder / "a.log").stat().st_size == size
    journal.append(large)
    assert left_in(folder) == [ONE, large]


def test_a_record_that_fits_needs_no_room_on_the_disk(journal: Journal, folder: Path) -> None:
    journal.open()
    with largest_file(0):
        journal.append(ONE)
    assert left_in(folder) == [ONE]


def test_a_map_that_fails_leaves_the_journal_as_it_was(
    journal: Journal, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = b'"%b"' % (b"x" * GROWTH_BYTES)
    journal.append(ONE)
    with monkeypatch.context() as patched:
        patched.setattr(module.mmap, "mmap", failing)
        with pytest.raises(OSError, match="map"):
            journal.append(large)
        journal.append(TWO)
    assert left_in(folder) == [ONE, TWO]
    for _ in range(SHRINK_BYTES // GROWTH_BYTES):
        journal.append(large)
    journal.switch_files()
    with monkeypatch.context() as patched:
        patched.setattr(module.mmap, "mmap", failing)
        with pytest.raises(OSError, match="map"):
            journal.empty_booked()
    journal.switch_files()
    journal.append(TWO)
    assert contents(folder).payloads[-1] == TWO
    journal.switch_files()
    journal.empty_booked()
    journal.switch_files()
    journal.empty_booked()
    assert left_in(folder) == []


def failing(*_: object) -> NoReturn:
    message = "no room for a map"
    raise OSError(message)


@pytest.mark.parametrize("mapped", [0, 1, 2])
def test_a_journal_that_could_not_be_opened_keeps_no_file_open(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, mapped: int
) -> None:
    """Either the marks cannot be mapped, or the first file, or the second one."""
    maps = Mock(side_effect=[mmap(-1, GROWTH_BYTES)] * mapped + [OSError("no room for a map")])
    opened = open_files()
    with monkeypatch.context() as patched:
        patched.setattr(module.mmap, "mmap", maps)
        with pytest.raises(OSError, match="map"):
            journal.open()
    journal.close()
    assert open_files() == opened


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_both_files_and_their_marks_are_flushed_to_the_disk(
    journal: Journal, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(
        module.os, "fdatasync", lambda descriptor: flushed.append(os.fstat(descriptor).st_ino)
    )
    journal.append(ONE)
    journal.sync()
    marks = folder.parent.with_name("journal-marks") / HOLDER
    files = [marks, *folder.glob("?.log")]
    assert sorted(flushed) == sorted(path.stat().st_ino for path in files)


def test_what_is_no_record_is_kept_as_it_was(root: Path) -> None:
    JournalNotes(root).keep_damaged(parse("a.log", b"garbage\ncut o").damaged)
    assert (root / "damaged.log").read_bytes() == b"garbage\n\ncut o\n"


def test_a_file_that_grew_gives_its_room_back(journal: Journal, folder: Path) -> None:
    for _ in range(SHRINK_BYTES // GROWTH_BYTES):
        journal.append(b'"%b"' % (b"x" * GROWTH_BYTES))
    assert (folder / "a.log").stat().st_size > SHRINK_BYTES
    journal.switch_files()
    journal.empty_booked()
    assert (folder / "a.log").stat().st_size == GROWTH_BYTES
    journal.switch_files()
    journal.append(ONE)
    assert left_in(folder) == [ONE]


def lines_of(*payloads: bytes) -> bytes:
    """Return the bytes of a journal with these records."""
    return b"".join(b"%08x %b\n" % (crc32(payload), payload) for payload in payloads)


def test_a_tail_that_was_cut_off_is_named_with_its_offset() -> None:
    whole = lines_of(ONE, TWO)
    first = len(lines_of(ONE))
    for end in range(first + 1, len(whole)):
        found = parse("a.log", whole[:end] + bytes(100))
        assert found.payloads == [ONE]
        [damage] = found.damaged
        assert (damage.file, damage.offset, damage.data) == ("a.log", first, whole[first:end])
        assert damage.is_tail


@given(st.data())
def test_one_wrong_byte_costs_at_most_the_records_beside_it(data: st.DataObject) -> None:
    payloads = [b'{"id":%d}' % number for number in range(6)]
    whole = bytearray(lines_of(*payloads))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    found = parse("a.log", bytes(whole))
    assert set(found.payloads) <= set(payloads)
    assert len(found.payloads) >= len(payloads) - 2
    assert found.damaged


def test_a_file_whose_emptying_was_cut_short_holds_no_damage() -> None:
    whole = lines_of(ONE, TWO, THREE)
    for zeros in range(1, len(whole)):
        found = parse("a.log", bytes(zeros) + whole[zeros:])
        assert found.damaged == []
        assert found.payloads == [ONE, TWO, THREE][3 - len(found.payloads) :]


def test_damage_in_the_middle_is_no_tail() -> None:
    data = lines_of(ONE) + b"garbage\n" + lines_of(TWO)
    found = parse("a.log", data)
    assert found.payloads == [ONE, TWO]
    assert [damage.is_tail for damage in found.damaged] == [False]


def test_reserved_room_is_there_in_both_files_when_the_disk_is_full(
    journal: Journal, folder: Path
) -> None:
    charges = 5_000
    journal.reserve(charges)
    payload = b'"%b"' % (b"x" * (RECORD_BYTES - 20))
    with largest_file(0):
        journal.reserve(charges)
        for _ in range(2):
            for _ in range(charges):
                journal.append(payload)
            journal.switch_files()
    assert left_in(folder) == [payload] * (2 * charges)


def test_room_that_the_disk_has_not_cannot_be_reserved(journal: Journal, folder: Path) -> None:
    journal.append(ONE)
    with largest_file(GROWTH_BYTES), pytest.raises(OSError, match=r"space|large"):
        journal.reserve(10 * GROWTH_BYTES // RECORD_BYTES)
    assert left_in(folder) == [ONE]
    journal.append(TWO)
    assert left_in(folder) == [ONE, TWO]


def missing_in(folder: Path) -> list[str]:
    """Return the files of which a start would find charges missing."""
    return [each.file.removeprefix(f"{HOLDER}/") for each in contents(folder).missing]


def cut(size: int) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / "a.log", size)


@pytest.mark.parametrize(
    "spoil",
    [
        cut(0),
        cut(10),
        cut(GROWTH_BYTES // 2),
        lambda folder: (folder / "a.log").unlink(),
        lambda folder: (folder / "a.log").write_bytes(bytes(GROWTH_BYTES)),
        rmtree,
        lambda folder: rmtree(folder.parent),
    ],
    ids=["emptied", "cut to 10 bytes", "cut to half", "deleted", "zeros", "its folder", "the root"],
)
def test_a_file_whose_charges_are_gone_is_missed(
    journal: Journal, folder: Path, spoil: Callable[[Path], object]
) -> None:
    for _ in range(GROWTH_BYTES // 2 // len(ONE)):
        journal.append(ONE)
    journal.close()
    spoil(folder)
    assert journals_in(folder.parent) == [HOLDER]
    assert missing_in(folder) == ["a.log"]


def test_of_a_file_that_was_deleted_it_says_how_much_is_missed(
    journal: Journal, folder: Path
) -> None:
    journal.append(ONE)
    journal.switch_files()
    journal.append(ONE)
    journal.close()
    (folder / "b.log").unlink()
    [gone] = contents(folder).missing
    assert (gone.file, gone.found) == (f"{HOLDER}/b.log", 0)
    assert gone.expected > len(ONE)
    rmtree(folder)
    assert missing_in(folder) == ["a.log", "b.log"]


def test_an_older_copy_is_missed(journal: Journal, folder: Path) -> None:
    journal.append(ONE)
    older = (folder / "a.log").read_bytes()
    journal.switch_files()
    journal.empty_booked()
    journal.switch_files()
    journal.append(TWO)
    journal.close()
    (folder / "a.log").write_bytes(older)
    assert missing_in(folder) == ["a.log"]


def test_nothing_is_missed_of_what_is_there_or_was_booked(journal: Journal, folder: Path) -> None:
    assert missing_in(folder) == []
    for payload in (ONE, TWO, THREE):
        journal.append(payload)
        assert missing_in(folder) == []
        journal.switch_files()
        journal.empty_booked()
        assert missing_in(folder) == []
    journal.remove()
    assert missing_in(folder) == []


def test_a_record_that_a_kill_cut_off_is_not_missed(journal: Journal, folder: Path) -> None:
    journal.append(ONE)
    journal.close()
    with (folder / "a.log").open("r+b") as file:
        file.seek(len((folder / "a.log").read_bytes().rstrip(b"\0")))
        file.write(b"0a1b2c3d {")
    assert missing_in(folder) == []


def test_a_journal_without_marks_misses_nothing(journal: Journal, folder: Path) -> None:
    journal.append(ONE)
    journal.close()
    (folder.parent.with_name("journal-marks") / HOLDER).unlink()
    assert missing_in(folder) == []


def test_what_was_missing_is_noted_for_good(root: Path) -> None:
    assert JournalNotes(root).missing() == []
    noted = [MissingCharges("h/a.log", 300, 0), MissingCharges("h/b.log", 20, 10)]
    JournalNotes(root).keep_missing(noted)
    assert JournalNotes(root).missing() == noted


# Whose it is


def taken(folder: Path) -> bool:
    """Tell whether another process could take the journal."""
    other = Journal(folder.parent, folder.name)
    is_taken = other.take()
    other.close()
    return is_taken


def test_who_has_a_journal_keeps_it_until_it_gives_it_up(journal: Journal, folder: Path) -> None:
    assert not taken(folder)
    journal.open()
    assert not taken(folder)
    journal.close()
    assert taken(folder)
    assert journal.take()
    assert not taken(folder)
    journal.remove()
    assert not taken(folder)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("left", "is_left"),
    [
        (("lock",), True),
        (("a.log", "lock"), True),
        (("a.log",), True),  # a copy without empty files, say
        ((), False),
        (("lock.new",), False),
    ],
    ids=str,
)
def test_a_folder_whose_holder_is_about_to_take_it_is_left_alone(
    folder: Path, left: tuple[str, ...], *, is_left: bool
) -> None:
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).touch()
    assert taken(folder) == is_left


@pytest.mark.parametrize(
    "removed",
    [lambda lock: lock.unlink(), lambda lock: rmtree(lock.parent)],
    ids=["lock", "folder"],
)
def test_a_lock_that_was_removed_since_it_was_opened_is_not_taken(
    journal: Journal,
    folder: Path,
    removed: Callable[[Path], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal.open()
    journal.close()
    flock = module.fcntl.flock

    def late(*args: int) -> None:
        removed(folder / "lock")
        flock(*args)

    monkeypatch.setattr(module.fcntl, "flock", late)
    assert not journal.take()


def test_what_somebody_has_put_into_a_folder_stays_there(journal: Journal, folder: Path) -> None:
    journal.open()
    (folder / "notes.txt").touch()
    journal.remove()
    assert files_in(folder) == ["notes.txt"]
    assert not taken(folder)


# Requests under way


def under_way(folder: Path) -> list[str]:
    return sorted(record_of(each).id for each in contents(folder).under_way)


def test_requests_under_way_are_there_until_they_end(journal: Journal, folder: Path) -> None:
    journal.open()
    for number in range(300):  # more than a file has room for in the beginning
        journal.under_way.begin(generation_record(id=f"gen-{number}"))
    for number in range(298):
        journal.under_way.end(f"gen-{number}")
    journal.under_way.begin(generation_record(id="gen-299"))  # a second provider is asked
    assert under_way(folder) == ["gen-298", "gen-299"]
    journal.remove()
    assert under_way(folder) == []


@pytest.mark.parametrize("field", ["app_title", "model", "attempts_json"])
def test_a_long_text_leaves_out_no_beginning(journal: Journal, folder: Path, field: str) -> None:
    journal.open()
    for number in range(200):
        size = number * 100
        journal.under_way.begin(generation_record(id=f"gen-{number}", **{field: "x" * size}))
        journal.under_way.begin(generation_record(id="again", **{field: "x" * (9_000 - size // 2)}))
        if number % 3:
            journal.under_way.end(f"gen-{number}")
    assert under_way(folder) == sorted(["again", *(f"gen-{each}" for each in range(0, 200, 3))])
    size = (folder / "under_way.log").stat().st_size
    for number in range(200):
        journal.under_way.begin(generation_record(id=f"gen-{number}", **{field: "x" * 4_000}))
        journal.under_way.end(f"gen-{number}")
    assert (folder / "under_way.log").stat().st_size == size
    assert under_way(folder) == ["again"]


def test_a_beginning_that_was_cut_off_is_none(journal: Journal, folder: Path) -> None:
    journal.open()
    journal.under_way.begin(generation_record(id="gen-1"))
    journal.close()
    file = folder / "under_way.log"
    file.write_bytes(file.read_bytes()[:100])
    assert under_way(folder) == []

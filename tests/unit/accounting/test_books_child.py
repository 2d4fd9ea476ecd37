"""What the books process does with a group, with a writer that the test has."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.builders import generation_record
from tollhouse.accounting.settlement import child as module
from tollhouse.accounting.settlement.booking import Unbookable
from tollhouse.accounting.settlement.child import Books
from tollhouse.accounting.settlement.journal import Journal, JournalPart
from tollhouse.accounting.settlement.messages import (
    BookCharges,
    Booked,
    BookFile,
    NotBooked,
    Open,
    SetAside,
    Unreadable,
)
from tollhouse.accounting.settlement.payloads import payload_of
from tollhouse.accounting.types import GenerationRecord

BAD = payload_of(generation_record(id="bad"))
OTHER_VERSION = payload_of(generation_record(id="other")).replace(b"[2,", b"[1,", 1)


def payloads(*ids: str) -> list[bytes]:
    return [payload_of(generation_record(id=id_)) for id_ in ids]


class Writer:
    """Remembers the ids of each transaction; takes none with a charge called bad."""

    def __init__(self) -> None:
        self.transactions: list[list[str]] = []
        self.failure: Exception | None = None

    def __call__(self, records: Sequence[GenerationRecord]) -> None:
        ids = [record.id for record in records]
        if self.failure is not None:
            raise self.failure
        if "bad" in ids:
            raise Unbookable from OverflowError()
        self.transactions.append(ids)


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def books(writer: Writer, tmp_path: Path) -> Books:
    return Books(writer, tmp_path / "journal")


def filled(journal: Journal, *ids: str) -> JournalPart:
    for payload in payloads(*ids):
        journal.append(payload)
    return journal.switch_files()


def file_of(part: JournalPart) -> BookFile:
    return BookFile(part.name, part.size, part.checksum)


def test_a_group_is_one_transaction(books: Books, writer: Writer) -> None:
    assert books.answer(BookCharges(payloads("a", "b"))) == Booked([])
    assert writer.transactions == [["a", "b"]]


def test_a_transaction_has_a_largest_size(
    books: Books, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_TRANSACTION", 2)
    assert books.answer(BookCharges(payloads("a", "b", "c"))) == Booked([])
    assert writer.transactions == [["a", "b"], ["c"]]


def test_a_charge_that_cannot_be_stored_is_set_aside_alone(books: Books, writer: Writer) -> None:
    group = [*payloads("a"), BAD, *payloads("b")]
    assert books.answer(BookCharges(group)) == Booked([SetAside(BAD, "OverflowError")])
    assert writer.transactions == [["a"], ["b"]]


def test_what_is_no_record_of_this_version_is_set_aside(books: Books, writer: Writer) -> None:
    answer = books.answer(BookCharges([OTHER_VERSION, *payloads("a")]))
    assert answer == Booked([SetAside(OTHER_VERSION, "ValidationError")])
    assert writer.transactions == [["a"]]


def test_a_database_that_is_away_books_nothing(books: Books, writer: Writer) -> None:
    writer.failure = ConnectionResetError()
    assert books.answer(BookCharges(payloads("a"))) == NotBooked("ConnectionResetError")


def test_a_group_is_read_from_the_journal_and_not_what_came_after_it(
    books: Books, writer: Writer, journal: Journal
) -> None:
    part = filled(journal, "a", "b")
    journal.switch_files()
    filled(journal, "c")
    assert books.answer(file_of(part)) == Booked([])
    assert writer.transactions == [["a", "b"]]


def test_the_second_group_is_in_the_other_file(
    books: Books, writer: Writer, journal: Journal
) -> None:
    for each in ("a", "b"):
        assert books.answer(file_of(filled(journal, each))) == Booked([])
    assert writer.transactions == [["a"], ["b"]]


@pytest.mark.parametrize("change", [b"", b"\0" * 8])
def test_a_file_that_was_changed_from_outside_is_not_read(
    books: Books, writer: Writer, journal: Journal, tmp_path: Path, change: bytes
) -> None:
    part = filled(journal, "a")
    (tmp_path / "journal" / part.name).write_bytes(change)
    assert books.answer(file_of(part)) == Unreadable()
    assert writer.transactions == []


def test_a_file_that_is_gone_is_not_read(books: Books, journal: Journal, tmp_path: Path) -> None:
    part = filled(journal, "a")
    (tmp_path / "journal" / part.name).unlink()
    assert books.answer(file_of(part)) == Unreadable()


def test_messages_show_neither_a_password_nor_a_charge() -> None:
    shown = [
        Open("postgresql://user:password@host/books", "journal"),
        BookCharges(payloads("a")),
        Booked([SetAside(BAD, "OverflowError")]),
    ]
    assert list(map(repr, shown)) == [
        "Open(journal='journal')",
        "BookCharges(1 charges)",
        "Booked(set_aside=[SetAside(reason='OverflowError')])",
    ]

"""What becomes of a log that somebody has changed."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tollhouse.sandbox.daemon.sessions.log import SessionLog, SessionRun
from tollhouse.sandbox.daemon.sessions.log_file import (
    LogBusy,
    LogDamaged,
    LogFailed,
    LogFull,
    new_id,
)


def add_event(log: SessionLog, session: str = "s") -> int:
    run = SessionRun(new_id(), session, "manual", {})
    with log.writing() as write:
        write.run(run)
        return write.event(run, "text", text="words")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SessionLog]:
    """A log with one event."""
    log = SessionLog(tmp_path)
    add_event(log)
    yield log
    log.close()


def garbage(file: Path) -> None:
    file.write_bytes(os.urandom(50_000))


def torn(file: Path) -> None:
    os.truncate(file, 5000)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def another(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE sessions (name TEXT)")


def newer(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 99")


def without_tables(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("DROP TABLE events")


def no_json(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("UPDATE runs SET spent = x'ff00'")


def no_list(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("UPDATE events SET number = 2")
        connection.execute("UPDATE sessions SET last_event = 1")


@pytest.mark.parametrize(
    "harm",
    [garbage, torn, folder, loop, pipe, another, newer, without_tables, no_list],
    ids=lambda harm: harm.__name__,
)
def test_what_is_no_log_of_ours_is_set_aside(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    log = SessionLog(tmp_path)
    add_event(log)
    log.close()
    harm(tmp_path / "sessions" / "log.sqlite3")

    log = SessionLog(tmp_path)
    with pytest.raises(LogDamaged, match="set aside"):
        add_event(log)
    assert add_event(log) == 1
    log.close()
    aside = [*tmp_path.glob("sessions.damaged-*")]
    assert len(aside) == 1
    aside[0].rename(tmp_path / "gone")
    for left in (tmp_path / "gone").iterdir():  # the search for secrets could not read it
        left.rmdir() if left.is_dir() and not left.is_symlink() else left.unlink()


def test_what_a_run_has_spent_that_is_no_object_is_damage(tmp_path: Path) -> None:
    log = SessionLog(tmp_path)
    add_event(log)
    log.close()
    no_json(tmp_path / "sessions" / "log.sqlite3")
    with pytest.raises(LogDamaged):
        log.runs("working")
    assert log.runs("working") == []
    log.close()


def test_a_log_that_another_program_holds_is_busy(tmp_path: Path) -> None:
    log = SessionLog(tmp_path)
    add_event(log)
    log.close()
    file = tmp_path / "sessions" / "log.sqlite3"
    with closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LogBusy):
            add_event(log)
    assert add_event(log) == 2
    log.close()


def test_a_log_that_was_removed_is_begun_anew(tmp_path: Path) -> None:
    log = SessionLog(tmp_path)
    add_event(log)
    shutil.rmtree(tmp_path / "sessions")
    assert add_event(log) == 1
    log.close()
    assert len(SessionLog(tmp_path).events("s", 0, 10)) == 1


def test_a_log_that_was_removed_amid_a_change_is_not_left_before_its_end(
    log: SessionLog, tmp_path: Path
) -> None:
    with log.writing() as write:
        shutil.rmtree(tmp_path / "sessions")
        (run,) = log.runs("working")
        assert write.event(run, "text", text="words") == 2
    assert len(log.events("s", 0, 10)) == 0


@pytest.mark.parametrize(
    "code",
    [sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR_CLOSE, sqlite3.SQLITE_PERM],
    ids=["read only", "another i/o error", "no permission"],
)
def test_what_says_nothing_of_the_file_is_no_damage(log: SessionLog, code: int) -> None:
    error = sqlite3.OperationalError("It cannot be done.")
    error.sqlite_errorcode = code
    with pytest.raises(LogFailed, match="cannot be used now") as raised, log.writing():
        raise error
    assert not isinstance(raised.value, LogDamaged)
    assert add_event(log) == 2


@pytest.mark.usefixtures("log")
def test_no_other_program_reads_or_writes_the_log_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "sessions" / "log.sqlite3"
    with (
        closing(sqlite3.connect(file, timeout=0)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("DELETE FROM events")


def test_a_log_that_cannot_be_made_is_no_damage(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file")
    log = SessionLog(home)
    with pytest.raises(LogFailed):
        add_event(log)


def fill(log: SessionLog, run: SessionRun) -> None:
    with log.writing() as write:
        write._connection.execute("PRAGMA max_page_count = 1")  # noqa: SLF001 - as a full disk
        for _ in range(100):
            write.event(run, "text", text="x" * 4096)


def fail_midway(log: SessionLog, run: SessionRun) -> None:
    with log.writing() as write:
        write.event(run, "text", text="half")
        raise RuntimeError


def test_a_full_disk_leaves_what_is_there(log: SessionLog) -> None:
    run = log.runs("working")[0]
    with pytest.raises(LogFull):
        fill(log, run)
    assert len(log.events("s", 0, 10)) == 1


def test_what_fails_midway_is_not_there(log: SessionLog) -> None:
    run = log.runs("working")[0]
    with pytest.raises(RuntimeError):
        fail_midway(log, run)
    assert [event.number for event in log.events("s", 0, 10)] == [1]


def test_a_run_of_a_log_that_is_gone_writes_nothing_into_the_next(tmp_path: Path) -> None:
    log = SessionLog(tmp_path)
    with pytest.raises(LogFailed), log.writing() as write:
        write.event(SessionRun("r", "s", "manual", {}), "text", text="late")
    assert log.events("s", 0, 10) == []
    log.close()


def test_numbers_have_no_hole_in_each_session(tmp_path: Path) -> None:
    log = SessionLog(tmp_path)
    for session in "abab":
        add_event(log, session)
    assert [event.number for event in log.events("a", 0, 10)] == [1, 2]
    assert [event.number for event in log.events("b", 1, 10)] == [2]
    assert log.listed(None, 1)[1] is True
    assert [each["session"] for each in log.listed("b", 10)[0]] == ["a"]
    log.close()

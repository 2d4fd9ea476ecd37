"""The file of the log: opened when it is first needed, and set aside where it cannot be read.

It stands in `.intern/sessions` of the workspace. Whatever runs in the sandbox may write there,
put something else in its place, or remove it. The daemon holds it locked, and maps nothing of it
into memory: a file that is cut short is an error, and no signal.

Source: SQLite, "Result and Error Codes", "Write-Ahead Logging" (use without shared memory).
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import uuid
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


def utc_now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


def new_id() -> str:
    """Return a new id."""
    return str(uuid.uuid4())


APPLICATION_ID: Final = 0x746F6C6C
VERSION: Final = 1
_FOLDER: Final = "sessions"
_NAME: Final = "log.sqlite3"
_LOCK_SECONDS: Final = 1.0
_FULL: Final = frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM))
_UNWRITTEN: Final = frozenset(
    (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_TRUNCATE)
)
_BUSY: Final = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED))
_DAMAGE: Final = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
# Tables, or rows, that are not ours.
_FOREIGN: Final = frozenset(
    (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)
)
_UNREADABLE: Final = frozenset((sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ))
_PRIMARY: Final = 0xFF
"""Mask of the primary code in an extended one."""
_SCHEMA: Final = """
CREATE TABLE sessions (
    name TEXT PRIMARY KEY, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    last_event INTEGER NOT NULL
);
CREATE INDEX sessions_latest ON sessions (updated_at, name);
CREATE TABLE events (
    session TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;
CREATE TABLE messages (
    session TEXT NOT NULL, position INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (session, position)
) WITHOUT ROWID;
CREATE TABLE inputs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, body TEXT NOT NULL
);
CREATE INDEX inputs_of_session ON inputs (session);
CREATE TABLE runs (
    id TEXT PRIMARY KEY, session TEXT NOT NULL, state TEXT NOT NULL, mode TEXT NOT NULL,
    spent TEXT NOT NULL
);
CREATE INDEX runs_open ON runs (session) WHERE state <> 'ended';
CREATE TABLE calls (
    run TEXT NOT NULL, call TEXT NOT NULL, PRIMARY KEY (run, call)
) WITHOUT ROWID;
CREATE TABLE questions (
    id TEXT PRIMARY KEY, run TEXT NOT NULL, session TEXT NOT NULL, position INTEGER NOT NULL,
    state TEXT NOT NULL, body TEXT NOT NULL, expires_at TEXT, answer TEXT
);
CREATE INDEX questions_of_run ON questions (run, position);
"""
_log = logging.getLogger(__name__)


class LogFailed(Exception):
    """The log cannot be used now. The text is for clients."""


class LogDamaged(LogFailed):
    """The daemon has not written this. It is set aside, and the next use begins a new log."""

    def __init__(self) -> None:
        super().__init__(
            "The log of sessions was damaged. It is set aside, in .intern, and another one is"
            " begun."
        )


class LogFull(LogFailed):
    """The disk is full."""

    def __init__(self) -> None:
        super().__init__("The workspace is full: nothing can be written down.")


class LogBusy(LogFailed):
    """Another program has locked it."""


class SessionLogFile:
    """The file, in the daemon's folder `home` of the workspace; opened when it is first needed.

    Whatever reads or writes it raises `LogFailed` where that cannot be done.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Its device and inode."""

    def exists(self) -> bool:
        """Return whether there is a log."""
        return os.path.lexists(self._home / _FOLDER / _NAME)

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Let a block write: all of it is in the log when the block has ended, or nothing."""
        with self._guarded():
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close it; everything is in one file then."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    @contextmanager
    def _guarded(self) -> Generator[None]:
        try:
            yield
        except LogDamaged:
            self.set_aside()
            raise
        except sqlite3.ProgrammingError:
            raise  # a bug of ours
        except sqlite3.Error as error:
            failure = self._failure_of(error)
            if isinstance(failure, LogDamaged):
                self.set_aside()
            elif not isinstance(failure, LogFull):
                self.close()
            raise failure from error

    def _failure_of(self, error: sqlite3.Error) -> LogFailed:
        exact = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        code = exact & _PRIMARY
        if code in _FULL or exact in _UNWRITTEN:
            return LogFull()
        if code in _BUSY:
            return LogBusy("Another program holds the log of sessions.")
        if code == sqlite3.SQLITE_CANTOPEN:
            if (self._home / _FOLDER / _NAME).is_file():
                return LogBusy("The log of sessions cannot be opened now.")
            return LogDamaged()
        if code in _DAMAGE | _FOREIGN or exact in _UNREADABLE:
            return LogDamaged()
        return LogFailed("The log of sessions cannot be used now.")

    def _opened(self) -> sqlite3.Connection:
        # If the file was removed, all that is written to it from now on would be lost.
        connection = self._connection
        if connection is not None and not connection.in_transaction and self._found() != self._file:
            _log.warning("the log of sessions was removed or replaced, and is opened anew")
            self.close()
        if self._connection is None:
            self._connection = self._open()
            self._file = self._found()
        return self._connection

    def _found(self) -> tuple[int, int] | None:
        try:
            found = (self._home / _FOLDER / _NAME).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _open(self) -> sqlite3.Connection:
        folder = self._home / _FOLDER
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise LogDamaged from None
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise LogFull from None
            raise LogFailed("The log of sessions cannot be made: see .intern.") from None
        connection = sqlite3.connect(
            folder / _NAME, timeout=_LOCK_SECONDS, isolation_level=None, cached_statements=64
        )
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def set_aside(self) -> None:
        """Rename the log's folder, so that another log is begun; the old one is kept beside it."""
        self.close()
        stamp = utc_now().strftime("%Y%m%dT%H%M%S.%fZ")
        with suppress(OSError):
            (self._home / _FOLDER).rename(self._home / f"{_FOLDER}.damaged-{stamp}")
        _log.warning("the log of sessions was damaged, and is set aside")


def _prepare(connection: sqlite3.Connection) -> None:
    for pragma in (
        "locking_mode = EXCLUSIVE",  # before all others: so it needs no shared memory
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "trusted_schema = OFF",
        "cache_size = -1024",
    ):
        connection.execute(f"PRAGMA {pragma}")
    ours = connection.execute("PRAGMA application_id").fetchone()[0]
    if ours == APPLICATION_ID:
        if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            raise LogDamaged
        return
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise LogDamaged
    connection.executescript(
        f"BEGIN; {_SCHEMA} PRAGMA application_id = {APPLICATION_ID};"
        f" PRAGMA user_version = {VERSION}; COMMIT;"
    )

"""The log of sessions, runs and questions: its values, its SQL, and who waits for new events."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tollhouse.sandbox.daemon.sessions.log_file import (
    LogDamaged,
    LogFailed,
    SessionLogFile,
    utc_now,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

_LISTED: Final = ("session", "state", "last_event", "created_at", "updated_at")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """Something that happened in a session."""

    number: int
    """From 1, in its session, without gaps."""
    kind: str
    data: str = field(repr=False)
    """JSON."""


@dataclass(frozen=True, slots=True)
class SessionRun:
    """The agent's work on a prompt."""

    id: str
    session: str
    mode: str
    spent: dict[str, Any] = field(repr=False)
    """The agent's record of what the run has used; it gets it back when the run goes on."""


@dataclass(frozen=True, slots=True)
class PendingQuestion:
    """A question that a call of a tool waits for."""

    id: str
    run: str
    state: str
    """`later`, `asked`, `answered` or `over`."""
    body: dict[str, Any] = field(repr=False)
    """As the agent asks it."""
    expires_at: str | None


@dataclass(frozen=True, slots=True)
class RunEnding:
    """Why a run did not complete."""

    outcome: str
    """`failed` or `cancelled`."""
    code: int
    """The HTTP status that it would have had before the stream."""
    reason: str
    message: str
    retryable: bool = False
    limit: Mapping[str, str] = field(default_factory=dict[str, str])
    """`limit_source` and `remedy_hint` of the gateway's refusal for want of credits."""


CANCELLED: Final = RunEnding("cancelled", 410, "run_ended", "The run was cancelled.")
UNANSWERED: Final = RunEnding(
    "cancelled", 410, "run_ended", "Nobody answered the question in time, so the run was cancelled."
)
CLIENT_LEFT: Final = RunEnding(
    "cancelled", 499, "client_closed_request", "The client left, so the run was cancelled."
)
SEVERED: Final = RunEnding(
    "failed", 502, "stream_severed", "The intern was interrupted at its work.", retryable=True
)
_STATE: Final = """
coalesce((SELECT CASE state WHEN 'working' THEN 'working' ELSE 'waiting' END FROM runs
          WHERE session = sessions.name AND state <> 'ended' LIMIT 1), 'idle')
"""


class Subscriber:
    """A client that waits for events."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.cut = False
        """Whether nothing more will come, without an end."""


class EventFeed:
    """Wakes the clients that follow a session."""

    def __init__(self) -> None:
        self._followers: dict[str, set[Subscriber]] = defaultdict(set)

    @contextmanager
    def following(self, session: str) -> Generator[Subscriber]:
        """Follow a session for as long as the block runs."""
        follower = Subscriber()
        self._followers[session].add(follower)
        try:
            yield follower
        finally:
            self._followers[session].discard(follower)
            if not self._followers[session]:
                del self._followers[session]

    def notify(self, session: str) -> None:
        """Wake its followers: there are new events."""
        for follower in self._followers.get(session, ()):
            follower.news.set()

    def disconnect(self, session: str | None = None) -> None:
        """Disconnect the followers of a session, or of all."""
        for name, followers in self._followers.items():
            if session in {None, name}:
                for follower in followers:
                    follower.cut = True
                    follower.news.set()


class SessionLog(SessionLogFile):
    """Reads sessions, runs and questions; a `LogTransaction` writes them."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.feed = EventFeed()

    @contextmanager
    def writing(self) -> Generator[LogTransaction]:
        """Let a block write: all of it is in the log when the block has ended, or nothing.

        Those who follow a session with new events are woken then.
        """
        with self.transaction() as connection:
            transaction = LogTransaction(connection, utc_now())
            yield transaction
        for session in transaction.changed:
            self.feed.notify(session)

    def events(self, session: str, after: int, limit: int) -> list[SessionEvent]:
        """Return a session's events after a number, in their order."""
        statement = (
            "SELECT number, kind, data FROM events WHERE session = ? AND number > ?"
            " ORDER BY number LIMIT ?"
        )
        return self._read(lambda row: SessionEvent(*row), statement, session, after, limit)

    def listed(self, after: str | None, limit: int) -> tuple[list[dict[str, object]], bool]:
        """Return sessions as clients see them, latest first, and whether there are more."""
        where, values = "", ()
        if after is not None:
            before = "SELECT updated_at, name FROM sessions WHERE name = ?"
            where, values = f"WHERE (updated_at, name) < ({before})", (after,)
        statement = (
            f"SELECT name, {_STATE}, last_event, created_at, updated_at FROM sessions {where}"  # noqa: S608 - no value
            " ORDER BY updated_at DESC, name DESC LIMIT ?"
        )
        rows: list[dict[str, object]] = self._read(
            lambda row: dict(zip(_LISTED, row, strict=True)), statement, *values, limit + 1
        )
        return rows[:limit], len(rows) > limit

    def messages(self, session: str) -> list[str]:
        """Return a conversation's messages, as the agent wrote them."""
        statement = "SELECT body FROM messages WHERE session = ? ORDER BY position"
        return self._read(lambda row: row[0], statement, session)

    def inputs(self, session: str) -> list[dict[str, object]]:
        """Return the user's inputs that are in no message yet."""
        statement = "SELECT number, body FROM inputs WHERE session = ? ORDER BY number"
        return self._read(lambda row: {"id": row[0], "text": row[1]}, statement, session)

    def open_run(self, session: str) -> SessionRun | None:
        """Return a session's run that works or waits."""
        return next(iter(self._runs("WHERE state <> 'ended' AND session = ?", session)), None)

    def run(self, run: str) -> SessionRun | None:
        """Return a run."""
        return next(iter(self._runs("WHERE id = ?", run)), None)

    def runs(self, state: str) -> list[SessionRun]:
        """Return all runs in a state: `working` or `waiting`."""
        return self._runs("WHERE state <> 'ended' AND state = ?", state)

    def question(self, session: str, question: str) -> PendingQuestion | None:
        """Return a question of a session."""
        found = self._questions("WHERE id = ? AND session = ?", question, session)
        return next(iter(found), None)

    def questions(self, run: str, state: str) -> list[PendingQuestion]:
        """Return a run's questions in a state, in their order."""
        return self._questions("WHERE run = ? AND state = ? ORDER BY position", run, state)

    def answers(self, run: str) -> list[dict[str, Any]]:
        """Return the answers to a run's questions that it has not gone on with."""
        statement = (
            "SELECT answer FROM questions WHERE run = ? AND state = 'answered' ORDER BY position"
        )
        return self._read(lambda row: _object(row[0]), statement, run)

    def _runs(self, where: str, *values: str) -> list[SessionRun]:
        return self._read(
            lambda row: SessionRun(row[0], row[1], row[2], _object(row[3])),
            f"SELECT id, session, mode, spent FROM runs {where}",  # noqa: S608 - no value
            *values,
        )

    def _questions(self, where: str, *values: str) -> list[PendingQuestion]:
        return self._read(
            lambda row: PendingQuestion(row[0], row[1], row[2], _object(row[3]), row[4]),
            f"SELECT id, run, state, body, expires_at FROM questions {where}",  # noqa: S608 - no value
            *values,
        )

    def _read(self, make: Callable[[Any], _T], statement: str, *values: object) -> list[_T]:
        """Return what is made of each row; where a value is wrong, the log is set aside."""
        with self._guarded():
            return [make(row) for row in self._opened().execute(statement, values).fetchall()]


class LogTransaction:
    """A change of the log, made as a whole or not at all."""

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        self._connection = connection
        self._now = _time(now)
        self.changed: set[str] = set()
        """Sessions with new events."""

    def event(self, run: SessionRun, kind: str, **data: object) -> int:
        """Append an event to a run's session; return its number."""
        # One statement with RETURNING takes longer: SQLite keeps what it returns in a table.
        found = self._do("SELECT last_event FROM sessions WHERE name = ?", run.session).fetchone()
        if found is None:  # the log was set aside meanwhile, and this is another one
            raise LogFailed("The log of the session is gone.")
        number: int = found[0] + 1
        row = (run.session, number, kind, _json({"run": run.id, **data}))
        self._do("INSERT INTO events VALUES (?, ?, ?, ?)", *row)
        statement = "UPDATE sessions SET last_event = ?, updated_at = ? WHERE name = ?"
        self._do(statement, number, self._now, run.session)
        self.changed.add(run.session)
        return number

    def run(self, run: SessionRun) -> None:
        """Add a run that works, and its session if it is new."""
        statement = "INSERT INTO sessions VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING"
        self._do(statement, run.session, self._now, self._now)
        row = (run.id, run.session, run.mode, _json(run.spent))
        self._do("INSERT INTO runs VALUES (?, ?, 'working', ?, ?)", *row)

    def run_state(self, run: SessionRun, state: str) -> None:
        """Set a run's state, `working`, `waiting` or `ended`, and what it has spent."""
        statement = "UPDATE runs SET state = ?, spent = ? WHERE id = ?"
        self._do(statement, state, _json(run.spent), run.id)

    def input(self, run: SessionRun, text: str) -> int:
        """Add an input of the user; return its number."""
        statement = "INSERT INTO inputs (session, body) VALUES (?, ?)"
        return self._do(statement, run.session, text).lastrowid or 0

    def entered(self, numbers: Iterable[int]) -> None:
        """Delete inputs: they are in a message, or the agent did not take them."""
        each = ((number,) for number in numbers)
        self._connection.executemany("DELETE FROM inputs WHERE number = ?", each)

    def messages(self, session: str, keep: int, added: Sequence[str]) -> None:
        """Keep the first messages of a conversation, and replace the rest."""
        self._do("DELETE FROM messages WHERE session = ? AND position >= ?", session, keep)
        rows = ((session, position, body) for position, body in enumerate(added, keep))
        self._connection.executemany("INSERT INTO messages VALUES (?, ?, ?)", rows)

    def call_begun(self, run: SessionRun, call: str) -> None:
        """Note that a call of a tool is under way."""
        self._do("INSERT INTO calls VALUES (?, ?) ON CONFLICT DO NOTHING", run.id, call)

    def call_ended(self, run: SessionRun, call: str) -> bool:
        """Note that a call has ended; return whether it was under way."""
        return self._do("DELETE FROM calls WHERE run = ? AND call = ?", run.id, call).rowcount > 0

    def open_calls(self, run: SessionRun) -> list[str]:
        """Return the calls that are under way."""
        rows = self._connection.execute("SELECT call FROM calls WHERE run = ?", (run.id,))
        return [row[0] for row in rows]

    def question(
        self, run: SessionRun, question: str, position: int, body: Mapping[str, Any]
    ) -> None:
        """Add a question that will be asked later."""
        row = (question, run.id, run.session, position, _json(body))
        self._do("INSERT INTO questions VALUES (?, ?, ?, ?, 'later', ?, NULL, NULL)", *row)

    def asked(self, question: str, expires_at: datetime) -> str:
        """Note that a question is asked now; return its deadline as clients see it."""
        deadline = _time(expires_at)
        statement = "UPDATE questions SET state = 'asked', expires_at = ? WHERE id = ?"
        self._do(statement, deadline, question)
        return deadline

    def answered(self, question: str, answer: Mapping[str, Any]) -> None:
        """Note the answer to a question, as the agent gets it."""
        statement = "UPDATE questions SET state = 'answered', answer = ? WHERE id = ?"
        self._do(statement, _json(answer), question)

    def questions_over(self, run: SessionRun) -> None:
        """Note that a run needs none of its questions and answers any more."""
        self._do("UPDATE questions SET state = 'over', answer = NULL WHERE run = ?", run.id)

    def _do(self, statement: str, *values: object) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _object(text: object) -> dict[str, Any]:
    try:
        found = json.loads(text)  # pyright: ignore[reportArgumentType] - a file's, so anything
    except (ValueError, TypeError, RecursionError):
        raise LogDamaged from None
    if not isinstance(found, dict):
        raise LogDamaged
    return found  # pyright: ignore[reportUnknownVariableType] - checked where it is used


def _time(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03}Z"

"""What the log holds of sessions, runs and questions: its statements."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tollhouse.sandbox.daemon.sessions.file import LogFailed, LogFile, damaged
from tollhouse.sandbox.daemon.sessions.values import Event, Question, Run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from tollhouse.sandbox.daemon.clock import Clock

_RUN: Final = "SELECT id, session, mode, spent FROM runs "
_QUESTION: Final = "SELECT id, run, state, body, expires_at FROM questions "
_STATE: Final = """
coalesce((SELECT CASE state WHEN 'working' THEN 'working' ELSE 'waiting' END FROM runs
          WHERE session = sessions.name AND state <> 'ended' LIMIT 1), 'idle')
"""


class Log:
    """The log."""

    def __init__(self, home: Path, clock: Clock) -> None:
        """Open nothing so far; see `LogFile`. Every method may raise `LogFailed`."""
        self._file = LogFile(home, clock)
        self._clock = clock

    def exists(self) -> bool:
        """Return whether anything was ever written down."""
        return self._file.exists()

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def set_aside(self) -> None:
        """Begin another one; this one is kept beside it."""
        self._file.set_aside()

    @contextmanager
    def writing(self) -> Generator[Writing]:
        """Let a block write: all of it is in the log when the block has ended, or nothing."""
        with self._file.writing() as connection:
            yield Writing(connection, self._clock.now())

    def events(self, session: str, after: int, limit: int) -> list[Event]:
        """Return a session's events after a number, in their order."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT number, kind, data FROM events WHERE session = ? AND number > ?"
                " ORDER BY number LIMIT ?",
                (session, after, limit),
            )
            return [Event(*row) for row in rows]

    def listed(self, after: str | None, limit: int) -> tuple[list[dict[str, object]], bool]:
        """Return what clients are told of sessions, latest first, and whether there are more."""
        with self._file.reading() as connection:
            where, values = "", ()
            if after is not None:
                where = (
                    "WHERE (updated_at, name) <"
                    " (SELECT updated_at, name FROM sessions WHERE name = ?)"
                )
                values = (after,)
            rows = connection.execute(
                f"SELECT name, {_STATE}, last_event, created_at, updated_at FROM sessions {where}"  # noqa: S608 - no value
                " ORDER BY updated_at DESC, name DESC LIMIT ?",
                (*values, limit + 1),
            ).fetchall()
        names = ("session", "state", "last_event", "created_at", "updated_at")
        return [dict(zip(names, row, strict=True)) for row in rows[:limit]], len(rows) > limit

    def messages(self, session: str) -> list[str]:
        """Return a conversation, as the agent wrote it down."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT body FROM messages WHERE session = ? ORDER BY position", (session,)
            )
            return [row[0] for row in rows]

    def inputs(self, session: str) -> list[dict[str, object]]:
        """Return what was said, and is in no message so far."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT number, body FROM inputs WHERE session = ? ORDER BY number", (session,)
            )
            return [{"id": number, "text": body} for number, body in rows]

    def open_run(self, session: str) -> Run | None:
        """Return a session's run that works, or waits."""
        return next(iter(self._runs("WHERE state <> 'ended' AND session = ?", session)), None)

    def run(self, run: str) -> Run | None:
        """Return a run."""
        return next(iter(self._runs("WHERE id = ?", run)), None)

    def runs(self, state: str) -> list[Run]:
        """Return all runs in a state: `working` or `waiting`."""
        return self._runs("WHERE state <> 'ended' AND state = ?", state)

    def question(self, session: str, question: str) -> Question | None:
        """Return a question of a session."""
        found = self._questions("WHERE id = ? AND session = ?", question, session)
        return next(iter(found), None)

    def questions(self, run: str, state: str) -> list[Question]:
        """Return a run's questions in a state, in their order."""
        return self._questions("WHERE run = ? AND state = ? ORDER BY position", run, state)

    def answers(self, run: str) -> list[dict[str, Any]]:
        """Return the answers to a run's questions that it has not gone on with."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT answer FROM questions WHERE run = ? AND state = 'answered'"
                " ORDER BY position",
                (run,),
            )
            return [_object(row[0]) for row in rows]

    def _runs(self, where: str, *values: str) -> list[Run]:
        with self._file.reading() as connection:
            rows = connection.execute(_RUN + where, values).fetchall()
            return [Run(id_, session, mode, _object(spent)) for id_, session, mode, spent in rows]

    def _questions(self, where: str, *values: str) -> list[Question]:
        with self._file.reading() as connection:
            rows = connection.execute(_QUESTION + where, values).fetchall()
            return [
                Question(id_, run, state, _object(body), expires_at)
                for id_, run, state, body, expires_at in rows
            ]


class Writing:
    """A change of the log, which is made as a whole."""

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        """Take where and when."""
        self._connection = connection
        self._now = _time(now)

    def event(self, run: Run, kind: str, **data: object) -> int:
        """Append an event to a run's session; return its number."""
        # One statement with RETURNING takes longer: SQLite keeps what it returns in a table.
        found = self._do("SELECT last_event FROM sessions WHERE name = ?", run.session).fetchone()
        if found is None:  # the log was set aside meanwhile, and this is another one
            raise LogFailed("The log of the session is gone.")
        number: int = found[0] + 1
        self._do(
            "INSERT INTO events VALUES (?, ?, ?, ?)",
            *(run.session, number, kind, _json({"run": run.id, **data})),
        )
        self._do(
            "UPDATE sessions SET last_event = ?, updated_at = ? WHERE name = ?",
            *(number, self._now, run.session),
        )
        return number

    def run(self, run: Run) -> None:
        """Add a run that works; its session, where there is none."""
        self._do(
            "INSERT INTO sessions VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING",
            *(run.session, self._now, self._now),
        )
        self._do(
            "INSERT INTO runs VALUES (?, ?, 'working', ?, ?)",
            *(run.id, run.session, run.mode, _json(run.spent)),
        )

    def run_state(self, run: Run, state: str, spent: Mapping[str, Any]) -> None:
        """Say that a run works, waits or has ended."""
        self._do("UPDATE runs SET state = ?, spent = ? WHERE id = ?", state, _json(spent), run.id)

    def input(self, run: Run, text: str) -> int:
        """Add something that was said; return its number."""
        statement = "INSERT INTO inputs (session, body) VALUES (?, ?)"
        return self._do(statement, run.session, text).lastrowid or 0

    def entered(self, numbers: Iterable[int]) -> None:
        """Forget what was said, since it is in a message, or nobody took it."""
        each = ((number,) for number in numbers)
        self._connection.executemany("DELETE FROM inputs WHERE number = ?", each)

    def messages(self, session: str, keep: int, added: Sequence[str]) -> None:
        """Let so many messages of a conversation stay, and others follow."""
        self._do("DELETE FROM messages WHERE session = ? AND position >= ?", session, keep)
        rows = ((session, position, body) for position, body in enumerate(added, keep))
        self._connection.executemany("INSERT INTO messages VALUES (?, ?, ?)", rows)

    def call_begun(self, run: Run, call: str) -> None:
        """Note that a call of a tool is under way."""
        self._do("INSERT INTO calls VALUES (?, ?) ON CONFLICT DO NOTHING", run.id, call)

    def call_ended(self, run: Run, call: str) -> bool:
        """Note that it is not any more; return whether it was."""
        return self._do("DELETE FROM calls WHERE run = ? AND call = ?", run.id, call).rowcount > 0

    def open_calls(self, run: Run) -> list[str]:
        """Return the calls that are under way."""
        rows = self._connection.execute("SELECT call FROM calls WHERE run = ?", (run.id,))
        return [row[0] for row in rows]

    def question(self, run: Run, question: str, position: int, body: Mapping[str, Any]) -> None:
        """Add a question that is to be asked later."""
        self._do(
            "INSERT INTO questions VALUES (?, ?, ?, ?, 'later', ?, NULL, NULL)",
            *(question, run.id, run.session, position, _json(body)),
        )

    def asked(self, question: str, expires_at: datetime) -> str:
        """Note that a question is asked now; return until when it waits, as clients see it."""
        told = _time(expires_at)
        self._do(
            "UPDATE questions SET state = 'asked', expires_at = ? WHERE id = ?", told, question
        )
        return told

    def answered(self, question: str, answer: Mapping[str, Any]) -> None:
        """Note what a question's answer is to the agent."""
        self._do(
            "UPDATE questions SET state = 'answered', answer = ? WHERE id = ?",
            *(_json(answer), question),
        )

    def questions_over(self, run: Run) -> None:
        """Note that nobody asks for a run's questions any more, or for their answers."""
        self._do("UPDATE questions SET state = 'over', answer = NULL WHERE run = ?", run.id)

    def _do(self, statement: str, *values: object) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _object(text: object) -> dict[str, Any]:
    try:
        found = json.loads(text)  # pyright: ignore[reportArgumentType] - a file's, so anything
    except (ValueError, TypeError, RecursionError):
        raise damaged() from None
    if not isinstance(found, dict):
        raise damaged()
    return found  # pyright: ignore[reportUnknownVariableType] - checked where it is used


def _time(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03}Z"

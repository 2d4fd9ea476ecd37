"""What each of several processes of a database is told, of its own changes and of the others'."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

import pytest
import sqlalchemy as sa
from asyncpg.exceptions import TooManyConnectionsError
from sqlalchemy.exc import DBAPIError

from tests.support.backdoor import connected
from tests.support.waiting import until
from tollhouse.kernel.errors import StartError
from tollhouse.storage import notifications, postgresql
from tollhouse.storage.connections import STATEMENT_SECONDS, DatabaseUnreachable
from tollhouse.storage.database import open_database
from tollhouse.storage.notifications import HINTS, RAISE, Topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LISTENERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND query = $1"""


class Process:
    """A process of a database, and what it was told."""

    def __init__(self, url: sa.URL, name: str, folder: Path | None) -> None:
        self.database = open_database(url)
        self.told: list[tuple[Topic, str | None]] = []
        for topic in Topic:
            self.database.notifications.subscribe(
                topic, lambda ref, topic=topic: self.told.append((topic, ref))
            )
        self.database.hear_others(12 * name, folder)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.database.close()

    async def notify(self, *refs: str, topic: Topic = Topic.KEY) -> None:
        async with self.database.writing() as write:
            for ref in refs:
                write.notify(topic, ref)
            assert (topic, refs[-1]) not in self.told

    async def has(self, *told: tuple[Topic, str | None]) -> None:
        """Wait until it was told something; that is all since the last call."""
        await until(lambda: len(self.told) >= len(told))
        assert self.told == [*told]
        self.told.clear()

    async def hears(self) -> None:
        """Wait until it hears others."""
        if self.database.dialect == "postgresql":
            await until(lambda: {(topic, None) for topic in HINTS} <= {*self.told})
            self.told.clear()


@pytest.fixture
async def two(database_url: sa.URL, tmp_path: Path) -> AsyncIterator[tuple[Process, Process]]:
    folder = tmp_path / "notify" if database_url.get_backend_name() == "sqlite" else None
    async with AsyncExitStack() as opened:
        one, other = [
            await opened.enter_async_context(Process(database_url, name, folder)) for name in "ab"
        ]
        for each in (one, other):
            await each.hears()
        yield one, other


postgresql_only = pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)


@pytest.mark.parametrize("topic", [Topic.KEY, Topic.LEASE])
async def test_every_process_is_told_once_of_each_change(
    two: tuple[Process, Process], topic: Topic
) -> None:
    one, other = two
    for each, another in (one, other), (other, one):
        await each.notify("k", "l", topic=topic)
        assert each.told == [(topic, "k"), (topic, "l")]
        await another.has((topic, "k"), (topic, "l"))
        await each.has((topic, "k"), (topic, "l"))


async def test_what_is_rolled_back_nobody_is_told(two: tuple[Process, Process]) -> None:
    one, _ = two

    async def fails() -> None:
        async with one.database.writing() as write:
            write.notify(Topic.KEY, "k")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fails()
    await one.notify("l")
    for each in two:
        await each.has((Topic.KEY, "l"))


async def test_a_lost_notification_makes_all_of_its_topic_stale(
    two: tuple[Process, Process],
) -> None:
    one, other = two
    async with one.database.writing() as write:
        await write.execute(sa.text(RAISE).bindparams(topic=Topic.POLICY))
    for each in two:
        await each.has((Topic.POLICY, None))
    await one.notify("p", topic=Topic.POLICY)
    await other.has((Topic.POLICY, "p"))


async def test_what_is_too_long_makes_all_of_its_topic_stale(two: tuple[Process, Process]) -> None:
    one, other = two
    many = [f"{number:064}" for number in range(200)]
    await one.notify(*many)
    await one.has(*((Topic.KEY, ref) for ref in many))
    await other.has((Topic.KEY, None))


async def test_a_database_that_was_put_back_makes_everything_stale(
    two: tuple[Process, Process],
) -> None:
    one, other = two
    for ref in "klm":
        await one.notify(ref)
    await other.has(*((Topic.KEY, ref) for ref in "klm"))
    async with one.database.writing() as write:
        await write.execute(sa.text("UPDATE topics SET version = 1"))
    await other.has((Topic.KEY, None))


async def test_transactions_at_once_do_not_wait_for_each_other_in_a_circle(
    two: tuple[Process, Process],
) -> None:
    async def change(each: Process, number: int) -> None:
        async with each.database.writing() as write:
            for topic in [Topic.KEY, Topic.ACCOUNT][:: 1 - 2 * (number % 2)]:
                write.notify(topic, str(number))

    await asyncio.gather(*(change(two[n % 2], n) for n in range(20)))
    for each in two:
        await until(lambda each=each: len(each.told) == 40)
        assert len({*each.told}) == 40


@postgresql_only
async def test_a_process_that_stops_before_its_commit_does_not_hold_others_up(
    two: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    monkeypatch.setattr(notifications, "HELD_MS", 50)

    async def stops() -> None:
        async with one.database.writing() as write:
            await one.database.notifications.publish(write.execute, {Topic.KEY: ["k"]})
            await other.notify("l")

    with pytest.raises(DBAPIError):
        await stops()
    await one.has((Topic.KEY, "l"))
    await other.has((Topic.KEY, "l"))


@postgresql_only
async def test_a_process_whose_connection_was_cut_hears_again(
    two: tuple[Process, Process], database_url: sa.URL
) -> None:
    one, other = two
    async with connected(database_url) as backdoor:
        assert len(await backdoor.fetch(LISTENERS, notifications.VERSIONS)) == 2
    await one.notify("k")
    await until(lambda: {(Topic.KEY, "k"), (Topic.KEY, None)} & {*other.told})
    await until(lambda: (Topic.LEASE, None) in other.told)
    other.told.clear()
    await one.notify("l")
    await other.has((Topic.KEY, "l"))


@postgresql_only
async def test_who_cannot_listen_still_learns_that_something_has_changed(
    two: tuple[Process, Process], database_url: sa.URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    connect = postgresql.connect

    async def no_more(url: sa.URL, seconds: float | None) -> Any:
        if seconds == STATEMENT_SECONDS:  # for statements
            return await connect(url, seconds)
        raise TooManyConnectionsError

    with monkeypatch.context() as patched:
        patched.setattr(postgresql, "connect", no_more)
        async with connected(database_url) as backdoor:
            assert len(await backdoor.fetch(LISTENERS, notifications.VERSIONS)) == 2
        await one.notify("k")
        await other.has((Topic.KEY, None))
    await until(lambda: (Topic.LEASE, None) in other.told)
    other.told.clear()
    await one.notify("l")
    await other.has((Topic.KEY, "l"))


@postgresql_only
async def test_nothing_is_trusted_once_the_database_is_away_for_long(
    two: tuple[Process, Process], database_url: sa.URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    allow = f'ALTER DATABASE "{database_url.database}" ALLOW_CONNECTIONS '
    async with connected(database_url.set(database="postgres")) as backdoor:
        await backdoor.execute(f"{allow} false")
        monkeypatch.setattr(notifications, "AWAY_SECONDS", 0.5)
        try:
            await backdoor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1",
                database_url.database,
            )
            await until(lambda: {*other.told} >= {(topic, None) for topic in Topic})
        finally:
            await backdoor.execute(f"{allow} true")
    monkeypatch.undo()
    other.told.clear()
    await other.hears()
    await one.notify("k")
    await other.has((Topic.KEY, "k"))


async def test_what_is_remembered_counts_for_a_while_where_the_database_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = 0

    async def away(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise DatabaseUnreachable

    monkeypatch.setattr(postgresql, "connect", away)
    monkeypatch.setattr(notifications, "RETRY_SECONDS", 0.0)
    async with Process(sa.make_url("postgresql+asyncpg://u@127.0.0.1:1/d"), "a", None) as process:
        await until(lambda: attempts > 3)
        assert process.told == []
        monkeypatch.setattr(notifications, "AWAY_SECONDS", -1.0)
        await until(lambda: {*process.told} == {(topic, None) for topic in Topic})


async def test_one_process_of_a_file_has_no_socket_and_writes_no_versions(
    migrated_sqlite: sa.URL,
) -> None:
    async with Process(migrated_sqlite, "a", None) as process:
        await process.notify("k")
        await process.has((Topic.KEY, "k"))
        async with process.database.reading() as read:
            assert (await read.execute(sa.text(notifications.VERSIONS))).all() == []


async def test_the_sockets_of_processes_that_have_ended_go(
    migrated_sqlite: sa.URL, tmp_path: Path
) -> None:
    folder = tmp_path / "notify"
    async with Process(migrated_sqlite, "a", folder) as process:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
            killed.bind(str(folder / "killed"))
        await process.notify("k")
        assert [each.name for each in folder.iterdir()] == [12 * "a"]
    assert not [*folder.iterdir()]


async def test_a_folder_that_is_too_far_away_is_said_so(
    migrated_sqlite: sa.URL, tmp_path: Path
) -> None:
    database = open_database(migrated_sqlite)
    with pytest.raises(StartError, match="shorter path"):
        database.hear_others("a", tmp_path / ("x" * 90))
    await database.close()

"""`kill -9` in every part of a batch's life, and dependencies that fail for a while.

Each item has one result and is charged once, whatever happens. Only what a kill finds in flight is
asked for again.
"""

import asyncio
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.faults.batch_crashes import (
    BatchWatch,
    Gateway,
    KillLog,
    Unreachable,
    assert_all_once,
    assert_settled,
    batch_body,
    blobs_of,
    item,
    one,
    polling,
    rows,
    seeded,
    wait_for,
)
from tests.faults.batch_provider import BatchProvider, start_provider
from tests.faults.ledger import Ledger, PostgresqlLedger, SqliteLedger
from tests.support import backdoor
from tests.support.fake_s3 import blobs_at, s3_beside
from tests.support.postgresql_databases import PostgresqlDatabases

pytestmark = pytest.mark.timeout(600)  # a start takes some seconds on a busy machine
MEGABYTE = 1024 * 1024
SIZE = 9 * MEGABYTE
"""Bytes of a batch: enough for several chunks."""
MOST_IN_FLIGHT = 100
"""Items that are open at the provider or whose results wait to be stored."""
on_postgresql_in_soak = pytest.mark.parametrize(
    "ledger",
    ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.soak])],
    indirect=True,
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="tollhouse-batches-") as folder:
        yield Path(folder)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def ledger(request: pytest.FixtureRequest, home: Path) -> Ledger:
    """The database of the gateway under test."""
    if request.param == "sqlite":
        return SqliteLedger(home / "data")
    databases: PostgresqlDatabases = request.getfixturevalue("postgresql")
    return PostgresqlLedger(databases.take())


@pytest.fixture
def provider() -> Iterator[BatchProvider]:
    with start_provider() as running:
        yield running


@pytest.fixture
def gateway(home: Path, ledger: Ledger, provider: BatchProvider) -> Iterator[Gateway]:
    more = {"server": {"shutdown_seconds": 4}}
    with closing(Gateway(home, ledger, provider, more=more)) as gateway:
        yield gateway


# A batch that runs


def kill_while_it_runs(gateway: Gateway, provider: BatchProvider, items: int, kills: int) -> None:
    chance = seeded()
    provider.set(seconds=0.05)
    gateway.start()
    watch = BatchWatch(gateway.submit(batch_body(items, SIZE)))
    found = KillLog(gateway.ledger, provider, watch.batch_id)
    for _ in range(kills):
        # Sooner, nothing would be stored before: what never has a result is run item by item.
        after = chance.randint(items // kills // 3, items // kills * 7 // 10)
        provider.kill(gateway.pid, after, chance.random() * 0.05)
        watch.until_killed(gateway)
        found.happened()
        gateway.start()
    ended = watch.until_ended(gateway)
    assert_all_once(ended, items)
    found.assert_no_item_called_without_need(MOST_IN_FLIGHT)
    assert_settled(gateway, [ended])


@on_postgresql_in_soak
def test_each_item_of_a_batch_has_one_result_whatever_kills_there_were(
    gateway: Gateway, provider: BatchProvider
) -> None:
    kill_while_it_runs(gateway, provider, items=180, kills=1)


@pytest.mark.soak
def test_each_item_has_one_result_after_many_kills(
    gateway: Gateway, provider: BatchProvider, soak_factor: int
) -> None:
    kill_while_it_runs(gateway, provider, items=1_500 * soak_factor, kills=10 * soak_factor)


# Two gateways


@pytest.fixture
def two(
    home: Path, postgresql: PostgresqlDatabases, provider: BatchProvider
) -> Iterator[list[Gateway]]:
    """Two gateways on one database and one store of blobs."""
    ledger = PostgresqlLedger(postgresql.take())
    with s3_beside() as store:
        gateways = []
        for worker in ("one", "two"):
            folder = home / worker
            folder.mkdir()
            # A machine that is busy keeps a gateway from its work for a second now and then.
            more = {"blobs": blobs_at(store), "batches": {"lease_seconds": 3, "chunks_at_once": 1}}
            key = gateways[0].key if gateways else ""
            gateway = Gateway(folder, ledger, provider, worker=worker, key=key, more=more)
            gateway.start()
            gateways.append(gateway)
        yield gateways
        for gateway in gateways:
            gateway.close()


@pytest.mark.soak
@pytest.mark.postgresql
def test_another_gateway_finishes_what_a_killed_one_had_begun(
    two: list[Gateway], provider: BatchProvider
) -> None:
    chance = seeded()
    killed, other = two
    provider.set(seconds=0.05)
    provider.kill(killed.pid, after=chance.randint(10, 60), seconds=chance.random() * 0.05)
    watch = BatchWatch(killed.submit(batch_body(300, SIZE)))
    watch.until_killed(killed)
    ended = watch.until_ended(other)
    assert_all_once(ended, 300)
    seen = provider.seen()
    assert seen["kills"][0]["open"], "the kill hit no work"
    assert seen["workers"]["two"]
    assert sum(seen["calls"].values()) <= 300 + MOST_IN_FLIGHT
    assert_settled(other, [ended])


@pytest.mark.soak
@pytest.mark.postgresql
def test_two_gateways_that_are_killed_and_started_again_in_turn(
    two: list[Gateway], provider: BatchProvider, soak_factor: int
) -> None:
    chance, batches, items, kills = seeded(), 8, 300 * soak_factor, 8 * soak_factor
    # Nobody is answered but from one kill's order to the kill: on a busy machine all would have
    # ended before the first order, or while a gateway starts.
    provider.set(seconds=0.1, held=True)
    watches = [
        BatchWatch(chance.choice(two).submit(batch_body(items, MEGABYTE, f"b{number}")))
        for number in range(batches)
    ]
    for _ in range(kills):
        number = chance.randrange(2)
        name, victim, other = ("one", "two")[number], two[number], two[1 - number]
        wait_for(lambda: any(each.startswith(name) for each in provider.seen()["open"]), "work")  # noqa: B023
        after, seconds = chance.randint(15, 45), chance.random() * 0.05
        provider.kill(victim.pid, after, seconds, name, hold=True)
        provider.set(held=False)
        for _ in polling("a kill"):
            if not victim.is_alive:
                break
            assert not all(watch.look(other) for watch in watches), "all ended before the kill"
        victim.kill()
        victim.start()
    provider.set(held=False)
    ended = [watch.until_ended(two[0]) for watch in watches]
    for number, batch in enumerate(ended):
        assert_all_once(batch, items, f"b{number}")
    seen = provider.seen()
    again = sum(seen["calls"].values()) - batches * items
    hit = sum(kill["open"] > 0 for kill in seen["kills"])
    print(f"kills {kills}, that hit work {hit}, called again {again}")  # noqa: T201
    assert hit * 2 > kills
    assert again <= kills * MOST_IN_FLIGHT
    two[1].running.stop()
    assert_settled(two[0], ended)


# A batch that comes


def pieces_of(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


def kill_while_it_comes(gateway: Gateway, kills: int) -> None:
    chance, items = seeded(), 100
    body = batch_body(items, 3 * MEGABYTE)
    gateway.start()
    said: set[str] = set()
    for number in range(kills):
        pieces = pieces_of(body, 100_000)
        # Half of them while it comes, half when all of it is there.
        last = chance.randrange(len(pieces)) if number % 2 else len(pieces)
        killer = threading.Timer(chance.random() * 0.3, gateway.running.process.kill)

        def upload(
            pieces: list[bytes] = pieces[:last], killer: threading.Timer = killer
        ) -> Iterator[bytes]:
            yield from pieces
            killer.start()
            if len(pieces) * 100_000 < len(body):
                gateway.running.process.wait()

        headers = {"content-type": "application/json"}
        try:
            answer = gateway.ask("POST", "/batches", content=upload(), headers=headers)
        except Unreachable:
            pass
        else:
            assert answer.status_code == 202, answer.text
            said.add(answer.json()["id"])
        killer.join()
        gateway.kill()
        forget_time(gateway.ledger)
        gateway.start()
        there = {name for (name,) in rows(gateway.ledger, "SELECT id FROM batches")}
        assert said <= there, "a batch was answered with 202 and is lost"
        wait_for(lambda: one(gateway.ledger, "SELECT count(*) FROM batch_uploads") == 0, "a sweep")
        assert blobs_of(gateway) == there
    ended = []
    for name in sorted(there):
        ended.append(BatchWatch(name).until_ended(gateway))
        assert_all_once(ended[-1], items)
    print(f"kills {kills}, batches there {len(there)}, of them said {len(said)}")  # noqa: T201
    assert_settled(gateway, ended)


def forget_time(ledger: Ledger) -> None:
    """Make uploads old: where others may be at work, nothing is removed that began just now."""
    if isinstance(ledger, PostgresqlLedger):
        rows(ledger, "UPDATE batch_uploads SET started_at = 0 RETURNING 1")


@on_postgresql_in_soak
def test_a_batch_is_there_with_all_of_its_items_or_not_at_all(gateway: Gateway) -> None:
    kill_while_it_comes(gateway, kills=2)


@pytest.mark.soak
def test_many_kills_during_submits_leave_all_or_nothing(gateway: Gateway, soak_factor: int) -> None:
    kill_while_it_comes(gateway, kills=6 * soak_factor)


# Points in the life of a batch


@contextmanager
def killed_at(gateway: Gateway, point: str, passes: int = 1) -> Generator[None]:
    """Run a gateway that is killed when it comes to a point, and start it again at the end."""
    gateway.stops.stop_at(point, passes)
    gateway.start()
    yield
    wait_for(gateway.stops.reached, point)
    gateway.kill()
    forget_time(gateway.ledger)
    gateway.start()


def ask_in_vain(gateway: Gateway, method: str, path: str, **more: Any) -> threading.Thread:
    """Send a request that gets no response."""

    def ask() -> None:
        with pytest.raises(Unreachable):
            gateway.ask(method, path, **more)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.mark.soak
@pytest.mark.parametrize(
    ("point", "count"), [("batch.receive.after", 0), ("batch.create.after", 1)]
)
def test_a_kill_at_a_point_of_a_submit_leaves_all_or_nothing(
    gateway: Gateway, point: str, count: int
) -> None:
    with killed_at(gateway, point):
        headers = {"content-type": "application/json"}
        vain = ask_in_vain(gateway, "POST", "/batches", content=batch_body(20), headers=headers)
    vain.join()
    there = rows(gateway.ledger, "SELECT id FROM batches")
    assert len(there) == count
    ended = [BatchWatch(name).until_ended(gateway) for (name,) in there]
    wait_for(lambda: one(gateway.ledger, "SELECT count(*) FROM batch_uploads") == 0, "a sweep")
    assert blobs_of(gateway) == {name for (name,) in there}
    assert_settled(gateway, ended)


@pytest.mark.soak
@pytest.mark.parametrize(
    "point",
    [
        "batch.lease.after",
        "batch.store.after",
        "batch.commit.after",
        "batch.close.before",
        "batch.close.after",
    ],
)
def test_a_kill_at_a_point_of_a_run_costs_no_item(
    gateway: Gateway, provider: BatchProvider, point: str
) -> None:
    with killed_at(gateway, point):
        watch = BatchWatch(gateway.submit(batch_body(20)))
    ended = watch.until_ended(gateway)
    assert_all_once(ended, 20)
    assert max(provider.calls.values()) <= 2
    assert_settled(gateway, [ended])


def kill_while_it_is_cancelled(gateway: Gateway, provider: BatchProvider, kills: int) -> None:
    chance = seeded()
    gateway.start()
    ended = []
    for number in range(kills):
        names = f"b{number}"
        watch = BatchWatch(gateway.submit(batch_body(300, prefix=names)))
        begun = chance.randint(1, 100)
        wait_for(
            lambda begun=begun, names=names: (
                begun <= sum(name.startswith(f"{names}-") for name in provider.calls)
            ),
            "items that were begun",
        )
        watch.look(gateway)
        answer = gateway.ask("POST", f"/batches/{watch.batch_id}/cancel")
        time.sleep(chance.random() * 0.1)
        gateway.running.process.kill()
        gateway.kill()
        gateway.start()
        ended.append(watch.until_ended(gateway))
        assert answer.status_code == (409 if ended[-1]["status"] == "completed" else 200)
        assert_closed(ended[-1], names)
    assert_settled(gateway, ended)


def assert_closed(ended: dict[str, Any], names: str) -> None:
    """Assert that a cancelled or completed batch has a result for each item."""
    results = ended["results"]
    assert sorted(each["custom_id"] for each in results) == sorted(
        item(number, names) for number in range(ended["request_counts"]["total"])
    )
    errors = [each["error"] for each in results if each["error"] is not None]
    assert {error["type"] for error in errors} <= {"batch_cancelled"}
    assert ended["request_counts"]["failed"] == len(errors)
    assert ended["status"] == ("cancelled" if errors else ended["status"])
    assert ended["status"] in {"cancelled", "completed"}


@on_postgresql_in_soak
def test_a_cancelled_batch_ends_though_a_kill_comes_between(
    gateway: Gateway, provider: BatchProvider
) -> None:
    kill_while_it_is_cancelled(gateway, provider, kills=1)


@pytest.mark.soak
def test_many_kills_while_batches_are_cancelled(
    gateway: Gateway, provider: BatchProvider, soak_factor: int
) -> None:
    kill_while_it_is_cancelled(gateway, provider, kills=4 * soak_factor)


@pytest.mark.soak
@pytest.mark.parametrize("point", ["blobs.delete_all.before", "blobs.delete_all.after"])
def test_the_files_of_a_batch_whose_deletion_a_kill_interrupts_are_removed(
    gateway: Gateway, point: str
) -> None:
    with killed_at(gateway, point):
        batch = gateway.submit(batch_body(20))
        BatchWatch(batch).until_ended(gateway)
        vain = ask_in_vain(gateway, "DELETE", f"/batches/{batch}")
    vain.join()
    assert gateway.ask("GET", f"/batches/{batch}").status_code == 410
    wait_for(lambda: blobs_of(gateway) == set(), "the removal of the files")
    wait_for(
        lambda: one(gateway.ledger, "SELECT count(*) FROM batches WHERE purged_at IS NULL") == 0,
        "the end of the removal",
    )
    assert one(gateway.ledger, "SELECT count(*) FROM generations") == 20
    gateway.running.stop()


# An item that ends whoever runs it


def start_again_and_again(gateway: Gateway, provider: BatchProvider, poison: str) -> int:
    """Restart a gateway that an item kills; return how often it was started."""
    starts = 0
    for _ in polling("the end of all batches"):
        if not gateway.is_alive:
            gateway.kill()
            gateway.start()
            provider.set(poison={poison: gateway.pid})
            starts += 1
        if one(gateway.ledger, "SELECT count(*) FROM batches WHERE finalized_at IS NULL") == 0:
            break
    return starts


@pytest.mark.soak
def test_an_item_that_crashes_its_worker_fails_alone(
    gateway: Gateway, provider: BatchProvider
) -> None:
    gateway.start()
    # Not a word to anybody before the poison is known: who runs it, dies.
    provider.set(poison={item(13): gateway.pid})
    watch = BatchWatch(gateway.submit(batch_body(30)))
    starts = start_again_and_again(gateway, provider, item(13))
    ended = watch.until_ended(gateway)
    failed = [each for each in ended["results"] if each["error"]]
    assert [each["custom_id"] for each in failed] == [item(13)]
    assert failed[0]["error"]["type"] == "api_error"
    assert ended["request_counts"] == {"total": 30, "completed": 29, "failed": 1}
    assert 3 <= starts <= 8
    assert_settled(gateway, [ended])


@pytest.mark.soak
def test_items_beside_one_that_crashes_its_worker_are_not_blamed(
    gateway: Gateway, provider: BatchProvider
) -> None:
    gateway.start()
    # Whenever the bad one comes, the good one is under way.
    provider.set(poison={item(0, "bad"): gateway.pid}, slow={item(0, "good"): 3.0})
    good = BatchWatch(gateway.submit(batch_body(1, prefix="good")))
    bad = BatchWatch(gateway.submit(batch_body(2, prefix="bad")))
    start_again_and_again(gateway, provider, item(0, "bad"))
    ended = [watch.until_ended(gateway) for watch in (good, bad)]
    assert_all_once(ended[0], 1, "good")
    assert ended[1]["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    assert_settled(gateway, ended)


# What it needs is away


@contextmanager
def database_away(gateway: Gateway) -> Generator[None]:
    """Let nobody write to the database."""
    ledger = gateway.ledger
    if isinstance(ledger, PostgresqlLedger):
        asyncio.run(let_in(ledger.url, allowed=False))
        yield
        asyncio.run(let_in(ledger.url, allowed=True))
        return
    with closing(sqlite3.connect(gateway.running.data_dir / "tollhouse.db", timeout=30)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.rollback()


async def let_in(url: sa.URL, *, allowed: bool) -> None:
    async with backdoor.connected(url.set(database="postgres")) as connection:
        name = url.database
        await connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {allowed}')
        if not allowed:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
            )


@contextmanager
def blobs_away(gateway: Gateway) -> Generator[None]:
    """Let nobody write results."""
    [batch] = blobs_of(gateway)
    results = gateway.blobs / "batches" / batch / "results"
    aside = results.with_name("aside")
    if results.exists():
        results.rename(aside)
    results.symlink_to("/proc")  # a folder in which nobody can make files
    yield
    results.unlink()
    if aside.exists():
        aside.rename(results)


AWAY = {"database": database_away, "blobs": blobs_away}


@on_postgresql_in_soak
@pytest.mark.parametrize("what", ["blobs", pytest.param("database", marks=pytest.mark.soak)])
def test_results_wait_for_what_is_away_and_no_item_is_run_twice(
    gateway: Gateway, provider: BatchProvider, what: str
) -> None:
    chance = seeded()
    gateway.start()
    watch = BatchWatch(gateway.submit(batch_body(100)), bad_answers=True)
    begun = chance.randint(1, 60)
    wait_for(lambda: sum(provider.calls.values()) >= begun, "items that were begun")
    with AWAY[what](gateway):
        # Longer than a lease lasts, and than SQLite waits for a lock.
        time.sleep(3 if what == "blobs" else 7)
    ended = watch.until_ended(gateway)
    assert_all_once(ended, 100)
    assert set(provider.calls.values()) == {1}
    assert_settled(gateway, [ended])


@pytest.mark.soak
def test_a_gateway_that_cannot_store_results_stops_all_the_same(
    gateway: Gateway, provider: BatchProvider
) -> None:
    gateway.start()
    watch = BatchWatch(gateway.submit(batch_body(100)))
    wait_for(lambda: provider.calls, "items that were begun")
    with blobs_away(gateway):
        gateway.running.process.send_signal(signal.SIGTERM)
        wait_for(lambda: not gateway.is_alive, "the end of the gateway")
    gateway.kill()
    gateway.start()
    ended = watch.until_ended(gateway)
    assert_all_once(ended, 100)
    assert_settled(gateway, [ended])

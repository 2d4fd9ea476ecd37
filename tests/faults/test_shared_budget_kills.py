"""Random schedules of kills, stops and a database that is away, while processes spend budgets.

After each, every reply is charged once, and what is left of the budgets can be spent to the last.
"""

import asyncio
import os
import random
import signal
import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from tests.faults.batch_crashes import seeded
from tests.faults.ledger import Ledger, PostgresqlLedger, SqliteLedger, assert_consistent
from tests.faults.raw_client import Answer
from tests.support.child_processes import children_of
from tests.support.deployment import WORKERS, Deployment, Payer, body_of
from tests.support.postgresql_databases import PostgresqlDatabases
from tests.support.postgresql_server import postgresql_server
from tests.support.server_process import ServerFailedError
from tests.support.spenders import CLIENTS, Reply, Spenders, admitted, having, refusals
from tests.support.waiting import WAIT_SECONDS

SCHEDULES: Final = 10
EVENTS: Final = 8
STOPPED_SECONDS: Final = 3.0
"""How long something stands still; ten times as long with `DOSE=full`."""
PATIENCE: Final = 1.0
"""Seconds until a client gives up."""
ANSWERS: Final = {0, 200, 402, 503}
"""What clients may be answered; 0 is a connection that broke."""
BODIES: Final = (*5 * [body_of("exact")], body_of("slow", stream=True))
"""A stream that is cut costs less than it holds."""
_CUT: Final = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5"""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]


def tree(pid: int) -> list[int]:
    """Return a process and all that it has started."""
    return [pid, *(each for child in children_of(pid) for each in tree(child))]


def send(number: signal.Signals, *pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Schedule:
    """Events that happen to a deployment and its database, at random."""

    def __init__(
        self,
        deployment: Deployment,
        ledger: Ledger,
        postmaster: Path | None,
        chance: random.Random,
        seconds: float,
    ) -> None:
        self.deployment, self.ledger, self.chance = deployment, ledger, chance
        self._postmaster, self._seconds = postmaster, seconds
        self._starts = asyncio.Lock()

    async def run(self) -> None:
        """Let some events happen, each while others last."""
        events = [self.kill_server, self.kill_process, self.stop_process, self.stop_database]
        if self._postmaster is not None:
            events += [self.restart_database, self.cut_connections]
        async with asyncio.TaskGroup() as group:
            for _ in range(EVENTS):
                group.create_task(self.chance.choice(events)())
                await asyncio.sleep(2 * self.chance.random())

    def _server(self) -> tuple[int, list[int]]:
        """Draw a server; return its number, its process and all that this has started."""
        number = self.chance.randrange(len(self.deployment.servers))
        return number, tree(self.deployment.servers[number].process.pid)

    async def kill_server(self) -> None:
        number, processes = self._server()
        await self._kill(number, processes[0])

    async def kill_process(self) -> None:
        """Kill a server, or one of the processes that it has started."""
        number, processes = self._server()
        await self._kill(number, self.chance.choice(processes))

    async def _kill(self, number: int, pid: int) -> None:
        send(signal.SIGKILL, pid)
        await asyncio.sleep(self.chance.random())
        await self.start(number)

    async def start(self, number: int) -> None:
        """Start a server if it does not run, as often as it takes.

        The database may be away, or one of its processes may be stopped that has its folder still.
        """
        problem = ""
        async with self._starts:
            for _ in range(20 + int(4 * self._seconds)):
                if self.deployment.servers[number].process.poll() is None:
                    return
                try:
                    await asyncio.to_thread(self.deployment.start, number)
                except ServerFailedError as failed:
                    problem = str(failed)
                    await asyncio.sleep(0.5)
        pytest.fail(problem)

    async def stop_process(self) -> None:
        await self._stop([self.chance.choice(self._server()[1])])

    async def _stop(self, pids: list[int]) -> None:
        send(signal.SIGSTOP, *pids)
        await asyncio.sleep(self._seconds * self.chance.random())
        send(signal.SIGCONT, *pids)

    def _database(self) -> list[int]:
        assert self._postmaster is not None
        return tree(int(self._postmaster.read_text().split()[0]))

    async def stop_database(self) -> None:
        """Stop all processes of PostgreSQL, or hold SQLite's lock."""
        if self._postmaster is not None:
            await self._stop(self._database())
            return
        file = self.deployment.servers[0].data_dir / "tollhouse.db"
        opened = sqlite3.connect(file, timeout=60, isolation_level=None, check_same_thread=False)
        with closing(opened) as other:
            # In a thread: a process may hold the lock that is stopped, and is to go on meanwhile.
            begun = asyncio.create_task(asyncio.to_thread(other.execute, "BEGIN IMMEDIATE"))
            try:
                await asyncio.shield(begun)
                await asyncio.sleep(self._seconds * self.chance.random())
            finally:
                await asyncio.wait([begun])  # closed before that, it would take all down

    async def restart_database(self) -> None:
        """Kill a process of PostgreSQL: it ends all others, recovers, and serves again."""
        if processes := self._database()[1:]:  # none while it restarts
            send(signal.SIGKILL, self.chance.choice(processes))

    async def cut_connections(self) -> None:
        # It is away already, or goes while it is asked.
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InternalClientError):
            await self.ledger.rows(_CUT)

    async def settle(self) -> None:
        """Let everything run again."""
        for number, server in enumerate(self.deployment.servers):
            send(signal.SIGCONT, *tree(server.process.pid))
            await self.start(number)


@asynccontextmanager
async def spending(spenders: Spenders, payers: list[Payer]) -> AsyncGenerator[None]:
    """Have clients ask during the block; some of them hang up in the middle of a stream."""
    stopped, chance = asyncio.Event(), spenders.chance

    async def client() -> None:
        while not stopped.is_set():
            cut = chance.choice((-1, -1, -1, 2))
            reply = await spenders.ask(chance.choice(payers).key, chance.choice(BODIES), reads=cut)
            await asyncio.sleep(0.02 if reply.status == 200 else 0.1)

    clients = [asyncio.create_task(client()) for _ in range(CLIENTS)]
    try:
        yield
    finally:
        stopped.set()
        await asyncio.gather(*clients)


def answers(replies: list[Reply]) -> list[Answer]:
    return [Answer(each.status, {"x-generation-id": each.generation_id}) for each in replies]


async def check(schedule: Schedule, replies: list[Reply], payers: list[Payer]) -> None:
    """Check the books, then spend what is left."""
    deployment, ledger, served = schedule.deployment, schedule.ledger, having(replies, 200)
    ids, booked, before = {reply.generation_id for reply in served}, set[str](), -1
    assert {reply.status for reply in replies} <= ANSWERS
    async with asyncio.timeout(WAIT_SECONDS):
        while len(booked) != before or not ids <= booked:  # or lost: see who waits for them
            before = len(booked)
            await asyncio.sleep(0.5)
            booked = {row[0] for row in await ledger.rows("SELECT id FROM generations")}
    whole, broken = ([each for each in served if each.whole is want] for want in (True, False))
    await assert_consistent(ledger, answers(whole), answers(broken))
    async with Spenders(deployment, 0) as spenders:
        for payer in payers:
            used = deployment.used(payer)
            assert used <= payer.k
            left = int(payer.k - used)
            filled = await spenders.fill(replace(payer, k=max(left, 1)))
            assert refusals(filled[:left]) == {}, "lost, or out of reach"
            assert admitted(filled) == left, "spent twice"
    assert deployment.differences() == []
    assert deployment.holds_expired() == 0


@pytest.fixture(scope="module", params=["servers", "sqlite", "postgresql"])
def processes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[Deployment, Ledger, Path | None]]:
    """Four servers, or as many workers; their database; and PostgreSQL's file with its process."""
    folder, workers = tmp_path_factory.mktemp("processes"), WORKERS * (request.param != "servers")
    with ExitStack() as stack:
        ledger: Ledger = SqliteLedger(folder / "server-0" / "data")
        postmaster = None
        if request.param != "sqlite":
            server = stack.enter_context(postgresql_server())
            ledger = PostgresqlLedger(PostgresqlDatabases(server).take())
            postmaster = Path(str(server.query["host"])) / "data" / "postmaster.pid"
            # What is acknowledged outlives a restart.
            lasting = f'ALTER DATABASE "{ledger.url.database}" SET synchronous_commit = on'
            asyncio.run(ledger.rows(lasting))
        made = Deployment(folder, ledger.env, workers=workers)
        yield made, ledger, postmaster
        made.close()


async def test_whatever_is_killed_or_stopped_every_budget_is_spent_exactly(
    processes: tuple[Deployment, Ledger, Path | None], soak_factor: int
) -> None:
    chance = seeded()
    for number in range(SCHEDULES * soak_factor):
        seed = chance.getrandbits(32)
        print(f"schedule {number}: seed {seed}")  # noqa: T201 - to repeat it
        schedule = Schedule(*processes, random.Random(seed), STOPPED_SECONDS * soak_factor)
        kinds = ("key", "balance", "key")
        payers = [
            await asyncio.to_thread(processes[0].payer, kind, schedule.chance.randint(20, 400))
            for kind in kinds
        ]
        async with Spenders(processes[0], seed, PATIENCE) as spenders, spending(spenders, payers):
            await schedule.run()
            await schedule.settle()
        await check(schedule, spenders.replies, payers)

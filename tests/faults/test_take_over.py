"""`kill -9` of who takes over what another server left behind, and of a server that stops."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.ledger import Ledger, assert_consistent, recover
from tests.faults.raw_client import Answer, chat, post_chat
from tests.faults.test_kill import MODELS, ask_until_killed
from tests.faults.test_kill_points import VICTIMS, books_of
from tests.support.child_processes import children_of, is_running
from tests.support.failpoints import Failpoints
from tests.support.server_process import ServerFailedError, ServerProcess, start_server
from tests.support.upstream_process import UpstreamProcess
from tests.support.waiting import until

AT_A_STOP = (
    *("journal.booked", "books.release.before", "books.release.after"),
    *("journal.released", "journal.removed"),
)
AT_A_START = ("journal.taken", "books.write.before", "books.write.after", *AT_A_STOP)
"""Each taker comes as far as this, and is killed there."""


class Crashes:
    """A data folder whose servers die at named points, and what its clients received whole."""

    def __init__(self, upstream: UpstreamProcess, tmp_path: Path, ledger: Ledger) -> None:
        self.tmp_path = tmp_path
        self.ledger = ledger
        self.config = upstream.config(MODELS)
        self.stops = Failpoints(tmp_path / "stops")
        self.env = {**ledger.env, **self.stops.env}
        self.key = ""
        self.whole: list[Answer] = []
        self.broken: list[Answer] = []

    def start(self) -> ServerProcess:
        server = start_server(self.tmp_path, config=self.config, env=self.env)
        self.key = self.key or server.api_key
        return server

    async def crash(self, point: str, victim: str = "both") -> int:
        """Kill a server at a point, with 100 requests under way; return its books process."""
        self.stops.stop_at(point)
        server = self.start()
        [books] = books_of(server)
        try:
            await ask_until_killed(
                server, self.key, self.whole, self.broken, self.stops.reached, VICTIMS[victim]
            )
        finally:
            server.kill()
        return books

    async def kill_taker(self, point: str) -> None:
        """Kill a server at a point of its start, and its books process."""
        self.stops.stop_at(point)
        starting = asyncio.create_task(asyncio.to_thread(self.start))
        await until(self.stops.reached)
        taker = json.loads((self.tmp_path / "data" / ".lock").read_text())["pid"]
        kill_with_children(taker)
        with pytest.raises(ServerFailedError, match="-9"):
            await starting

    async def kill_stopping(self, point: str) -> None:
        """Kill a server, which has booked a charge, at a point of its stop."""
        server = self.start()
        answer = await post_chat(server.base_url, self.key, chat("cutter/echo", stream=False))
        assert answer.whole
        self.whole.append(answer)
        self.stops.stop_at(point)
        server.process.terminate()
        await until(self.stops.reached)
        kill_with_children(server.process.pid)
        server.kill()

    async def assert_nothing_lost_or_doubled(self) -> None:
        await recover(self.tmp_path, self.config, self.ledger)
        await assert_consistent(self.ledger, self.whole, self.broken)
        left = [each.name for each in (self.tmp_path / "data" / "journal").iterdir()]
        assert left == [], "a journal was not removed"
        assert list((self.tmp_path / "data" / "journal-marks").iterdir()) == []


def kill_with_children(process: int) -> None:
    for each in (process, *children_of(process)):
        with suppress(ProcessLookupError):  # a child may have ended with its parent
            os.kill(each, signal.SIGKILL)


@pytest.fixture
def crashes(upstream: UpstreamProcess, tmp_path: Path, ledger: Ledger) -> Crashes:
    return Crashes(upstream, tmp_path, ledger)


async def die_at(
    crashes: Crashes, at_a_start: Sequence[str] = AT_A_START, at_a_stop: Sequence[str] = AT_A_STOP
) -> None:
    await crashes.crash("journal.append.after")
    for point in at_a_start:
        await crashes.kill_taker(point)
    await crashes.assert_nothing_lost_or_doubled()
    for point in at_a_stop:
        await crashes.kill_stopping(point)
    await crashes.assert_nothing_lost_or_doubled()


async def be_late(crashes: Crashes) -> None:
    books = await crashes.crash("books.write.before", "server")
    await recover(crashes.tmp_path, crashes.config, crashes.ledger)
    assert is_running(books), "it was not late: the test proved nothing"
    crashes.stops.go_on()
    await until(lambda: not is_running(books))
    await crashes.assert_nothing_lost_or_doubled()


@pytest.mark.parametrize("ledger", ["sqlite"], indirect=True)
async def test_takers_and_stopping_servers_that_die_lose_and_double_nothing(
    crashes: Crashes,
) -> None:
    await die_at(crashes, AT_A_START[::3], AT_A_STOP[::3])


@pytest.mark.parametrize("ledger", ["sqlite"], indirect=True)
async def test_books_that_a_killed_server_left_at_work_double_nothing(crashes: Crashes) -> None:
    await be_late(crashes)


@pytest.mark.soak
async def test_deaths_at_every_point_lose_and_double_nothing(crashes: Crashes) -> None:
    await die_at(crashes)
    await be_late(crashes)

"""`kill -9` at each named point between a request's admission and its booking."""

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.ledger import Ledger, SqliteLedger, assert_consistent, recover, verify
from tests.faults.raw_client import Answer
from tests.faults.test_kill import MODELS, ask_until_killed, kill_server
from tests.support.child_processes import children_of
from tests.support.failpoints import Failpoints
from tests.support.server_process import ServerFailedError, ServerProcess, start_server
from tests.support.upstream_process import UpstreamProcess

KILLS_IN_SOAK = 1
"""Kills at each point, on each database."""
POINTS = ("request.held", "provider.answered", "journal.append.before", "journal.append.after")
OF_GROUPS = ("books.group.begun", "books.forget.before", "books.forget.after")
"""Points that are passed once for a group of charges."""
OF_BOOKS = ("books.read", "books.write.before", "books.write.after", "books.answer.after")
"""Those of the books process, which are passed once for a group, too."""
BOOKS = b"tollhouse.accounting.settlement."
"""What stands in the command line of a books process."""


def books_of(server: ServerProcess) -> list[int]:
    """Return the books process of a server, if it runs."""
    found = children_of(server.process.pid)
    commands = {each: Path(f"/proc/{each}/cmdline") for each in found}
    return [each for each, file in commands.items() if BOOKS in file.read_bytes()]


def kill_books(server: ServerProcess) -> None:
    for process in books_of(server):
        os.kill(process, signal.SIGKILL)


def kill_both(server: ServerProcess) -> None:
    books = books_of(server)
    kill_server(server)
    for process in books:
        with suppress(ProcessLookupError):  # it may have ended with its server
            os.kill(process, signal.SIGKILL)


VICTIMS = {"server": kill_server, "books": kill_books, "both": kill_both}
EVERYDAY = (
    ("request.held", "server"),
    ("journal.append.after", "server"),
    ("books.write.after", "server"),
    ("books.write.after", "books"),
    ("books.answer.after", "both"),
)
"""The soak kills at every point."""
# A server that stopped does not go on when its books process is killed.
EVERY = [
    (point, victim)
    for point in (*POINTS, *OF_GROUPS, *OF_BOOKS)
    for victim in VICTIMS
    if victim != "books" or point in OF_BOOKS
]


async def kill_at(
    point: str, victim: str, upstream: UpstreamProcess, tmp_path: Path, ledger: Ledger, kills: int
) -> None:
    config, key, in_flight = upstream.config(MODELS), "", 0
    whole: list[Answer] = []
    stops = Failpoints(tmp_path / "stops")
    for _ in range(kills):
        stops.stop_at(point, random.randint(20, 100) if point in POINTS else random.randint(1, 4))
        server = start_server(tmp_path, config=config, env={**ledger.env, **stops.env})
        key = key or server.api_key
        received: list[Answer] = []
        broken: list[Answer] = []
        kill = VICTIMS[victim]
        try:
            await ask_until_killed(server, key, received, broken, stops.reached, kill)
            if victim == "books":
                assert verify(server) == {"clean": True, "differences": []}
                server.stop()
        except TimeoutError:
            raise ServerFailedError(f"{point} was not reached: {server.stderr_text()}") from None
        finally:
            server.kill()
        whole.extend(received)
        in_flight += bool(broken)
        await recover(tmp_path, config, ledger)
        await assert_consistent(ledger, whole, broken)
    if victim == "books":
        assert not in_flight, "a reply waited for the books"
    else:
        assert in_flight * 2 > kills, "most kills have to hit replies under way"


@pytest.mark.parametrize(("point", "victim"), EVERYDAY)
async def test_no_charge_is_lost_or_doubled_by_a_kill(
    point: str, victim: str, upstream: UpstreamProcess, tmp_path: Path
) -> None:
    await kill_at(point, victim, upstream, tmp_path, SqliteLedger(tmp_path / "data"), kills=1)


@pytest.mark.soak
@pytest.mark.parametrize(("point", "victim"), EVERY)
async def test_many_kills_at_each_point_lose_and_double_no_charge(
    point: str,
    victim: str,
    upstream: UpstreamProcess,
    tmp_path: Path,
    ledger: Ledger,
    soak_factor: int,
) -> None:
    await kill_at(point, victim, upstream, tmp_path, ledger, KILLS_IN_SOAK * soak_factor)

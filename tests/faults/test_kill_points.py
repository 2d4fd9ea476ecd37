"""`kill -9` at each named point between a request's admission and its booking."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.server_process import ServerFailedError, start_server
from tests.faults.ledger import Ledger, SqliteLedger, assert_consistent, recover
from tests.faults.pausing_server import POINTS
from tests.faults.test_kill import MODELS, ask_until_killed

if TYPE_CHECKING:
    from tests.faults.raw_client import Answer
    from tests.faults.upstream_process import UpstreamProcess

PAUSING = str(Path(__file__).with_name("pausing_server.py"))
KILLS_IN_SOAK = 1
"""Kills at each point, on each database."""
GROUPS = {"group begun", "being booked", "committed", "not yet forgotten", "forgotten"}
"""Points that are passed once for a group of charges."""


async def kill_at(
    point: str, upstream: UpstreamProcess, tmp_path: Path, ledger: Ledger, kills: int
) -> None:
    config, key, in_flight = upstream.config(MODELS), "", 0
    whole: list[Answer] = []
    for number in range(kills):
        marker = tmp_path / f"reached-{number}"
        passes = random.randint(1, 4) if point in GROUPS else random.randint(20, 100)
        program = [sys.executable, PAUSING, point, str(passes), str(marker)]
        server = start_server(tmp_path, config=config, env=ledger.env, program=program)
        key = key or server.api_key
        received: list[Answer] = []
        broken: list[Answer] = []
        try:
            await ask_until_killed(server, key, received, broken, marker.exists)
        except TimeoutError:
            raise ServerFailedError(f"{point} was not reached: {server.stderr_text()}") from None
        finally:
            server.kill()
        whole.extend(received)
        in_flight += bool(broken)
        await recover(tmp_path, config, ledger)
        await assert_consistent(ledger, whole)
    assert in_flight * 2 > kills, "most kills have to hit replies under way"


@pytest.mark.parametrize("point", POINTS)
async def test_no_charge_is_lost_or_doubled_by_a_kill(
    point: str, upstream: UpstreamProcess, tmp_path: Path
) -> None:
    await kill_at(point, upstream, tmp_path, SqliteLedger(tmp_path / "data"), kills=1)


@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
async def test_many_kills_at_each_point_lose_and_double_no_charge(
    point: str, upstream: UpstreamProcess, tmp_path: Path, ledger: Ledger, soak_factor: int
) -> None:
    await kill_at(point, upstream, tmp_path, ledger, KILLS_IN_SOAK * soak_factor)

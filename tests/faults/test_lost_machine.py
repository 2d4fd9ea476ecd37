"""A machine that is gone keeps what it had of budgets, until an operator says otherwise."""

import asyncio
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import Deployment, body_of
from tests.support.postgresql_databases import PostgresqlDatabases, plain_url
from tests.support.server_process import DATABASE_URL, TOLLHOUSE
from tests.support.spenders import Spenders, admitted

BUDGET = 60


def ledger(deployment: Deployment, *args: str) -> Any:
    """Run a command of an operator on the first server's machine."""
    folder = str(deployment.servers[0].data_dir)
    command = [str(TOLLHOUSE), "ledger", *args, "--json", "--data-dir", folder]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.postgresql
async def test_what_a_lost_machine_had_is_spent_once_an_operator_says_so(
    postgresql: PostgresqlDatabases, tmp_path: Path
) -> None:
    env = {DATABASE_URL: plain_url(await asyncio.to_thread(postgresql.take))}
    deployment = await asyncio.to_thread(Deployment, tmp_path, env, servers=1)
    payer = await asyncio.to_thread(deployment.payer, "balance", BUDGET)
    async with Spenders(deployment, 0) as spenders:
        assert (await spenders.ask(payer.key, body_of(payer.model))).status == 200
        [alone] = ledger(deployment, "holders")
        assert alone["live"]
        assert alone["granted"] == "0.59", "who is alone has all that is left"

        lost = deployment.servers[0]
        lost.kill()
        shutil.rmtree(lost.data_dir)
        await asyncio.to_thread(deployment.start, 0)
        assert admitted(await spenders.times(4, payer)) == 0
        found = {each["id"]: each for each in ledger(deployment, "holders")}
        assert found[alone["id"]]["granted"] == "0.59"

        done = ledger(deployment, "write-off", alone["id"], "--return-rights")
        assert (done["live"], done["granted"], done["budgets"]) == (False, "0", 0)
        assert alone["id"] not in {each["id"] for each in ledger(deployment, "holders")}
        left = BUDGET - round(await asyncio.to_thread(deployment.used, payer))
        filled = await spenders.fill(replace(payer, k=left))
        assert admitted(filled) == left
    with pytest.raises(subprocess.CalledProcessError):
        ledger(deployment, "write-off", "nobody")
    assert deployment.differences() == []
    deployment.close()

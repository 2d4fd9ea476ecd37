"""Processes that share a data folder: one that dies is taken over, and one that lives is not."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.component.accounting.ledger_reader import (
    LedgerReader,
    charge_writer,
    expected_totals,
    record_for,
)
from tests.support.builders import Tenant, charge
from tests.support.child_processes import is_running
from tests.support.seams.accounting import (
    CostState,
    GenerationRecord,
    Recovery,
    journals_in,
    payload_of,
)
from tests.support.seams.accounting import recovery as module
from tests.support.waiting import until
from tollhouse.storage.database import Database
from tollhouse.storage.tables.accounting import generations, holders

PROGRAM: Final = (sys.executable, "-m", "tests.component.accounting.holder_process")
CHARGES: Final = 30


def records_of(tenant: Tenant, number: int) -> list[GenerationRecord]:
    """Return what a process has in its journal: a request that was cut off, then charges."""
    nothing = charge(0, state=CostState.INTERRUPTED, provider_cost_nano=None)
    first = number * 100
    charges = [record_for(tenant, first + each, cost_nano=each) for each in range(1, CHARGES)]
    return [record_for(tenant, first, charge=nothing), *charges]


async def start(root: Path, number: int, records: list[GenerationRecord]) -> tuple[Process, int]:
    """Start a process with a journal; return it, and the program that it has started."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, str(root), f"holder-{number}", stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n".join(map(payload_of, records)))
    process.stdin.write_eof()
    return process, int(await process.stdout.readline())


async def test_siblings_take_over_from_who_dies_once_and_leave_alone_who_lives(
    acme: Tenant,
    database: Database,
    ledger_reader: LedgerReader,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    root = tmp_path / "journal"
    dying, alive = [records_of(acme, each) for each in range(2)], records_of(acme, 2)
    processes = [await start(root, *each) for each in enumerate([*dying, alive])]
    async with database.writing() as write:
        for number in range(3):
            row = {"id": f"holder-{number}", "booked_seq": 0, "live": True}
            await write.execute(holders.insert().values(row))
    writers = [charge_writer(database, f"taker-{each}") for each in range(3)]
    takers = [asyncio.create_task(Recovery(root, each).watch()) for each in writers]
    try:
        os.kill(processes[2][0].pid, signal.SIGSTOP)
        for process, _ in processes[:2]:
            process.kill()
        await until(lambda: journals_in(root) == ["holder-2"])
        assert all(is_running(program) for _, program in processes)
    finally:
        for each in takers:
            each.cancel()
        await asyncio.gather(*takers, return_exceptions=True)
        for each in writers:
            await each.close()
        for process, program in processes:
            os.kill(program, signal.SIGKILL)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    booked = [record for records in dying for record in records]
    assert await ledger_reader.totals() == expected_totals(booked)
    states = [row.cost_state for row in await ledger_reader.rows(generations)]
    assert states.count("interrupted") == len(dying)
    released = {row.id: (row.live, row.epoch) for row in await ledger_reader.rows(holders)}
    assert released == {"holder-0": (False, 1), "holder-1": (False, 1), "holder-2": (True, 0)}

"""Interns on a real database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.interns.agency import Agency
from tests.integration.interns.machine import Machine
from tollhouse.storage.database import Database
from tollhouse.testing.builders import add_tenant
from tollhouse.testing.clock import FakeClock
from tollhouse.testing.ids import SequentialIds


@pytest.fixture
async def agency(
    database: Database, clock: FakeClock, ids: SequentialIds, tmp_path: Path
) -> Agency:
    """A tenant whose account is in the programme."""
    tenant = await add_tenant(database, clock=clock, ids=ids)
    agency = Agency(database, tenant, clock, ids, tmp_path / "logs")
    await agency.office.join()
    return agency


@pytest.fixture
async def machine(agency: Agency, tmp_path: Path) -> AsyncIterator[Machine]:
    """A server that runs interns; the workspace has a default model."""
    await agency.set_default_model("simulated/agent")
    machine = Machine(agency, tmp_path)
    await machine.start()
    yield machine
    await machine.stop()

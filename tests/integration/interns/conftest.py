"""Interns on a real database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.interns.agency import Agency, hired
from tests.integration.interns.machine import Machine, working_machine
from tollhouse.storage.database import Database
from tollhouse.testing.clock import FakeClock
from tollhouse.testing.ids import SequentialIds


@pytest.fixture
async def agency(
    database: Database, clock: FakeClock, ids: SequentialIds, tmp_path: Path
) -> Agency:
    return await hired(database, clock, ids, tmp_path)


@pytest.fixture
async def machine(agency: Agency, tmp_path: Path) -> AsyncIterator[Machine]:
    async with working_machine(agency, tmp_path) as machine:
        yield machine

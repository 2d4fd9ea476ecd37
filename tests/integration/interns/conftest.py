"""Interns on a real database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.interns.intern_fixture import InternFixture, make_intern_fixture
from tests.integration.interns.machine import Machine, running_machine
from tollhouse.storage.database import Database
from tollhouse.testing.clock import FakeClock
from tollhouse.testing.ids import SequentialIds


@pytest.fixture
async def interns(
    database: Database, clock: FakeClock, ids: SequentialIds, tmp_path: Path
) -> InternFixture:
    return await make_intern_fixture(database, clock, ids, tmp_path)


@pytest.fixture
async def machine(interns: InternFixture, tmp_path: Path) -> AsyncIterator[Machine]:
    async with running_machine(interns, tmp_path) as machine:
        yield machine

"""Interns on a real database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.component.interns.intern_fixture import InternFixture, make_intern_fixture
from tests.component.interns.machine import Machine, running_machine
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tollhouse.storage.database import Database


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.soak])]
)
def database_url(request: pytest.FixtureRequest) -> sa.URL:
    """A migrated database without rows; on PostgreSQL in the soak."""
    return request.getfixturevalue(f"migrated_{request.param}")


@pytest.fixture
async def interns(
    database: Database, clock: FakeClock, ids: SequentialIds, tmp_path: Path
) -> InternFixture:
    made = await make_intern_fixture(database, clock, ids, tmp_path)
    await made.set_default_model("simulated/agent")
    return made


@pytest.fixture
async def machine(interns: InternFixture, tmp_path: Path) -> AsyncIterator[Machine]:
    async with running_machine(interns, tmp_path) as machine:
        yield machine

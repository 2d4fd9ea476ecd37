"""The vault on a real database."""

import pytest

from tests.integration.vault.office import Office
from tollhouse.storage.database import Database
from tollhouse.testing.builders import add_tenant
from tollhouse.testing.clock import FakeClock
from tollhouse.testing.ids import SequentialIds


@pytest.fixture
async def office(database: Database, clock: FakeClock, ids: SequentialIds) -> Office:
    """A tenant whose account is in the programme."""
    office = Office(database, await add_tenant(database, clock=clock, ids=ids), clock, ids)
    await office.join()
    return office

"""The services of batches on a real database, with blobs in memory."""

import pytest

from tests.component.batches.batch_fixture import BatchFixture
from tests.support.builders import add_tenant
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tollhouse.storage.database import Database


@pytest.fixture
async def batches(database: Database, clock: FakeClock, ids: SequentialIds) -> BatchFixture:
    """An account with 1,000 credits, and the services that change its batches."""
    tenant = await add_tenant(database, clock=clock, ids=ids)
    batches = BatchFixture(database, tenant, clock, ids)
    await batches.grant(1_000)
    return batches

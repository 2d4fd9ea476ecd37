"""The slice of batches on a real database, with blobs in memory."""

import pytest

from tests.integration.batches.desk import BatchDesk
from tollhouse.storage.database import Database
from tollhouse.testing.builders import add_tenant
from tollhouse.testing.clock import FakeClock
from tollhouse.testing.ids import SequentialIds


@pytest.fixture
async def desk(database: Database, clock: FakeClock, ids: SequentialIds) -> BatchDesk:
    """An account with 1,000 credits, and all that changes its batches."""
    tenant = await add_tenant(database, clock=clock, ids=ids)
    desk = BatchDesk(database, tenant, clock, ids)
    await desk.grant(1_000)
    return desk

"""The identity slice on a real database."""

import pytest

from tests.support.builders import Tenant, add_tenant
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.identity import Authenticator, IdentityService
from tollhouse.storage.database import Database


@pytest.fixture
def authenticator(database: Database, clock: FakeClock) -> Authenticator:
    return Authenticator(database, clock)


@pytest.fixture
def service(clock: FakeClock, ids: SequentialIds) -> IdentityService:
    return IdentityService(clock, ids)


@pytest.fixture
async def acme(database: Database, clock: FakeClock, ids: SequentialIds) -> Tenant:
    """An account with its default workspace and an API key."""
    return await add_tenant(database, clock=clock, ids=ids)


@pytest.fixture
async def other(database: Database, clock: FakeClock, ids: SequentialIds) -> Tenant:
    """Another account."""
    return await add_tenant(database, clock=clock, ids=ids, name="Other")

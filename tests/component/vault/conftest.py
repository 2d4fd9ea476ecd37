"""The vault on a real database."""

import pytest

from tests.component.vault.vault_fixture import VaultFixture
from tests.support.builders import add_tenant
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tollhouse.storage.database import Database


@pytest.fixture
async def vault(database: Database, clock: FakeClock, ids: SequentialIds) -> VaultFixture:
    """A tenant whose account is in the programme."""
    vault = VaultFixture(database, await add_tenant(database, clock=clock, ids=ids), clock, ids)
    await vault.set_switches(intern_programme=True)
    return vault

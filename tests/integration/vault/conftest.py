"""The vault on a real database."""

import pytest

from tests.fakes.builders import add_tenant
from tests.fakes.clock import FakeClock
from tests.fakes.ids import SequentialIds
from tests.integration.vault.vault_fixture import VaultFixture
from tollhouse.storage.database import Database


@pytest.fixture
async def vault(database: Database, clock: FakeClock, ids: SequentialIds) -> VaultFixture:
    """A tenant whose account is in the programme."""
    vault = VaultFixture(database, await add_tenant(database, clock=clock, ids=ids), clock, ids)
    await vault.set_switches(intern_programme=True)
    return vault

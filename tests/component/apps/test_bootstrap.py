"""The first account of an installation."""

import asyncio

import pytest

from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.accounting import AccountingService
from tests.support.seams.identity import IdentityService
from tollhouse.apps.bootstrap import OPERATOR, Bootstrapped, bootstrap_if_empty
from tollhouse.kernel.pages import Window
from tollhouse.settings.sections import Settings
from tollhouse.storage.database import Database


class Installation:
    def __init__(self, database: Database, clock: FakeClock, ids: SequentialIds) -> None:
        self.database = database
        self.identity = IdentityService(clock, ids)
        self.accounting = AccountingService(clock, ids)

    async def first_start(self, **settings: object) -> Bootstrapped | None:
        given = {"data_dir": "/nowhere", "accounting": {"initial_grant": "10"}, **settings}
        chosen = Settings.model_validate(given)
        async with self.database.writing() as write:
            return await bootstrap_if_empty(write, self.identity, self.accounting, chosen)

    async def default_model(self, made: Bootstrapped | None) -> object:
        assert made is not None
        async with self.database.reading() as read:
            found = await self.identity.workspace(read, made.account_id, made.workspace_id)
        return found.preferences.get("default_text_model")


@pytest.fixture
def installation(database: Database, clock: FakeClock, ids: SequentialIds) -> Installation:
    return Installation(database, clock, ids)


async def test_first_starts_at_once_make_one_account(installation: Installation) -> None:
    made = await asyncio.gather(*(installation.first_start() for _ in range(5)))
    async with installation.database.reading() as read:
        accounts = await installation.identity.accounts(read, OPERATOR, Window())
    assert accounts.total == 1
    assert sum(each is not None for each in made) == 1


async def test_interns_of_a_first_workspace_run_with_what_needs_no_key(
    installation: Installation,
) -> None:
    made = await installation.first_start()
    assert await installation.default_model(made) == "simulated/agent"


async def test_where_nothing_is_simulated_no_model_is_chosen(installation: Installation) -> None:
    acme = {"slug": "acme", "kind": "openai_compatible", "base_url": "http://127.0.0.1:1/v1"}
    made = await installation.first_start(providers=[acme])
    assert await installation.default_model(made) is None

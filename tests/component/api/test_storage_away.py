import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing

import pytest
import sqlalchemy as sa

from tests.component.api.conftest import Acme, ControlPlane
from tollhouse.storage.database import Database

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
async def locked(database: Database, acme: Acme) -> AsyncIterator[None]:
    """Another program holds the database; ours waits no time for it."""
    del acme
    async with database.writing() as write:
        await write.execute(sa.text("PRAGMA busy_timeout = 0"))
    with closing(sqlite3.connect(str(database.url.database))) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.rollback()


@pytest.mark.usefixtures("locked")
async def test_no_operation_on_a_locked_database_is_a_500(acme: Acme, plane: ControlPlane) -> None:
    seen = set[int]()
    for path, operations in plane.app.openapi()["paths"].items():
        for method in operations:
            for who in (acme.operator, acme.management, acme.api):
                where = re.sub(r"{[^}]*}", acme.workspace_id, path)
                reply = await who.request(method, where, json={"name": "x", "amount": 1})
                assert reply.status_code != 500, (method, path)
                seen.add(reply.status_code)
    assert 503 in seen

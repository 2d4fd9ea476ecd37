"""Own keys in memory: what is remembered, and what becomes of it when something is out of order."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clock import FakeClock
from tollhouse.kernel.errors import Unavailable
from tollhouse.provider_keys.own_keys import OwnKeys

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class BrokenDatabase:
    """A database that cannot be asked."""

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[Any]:
        raise OSError("gone")
        yield


async def test_a_database_that_cannot_be_asked_refuses_for_now_and_is_not_remembered() -> None:
    database: Any = BrokenDatabase()
    vault: Any = None
    own_keys = OwnKeys(database, vault, FakeClock(), None)
    with pytest.raises(Unavailable, match="try again in a moment"):
        await own_keys.read("acc")
    assert own_keys.known("acc") is None

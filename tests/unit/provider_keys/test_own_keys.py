"""Own keys in memory: what is remembered, and what becomes of it when something is out of order."""

from typing import Any
from unittest.mock import Mock

import pytest

from tests.support.clock import FakeClock
from tollhouse.kernel.errors import Unavailable
from tollhouse.provider_keys.own_keys import OwnKeys


async def test_a_database_that_cannot_be_asked_refuses_for_now_and_is_not_remembered() -> None:
    vault: Any = None
    own_keys = OwnKeys(Mock(reading=Mock(side_effect=OSError("gone"))), vault, FakeClock())
    with pytest.raises(Unavailable, match="try again in a moment"):
        await own_keys.read("acc")
    assert own_keys.known("acc") is None

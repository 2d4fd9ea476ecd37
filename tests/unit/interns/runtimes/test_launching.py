"""What a program says is waited for, but not for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tollhouse.interns.runtimes import launching
from tollhouse.interns.runtimes.launching import Tail

if TYPE_CHECKING:
    import pytest


async def test_what_was_said_is_told_when_all_have_left() -> None:
    tail = Tail()
    telling = asyncio.create_task(tail.text())
    tail.data_received(b"first, ")
    await asyncio.sleep(0)
    tail.data_received(b"last\n")
    tail.connection_lost(None)
    assert await telling == "first, last"


async def test_somebody_who_never_leaves_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launching, "_SAYING_SECONDS", 0.01)
    tail = Tail()
    tail.data_received(b"refused")
    async with asyncio.timeout(30):
        assert await tail.text() == "refused"

"""A head waits for its first bytes of body, but no longer than a turn of the event loop."""

import asyncio
from typing import Any, cast

import pytest

from tollhouse.api.server import Corked

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Wire:
    """Remembers what a transport was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def write_eof(self) -> None:
        self.told.append("eof")

    def close(self) -> None:
        self.told.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.told


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def corked(wire: Wire) -> Corked:
    return Corked(cast("Any", wire), asyncio.get_running_loop())


async def test_a_head_and_what_follows_it_at_once_are_one_write(wire: Wire, corked: Corked) -> None:
    corked.write(HEAD)
    corked.write(b"body")
    corked.write(b"more")
    await asyncio.sleep(0)
    assert wire.told == [HEAD + b"body", b"more"]


async def test_a_head_alone_leaves_in_the_next_turn(wire: Wire, corked: Corked) -> None:
    corked.write(HEAD)
    assert wire.told == []
    await asyncio.sleep(0)
    assert wire.told == [HEAD]
    corked.write(b"late")
    assert wire.told == [HEAD, b"late"]


async def test_two_heads_in_one_turn_keep_their_order(wire: Wire, corked: Corked) -> None:
    for _ in range(2):
        corked.write(HEAD)
        corked.write(b"x")
    assert wire.told == [HEAD + b"x"] * 2


async def test_an_end_comes_after_a_head_that_waits(wire: Wire, corked: Corked) -> None:
    corked.write(HEAD)
    corked.close()
    assert wire.told == [HEAD, "closed"]
    assert corked.is_closing()


async def test_a_half_close_comes_after_a_head_that_waits(wire: Wire, corked: Corked) -> None:
    corked.write(HEAD)
    corked.write_eof()
    assert wire.told == [HEAD, "eof"]

"""Both event loops, and a check for leaked child processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import uvloop

from tests.support.child_processes import own_children
from tests.support.memory_blobs import MemoryBlobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = own_children()
    yield
    assert own_children() <= before

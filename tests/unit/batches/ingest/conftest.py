"""The event loop of the server, and a check for leaked child processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import uvloop

from tests.support.memory_blobs import MemoryBlobs
from tests.unit.batches.ingest.child_processes import own_children

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Mapping


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = own_children()
    yield
    assert own_children() <= before

"""The event loop of the server, and a check for leaked child processes."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.support.child_processes import own_children
from tests.support.event_loops import loops_for
from tests.support.memory_blobs import MemoryBlobs


def pytest_asyncio_loop_factories(
    item: pytest.Function,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return loops_for(item)


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = own_children()
    yield
    assert own_children() <= before

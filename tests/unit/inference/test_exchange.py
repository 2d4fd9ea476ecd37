import asyncio

import pytest

from tests.unit.inference.fakes import received, steps
from tollhouse.inference.exchange import HIGH_WATER, Exchange
from tollhouse.kernel.errors import Unavailable

FAILURE = Unavailable("gone")


async def test_what_was_written_is_read_in_order() -> None:
    exchange = Exchange("gen-1")
    await exchange.write(b"a")
    await exchange.write(b"b")
    exchange.finish(b"c")
    assert await received(exchange) == b"abc"


async def test_a_reader_waits_for_what_is_written() -> None:
    exchange = Exchange("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    assert not read.done()
    await exchange.write(b"a")
    assert await read == b"a"


async def test_after_the_end_there_is_nothing_to_read_ever() -> None:
    exchange = Exchange("gen-1")
    exchange.end()
    assert [await exchange.read(), await exchange.read()] == [b"", b""]


async def test_a_reader_that_waits_learns_of_the_end() -> None:
    exchange = Exchange("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    exchange.end()
    assert await read == b""


async def test_a_reader_that_waits_learns_of_a_failure() -> None:
    exchange = Exchange("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    exchange.fail(FAILURE)
    with pytest.raises(Unavailable):
        await read


async def test_a_failure_is_read_as_often_as_wanted() -> None:
    exchange = Exchange("gen-1")
    exchange.fail(FAILURE)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await exchange.read()


async def test_a_failure_after_the_end_is_moot() -> None:
    exchange = Exchange("gen-1")
    exchange.finish(b"a")
    exchange.fail(FAILURE)
    assert await received(exchange) == b"a"


async def test_a_writer_waits_while_the_reader_is_far_behind() -> None:
    exchange = Exchange("gen-1")
    await exchange.write(b"x" * HIGH_WATER)
    write = asyncio.create_task(exchange.write(b"y"))
    await steps()
    assert not write.done()
    assert len(await exchange.read()) == HIGH_WATER + 1
    await write


async def test_the_last_bytes_never_wait() -> None:
    exchange = Exchange("gen-1")
    await exchange.write(b"x" * HIGH_WATER)
    exchange.finish(b"y" * HIGH_WATER)
    assert len(await received(exchange)) == 2 * HIGH_WATER


async def test_a_writer_that_waits_goes_on_when_the_reader_goes_away() -> None:
    exchange = Exchange("gen-1")
    write = asyncio.create_task(exchange.write(b"x" * (HIGH_WATER + 1)))
    await steps()
    exchange.abandon()
    await write


async def test_after_the_reader_went_away_nothing_is_kept() -> None:
    exchange = Exchange("gen-1")
    await exchange.write(b"a")
    exchange.abandon()
    await exchange.write(b"x" * (2 * HIGH_WATER))
    exchange.finish(b"b")
    assert await exchange.read() == b""


async def test_the_producer_learns_once_that_the_reader_went_away() -> None:
    exchange, calls = Exchange("gen-1"), []
    exchange.on_abandon = lambda: calls.append(1)
    exchange.abandon()
    exchange.abandon()
    assert calls == [1]
    assert exchange.abandoned


async def test_going_away_after_the_end_means_nothing() -> None:
    exchange, calls = Exchange("gen-1"), []
    exchange.on_abandon = lambda: calls.append(1)
    exchange.end()
    exchange.abandon()
    assert calls == []
    assert not exchange.abandoned


async def test_going_away_wakes_a_reader_that_waits() -> None:
    exchange = Exchange("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    exchange.abandon()
    assert await read == b""


async def test_a_reader_that_was_cancelled_can_be_followed_by_another() -> None:
    exchange = Exchange("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    read.cancel()
    await steps()
    await exchange.write(b"a")
    assert await exchange.read() == b"a"

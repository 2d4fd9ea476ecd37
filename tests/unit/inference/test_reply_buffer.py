import asyncio

import pytest

from tests.unit.inference.fakes import received, steps
from tollhouse.inference.reply_buffer import HIGH_WATER, ReplyBuffer
from tollhouse.kernel.errors import Unavailable

FAILURE = Unavailable("gone")


async def test_what_was_written_is_read_in_order() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.write(b"a")
    exchange.write(b"b")
    exchange.finish(b"c")
    assert await received(exchange) == b"abc"


async def test_a_reader_waits_for_what_is_written() -> None:
    exchange = ReplyBuffer("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    assert not read.done()
    exchange.write(b"a")
    assert await read == b"a"


async def test_after_the_end_there_is_nothing_to_read_ever() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.finish(b"")
    assert [await exchange.read(), await exchange.read()] == [b"", b""]


async def test_a_reader_that_waits_learns_of_the_end() -> None:
    exchange = ReplyBuffer("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    exchange.finish(b"")
    assert await read == b""


async def test_a_reader_that_waits_learns_of_a_failure() -> None:
    exchange = ReplyBuffer("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    exchange.fail(FAILURE)
    with pytest.raises(Unavailable):
        await read


async def test_a_failure_is_read_as_often_as_wanted() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.fail(FAILURE)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await exchange.read()


async def test_a_failure_after_the_end_is_moot() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.finish(b"a")
    exchange.fail(FAILURE)
    assert await received(exchange) == b"a"


async def test_a_writer_waits_while_the_reader_is_far_behind() -> None:
    exchange = ReplyBuffer("gen-1")
    assert exchange.write(b"x" * HIGH_WATER)
    assert not exchange.write(b"y")
    wait = asyncio.create_task(exchange.room())
    await steps()
    assert not wait.done()
    assert len(await exchange.read()) == HIGH_WATER + 1
    await wait


async def test_the_last_bytes_never_wait() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.write(b"x" * HIGH_WATER)
    exchange.finish(b"y" * HIGH_WATER)
    assert len(await received(exchange)) == 2 * HIGH_WATER


async def test_a_writer_that_waits_goes_on_when_the_reader_goes_away() -> None:
    exchange = ReplyBuffer("gen-1")
    assert not exchange.write(b"x" * (HIGH_WATER + 1))
    wait = asyncio.create_task(exchange.room())
    await steps()
    exchange.client_left()
    await wait


async def test_after_the_reader_went_away_nothing_is_kept() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.write(b"a")
    exchange.client_left()
    exchange.write(b"x" * (2 * HIGH_WATER))
    exchange.finish(b"b")
    assert await exchange.read() == b""


async def test_the_producer_learns_once_that_the_reader_went_away() -> None:
    exchange, calls = ReplyBuffer("gen-1"), []
    exchange.on_abandon = lambda: calls.append(1)
    exchange.client_left()
    exchange.client_left()
    assert calls == [1]
    assert exchange.abandoned


async def test_going_away_after_the_end_means_nothing() -> None:
    exchange, calls = ReplyBuffer("gen-1"), []
    exchange.on_abandon = lambda: calls.append(1)
    exchange.finish(b"")
    exchange.client_left()
    assert calls == []
    assert not exchange.abandoned


async def test_going_away_wakes_a_reader_that_waits() -> None:
    exchange = ReplyBuffer("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    exchange.client_left()
    assert await read == b""


async def test_a_reader_that_was_cancelled_can_be_followed_by_another() -> None:
    exchange = ReplyBuffer("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    read.cancel()
    await steps()
    exchange.write(b"a")
    assert await exchange.read() == b"a"


async def test_an_exchange_is_drained_once_its_last_bytes_were_read() -> None:
    exchange = ReplyBuffer("gen-1")
    assert not exchange.drained
    exchange.finish(b"a")
    assert not exchange.drained
    await exchange.read()
    assert exchange.drained


# Keeping a silent reply alive

BEAT = b": beat\n\n"


async def test_a_silent_reply_gets_a_comment_now_and_then() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.keep_alive(0.001, BEAT)
    assert await exchange.read() == BEAT
    assert await exchange.read() == BEAT
    assert exchange.begun
    exchange.finish(b"")


async def test_a_reply_that_speaks_gets_no_comment_in_that_time() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.keep_alive(3600, BEAT)
    exchange.write(b"a")
    exchange.keep_alive(3600, BEAT)
    assert await exchange.read() == b"a"
    exchange.keep_alive(3600, BEAT)
    assert await exchange.read() == BEAT
    exchange.finish(b"")


async def test_nothing_follows_the_end_of_a_reply() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.keep_alive(0.001, BEAT)
    exchange.finish(b"end")
    await asyncio.sleep(0.01)
    assert await exchange.read() == b"end"
    assert exchange.drained


async def test_an_abandoned_reply_gets_no_comment() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.keep_alive(0.001, BEAT)
    exchange.client_left()
    await asyncio.sleep(0.01)
    assert not exchange.begun

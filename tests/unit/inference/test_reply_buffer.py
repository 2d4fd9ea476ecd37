import asyncio

import pytest

from tests.unit.inference.fakes import received, steps
from tollhouse.inference.reply_buffer import HIGH_WATER, ReplyBuffer
from tollhouse.kernel.errors import Unavailable

FAILURE = Unavailable("gone")


async def test_what_was_written_is_read_in_order() -> None:
    exchange = ReplyBuffer("gen-1")
    await exchange.write(b"a")
    await exchange.write(b"b")
    exchange.finish(b"c")
    assert await received(exchange) == b"abc"


async def test_a_reader_waits_for_what_is_written() -> None:
    exchange = ReplyBuffer("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    assert not read.done()
    await exchange.write(b"a")
    assert await read == b"a"


async def test_after_the_end_there_is_nothing_to_read_ever() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.end()
    assert [await exchange.read(), await exchange.read()] == [b"", b""]


async def test_a_reader_that_waits_learns_of_the_end() -> None:
    exchange = ReplyBuffer("gen-1")
    read = asyncio.create_task(exchange.read())
    await steps()
    exchange.end()
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
    await exchange.write(b"x" * HIGH_WATER)
    write = asyncio.create_task(exchange.write(b"y"))
    await steps()
    assert not write.done()
    assert len(await exchange.read()) == HIGH_WATER + 1
    await write


async def test_the_last_bytes_never_wait() -> None:
    exchange = ReplyBuffer("gen-1")
    await exchange.write(b"x" * HIGH_WATER)
    exchange.finish(b"y" * HIGH_WATER)
    assert len(await received(exchange)) == 2 * HIGH_WATER


async def test_a_writer_that_waits_goes_on_when_the_reader_goes_away() -> None:
    exchange = ReplyBuffer("gen-1")
    write = asyncio.create_task(exchange.write(b"x" * (HIGH_WATER + 1)))
    await steps()
    exchange.client_left()
    await write


async def test_after_the_reader_went_away_nothing_is_kept() -> None:
    exchange = ReplyBuffer("gen-1")
    await exchange.write(b"a")
    exchange.client_left()
    await exchange.write(b"x" * (2 * HIGH_WATER))
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
    exchange.end()
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
    await exchange.write(b"a")
    assert await exchange.read() == b"a"


class Pipe:
    """A sink with room for so many writes."""

    def __init__(self, room: int) -> None:
        self.got: list[bytes] = []
        self._room = room

    def __call__(self, data: bytes) -> bool:
        self.got.append(data)
        return len(self.got) < self._room


async def test_what_is_written_goes_straight_into_a_sink() -> None:
    exchange, sink = ReplyBuffer("gen-1"), Pipe(room=9)
    pouring = asyncio.create_task(exchange.stream_to(sink))
    await steps()
    await exchange.write(b"a")
    await exchange.write(b"b")
    assert sink.got == [b"a", b"b"]
    assert not pouring.done()
    exchange.finish(b"c")
    await pouring
    assert sink.got == [b"a", b"b"]
    assert await received(exchange) == b"c"


async def test_what_follows_a_full_sink_waits_to_be_read() -> None:
    exchange, sink = ReplyBuffer("gen-1"), Pipe(room=2)
    pouring = asyncio.create_task(exchange.stream_to(sink))
    await steps()
    for piece in (b"a", b"b", b"c"):
        await exchange.write(piece)
    await pouring
    assert sink.got == [b"a", b"b"]
    assert await exchange.read() == b"c"


async def test_nothing_is_poured_past_what_waits_to_be_read() -> None:
    exchange, sink = ReplyBuffer("gen-1"), Pipe(room=9)
    await exchange.write(b"a")
    await exchange.stream_to(sink)
    assert sink.got == []
    assert await exchange.read() == b"a"


async def test_pouring_ends_when_the_client_goes_away() -> None:
    exchange, sink = ReplyBuffer("gen-1"), Pipe(room=9)
    pouring = asyncio.create_task(exchange.stream_to(sink))
    await steps()
    exchange.client_left()
    await pouring
    await exchange.write(b"a")
    assert sink.got == []
    assert exchange.drained


async def test_a_cancelled_pouring_leaves_what_follows_to_be_read() -> None:
    exchange, sink = ReplyBuffer("gen-1"), Pipe(room=9)
    pouring = asyncio.create_task(exchange.stream_to(sink))
    await steps()
    pouring.cancel()
    await asyncio.wait([pouring])
    await exchange.write(b"a")
    assert sink.got == []
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
    exchange.end()


async def test_a_reply_that_speaks_gets_no_comment_in_that_time() -> None:
    exchange = ReplyBuffer("gen-1")
    exchange.keep_alive(3600, BEAT)
    await exchange.write(b"a")
    exchange.keep_alive(3600, BEAT)
    assert await exchange.read() == b"a"
    exchange.keep_alive(3600, BEAT)
    assert await exchange.read() == BEAT
    exchange.end()


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


async def test_a_comment_goes_to_the_sink_where_there_is_one() -> None:
    exchange, poured = ReplyBuffer("gen-1"), bytearray()

    def sink(data: bytes) -> bool:
        poured.extend(data)
        return False

    exchange.keep_alive(0.001, BEAT)
    await exchange.stream_to(sink)
    assert bytes(poured) == BEAT
    exchange.end()

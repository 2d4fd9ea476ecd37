"""A silent reply is kept alive with comments, and by nothing else."""

import pytest

from tests.support.loop_time import LoopTime
from tests.support.waiting import take_turns
from tollhouse.inference.reply_buffer import ReplyBuffer

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


async def test_nothing_follows_the_end_of_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    time = LoopTime(monkeypatch)
    exchange = ReplyBuffer("gen-1")
    exchange.keep_alive(60, BEAT)
    exchange.finish(b"end")
    await time.advance(61)
    await take_turns()
    assert await exchange.read() == b"end"
    assert exchange.drained


async def test_an_abandoned_reply_gets_no_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    time = LoopTime(monkeypatch)
    exchange = ReplyBuffer("gen-1")
    exchange.keep_alive(60, BEAT)
    exchange.client_left()
    await time.advance(61)
    await take_turns()
    assert not exchange.begun

"""A stream in time: alive while it is silent, ended in any case."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.chat_grammar import ParsedChat, check_stream
from tollhouse.interns.chat.daemon_client import StreamSevered
from tollhouse.interns.chat.errors import CLIENT_CLOSED
from tollhouse.interns.chat.events import DaemonTextEvent, RunEnded, RunStarted
from tollhouse.interns.chat.service import InternChatStream
from tollhouse.interns.chat.transcript import ChatTimeouts, Transcript, relay
from tollhouse.observability.metrics import Metrics

if TYPE_CHECKING:
    from tollhouse.interns.chat.events import DaemonEvent

DONE = RunEnded(outcome="completed")
FOREVER = 3_600.0


class Script:
    """Events at their time: a number waits so long, an error is raised."""

    def __init__(self, *steps: list[DaemonEvent] | float | Exception) -> None:
        self._steps = list(steps)
        self._wakes_at: float | None = None

    async def events(self) -> list[DaemonEvent]:
        while self._steps:
            step = self._steps[0]
            if isinstance(step, float):
                await self._sleep(step)
            self._steps.pop(0)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, list):
                return step
        raise StreamSevered

    async def _sleep(self, seconds: float) -> None:
        """Sleep so long in all, however often it is cut off."""
        now = asyncio.get_running_loop().time()
        if self._wakes_at is None:
            self._wakes_at = now + seconds
        await asyncio.sleep(self._wakes_at - now)
        self._wakes_at = None


class Written:
    """Where a stream goes."""

    def __init__(self) -> None:
        self.data = b""
        self.held = asyncio.Event()
        self.held.set()

    async def __call__(self, data: bytes) -> None:
        await self.held.wait()
        self.data += data

    @property
    def told(self) -> ParsedChat:
        return check_stream(self.data)


def transcript() -> Transcript:
    completion = "chatcmpl-00000000-0000-4000-8000-000000000001"
    return Transcript(completion, 1_700_000_000, "s", known=True)


async def relayed(*steps: Any, **paces: float) -> ParsedChat:
    written = Written()
    await relay(Script(*steps), transcript(), written, ChatTimeouts(**paces))
    return written.told


async def test_a_run_is_relayed_to_its_end() -> None:
    told = await relayed(
        [RunStarted(model="a/b")], [DaemonTextEvent(text="x"), DaemonTextEvent(text="y")], [DONE]
    )
    assert (told.content, told.finish, told.keep_alives) == ("xy", "stop", 0)


async def test_silence_is_filled() -> None:
    told = await relayed([RunStarted()], 0.1, [DONE], silence=0.02)
    assert told.keep_alives >= 1
    assert told.finish == "stop"


async def test_events_that_are_not_for_callers_do_not_break_the_silence() -> None:
    quiet = [step for _ in range(10) for step in (0.01, [])]
    told = await relayed([DaemonTextEvent(text="x")], *quiet, [DONE], silence=0.03)
    assert told.keep_alives >= 1
    assert told.finish == "stop"


async def test_a_stream_that_takes_too_long_times_out() -> None:
    told = await relayed([RunStarted(model="a/b"), DaemonTextEvent(text="x")], FOREVER, stream=0.02)
    assert told.error is not None
    assert (told.error["code"], told.reason, told.usage) == (504, "timeout", None)


async def test_keep_alives_do_not_prolong_a_stream() -> None:
    told = await relayed([DaemonTextEvent(text="x")], FOREVER, stream=0.1, silence=0.01)
    assert told.reason == "timeout"
    assert told.keep_alives >= 1


async def test_a_stream_that_breaks_is_severed() -> None:
    told = await relayed([DaemonTextEvent(text="x")], StreamSevered())
    assert told.error is not None
    assert (told.error["code"], told.reason) == (502, "stream_severed")


async def test_a_stream_that_breaks_before_any_event_is_severed() -> None:
    assert (await relayed()).reason == "stream_severed"


async def begin(written: Written, **paces: float) -> tuple[asyncio.Task[None], Transcript]:
    stream = transcript()
    script = Script([DaemonTextEvent(text="x")], FOREVER)
    task = asyncio.create_task(relay(script, stream, written, ChatTimeouts(**paces)))
    await asyncio.sleep(0.01)
    return task, stream


async def test_a_stream_that_the_server_ends_is_severed_first() -> None:
    written = Written()
    task, _ = await begin(written)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert written.told.reason == "stream_severed"


async def test_nothing_is_written_to_a_caller_that_has_left() -> None:
    written = Written()
    task, stream = await begin(written)
    before = written.data
    stream.fail(CLIENT_CLOSED)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert written.data == before


async def test_a_caller_that_does_not_read_is_given_up() -> None:
    written = Written()
    written.held.clear()
    with pytest.raises(TimeoutError):
        await relay(Script(), transcript(), written, ChatTimeouts(stream=0.01, farewell=0.01))


async def test_a_server_that_stops_does_not_wait_for_a_caller_that_does_not_read() -> None:
    written = Written()
    task, _ = await begin(written, farewell=0.01)
    written.held.clear()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_fault_of_ours_does_not_wait_for_a_caller_that_does_not_read() -> None:
    written, faulty = Written(), Script(RuntimeError("a bug"))

    async def write(data: bytes) -> None:
        await written(data)
        written.held.clear()  # it reads the first chunk, and no more

    reply: Any = faulty
    conversation = InternChatStream(reply, transcript(), ChatTimeouts(farewell=0.01), Metrics())
    with pytest.raises(TimeoutError):
        await conversation.run(write)

"""Kills amid runs: the log stays whole, and the conversation goes on."""

import random
from collections.abc import Callable

import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.component.sandbox.sessions.programs import is_running, kill_agent, kill_remaining
from tests.support.model_server import FakeModel, call, hangs, says
from tests.support.session_client import Events, SessionClient, assert_complete
from tests.support.waiting import until


def kill(daemon: DaemonProcess) -> None:
    daemon.process.kill()
    daemon.process.wait()


async def test_a_killed_agent_ends_its_run_at_once(
    model: FakeModel, session: SessionClient, daemon: DaemonProcess
) -> None:
    model.turns = [says("I wait.", call("shell", command="sleep 86394"))]
    async with session.running("Wait.") as stream:
        await stream.until("tool.started")
        await until(lambda: is_running(daemon, "86394"))
        await kill_agent(daemon)
        events = await stream.rest()
    assert events.outcomes == ["interrupted"]
    assert events.last["outcome"] == "failed"
    error = events.last["error"]
    assert (error["code"], error["reason"], error["retryable"]) == (502, "stream_severed", True)
    assert events.last["usage"]["input_tokens"] == 10
    await until(lambda: not is_running(daemon, "86394"))

    model.turns = [says("Back.")]
    assert (await session.run("Go on.")).text == "Back."
    told = model.messages()
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "user"]
    assert told[1]["content"] == "I wait."
    assert_complete(await session.events())


async def test_what_was_said_to_an_agent_that_was_killed_is_said_to_the_next(
    model: FakeModel, session: SessionClient, daemon: DaemonProcess
) -> None:
    model.turns = [says("Hello.")]
    await session.run("Hello?")
    await kill_agent(daemon)
    model.turns = [hangs()]
    async with session.running("My name is Ada.") as stream:
        await stream.next()
        await kill_agent(daemon)
        await stream.rest()
    model.turns, model.always = [], says("Ada.")  # the killed agent's last question may come late
    await session.run("What is my name?")
    assert "My name is Ada." in str(model.messages())
    assert_complete(await session.events())


async def test_a_killed_daemon_says_at_its_next_start_what_it_left(
    model: FakeModel, start: Callable[..., DaemonProcess]
) -> None:
    model.turns = [says("I wait.", call("shell", command="sleep 1000"))]
    with start() as daemon:
        session = SessionClient(daemon)
        async with session.following() as stream, session.running("Wait.") as run:
            await run.until("tool.started")
            await stream.until("tool.started")
            kill(daemon)
        kill_remaining(daemon)
    model.turns = [says("Back.")]
    with start() as daemon:
        session = SessionClient(daemon)
        events = await session.events()
        assert events[: len(stream.events)] == stream.events
        assert events.kinds()[-2:] == ["tool.ended", "run.ended"]
        assert events.last["error"]["reason"] == "stream_severed"
        assert (await session.run("Go on.")).text == "Back."
        assert [message["role"] for message in model.messages()] == [
            *("user", "assistant", "tool", "user")
        ]
        assert_complete(await session.events())


async def test_a_suspension_ends_the_run_that_works(
    model: FakeModel, start: Callable[..., DaemonProcess]
) -> None:
    model.turns = [says(call("shell", command="sleep 1000"))]
    with start() as daemon:
        async with SessionClient(daemon).running("Wait.") as stream:
            await stream.until("tool.started")
            assert daemon.end() == 0
            events = await stream.rest()
        assert daemon.processes() == []
    assert events.last["error"]["reason"] == "stream_severed"
    with start() as daemon:
        assert_complete(await SessionClient(daemon).events())


async def kill_somewhere(
    model: FakeModel, start: Callable[..., DaemonProcess], seed: int, *, whole: bool
) -> None:
    """Kill the daemon, or its agent, at some point of a run; then go on."""
    chance = random.Random(seed)
    words = [f"word{number} " for number in range(50)]
    model.always = None
    model.turns = [
        says(*words, call("shell", command="sleep 0.05; echo one")),
        says(*words, call("shell", command="sleep 0.05; echo two")),
        says("Done."),
    ]
    with start() as daemon:
        session = SessionClient(daemon)
        reads = chance.randrange(1, 12)
        async with session.running("Work.") as stream:
            for _ in range(reads):
                if (await stream.next()).kind == "run.ended":
                    break
            if whole:
                kill(daemon)
            else:
                await kill_agent(daemon)
        if whole:
            kill_remaining(daemon)
        seen = stream.events
        if not whole:
            async with session.following() as follower:
                await follower.until("run.ended")
            await go_on(model, session, seen)
    if whole:
        with start() as daemon:
            await go_on(model, SessionClient(daemon), seen)


async def go_on(model: FakeModel, session: SessionClient, seen: Events) -> None:
    assert (await session.events())[: len(seen)] == seen
    model.turns, model.always = [], says("Back.")  # the killed agent's last question may come late
    assert (await session.run("Go on.")).text == "Back."
    told = model.messages()
    assert "Work." in str(told[0]["content"])
    assert "Go on." in str(told[-1]["content"])
    assert_complete(await session.events())


@pytest.mark.parametrize(("killed", "seed"), [("daemon", 0), ("agent", 1)])
async def test_a_kill_leaves_no_hole_and_the_next_prompt_goes_on(
    model: FakeModel, start: Callable[..., DaemonProcess], seed: int, killed: str
) -> None:
    await kill_somewhere(model, start, seed, whole=killed == "daemon")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 20))
@pytest.mark.parametrize("killed", ["daemon", "agent"])
async def test_twenty_kills_leave_no_hole(
    model: FakeModel, start: Callable[..., DaemonProcess], seed: int, killed: str
) -> None:
    await kill_somewhere(model, start, seed, whole=killed == "daemon")

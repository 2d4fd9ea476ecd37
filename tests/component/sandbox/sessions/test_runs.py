"""A run, as a client sees it."""

import asyncio
from collections.abc import Callable, Iterator
from threading import Event

import pytest

from tests.component.sandbox.daemon.daemon_process import COMMAND, DaemonProcess
from tests.component.sandbox.sessions.conftest import agent_settings
from tests.component.sandbox.sessions.programs import is_running
from tests.support.model_server import (
    MODEL,
    FakeModel,
    ModelResponse,
    Turn,
    call,
    hangs,
    once,
    says,
)
from tests.support.session_client import SessionClient
from tests.support.waiting import until

WAIT = call("shell", command="touch waits; while [ ! -e go ]; do sleep 0.05; done; rm go")


@pytest.fixture(scope="module")
def daemon(
    tmp_path_factory: pytest.TempPathFactory, shared_model: FakeModel
) -> Iterator[DaemonProcess]:
    """A daemon that is no fork, as its agent is none."""
    settings = agent_settings(shared_model)
    with DaemonProcess(tmp_path_factory.mktemp("daemon"), COMMAND, agent=settings) as daemon:
        yield daemon


async def test_a_run_tells_what_is_said_and_done(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    command = "echo made > note; cat note"
    model.turns = [says("I ", "look.", call("shell", command=command)), says("Done.")]

    events = await session.run("Make a note.")

    run = events[0].data["run"]
    kinds = ["run.started", "text", "tool.started", "tool.ended", "text", "run.ended"]
    assert events.kinds() == kinds
    assert {event.data["run"] for event in events} == {run}
    started = {"run": run, "input": "Make a note.", "approval_mode": "self-drive", "model": MODEL}
    assert events[0].data == started
    (tool,) = events.of("tool.started")
    assert (tool["tool"], tool["title"]) == ("shell", f"Run {command}")
    assert events.of("tool.ended") == [{"run": run, "call": tool["call"], "outcome": "done"}]
    assert events.text == "I look.\n\nDone."
    usage = {"input_tokens": 20, "cached_tokens": 8, "output_tokens": 6, "cost": "0.000010"}
    assert events.last == {"run": run, "outcome": "completed", "usage": usage}
    assert (daemon.workspace / "note").read_text() == "made\n"
    assert "made" in model.messages()[-1]["content"]


async def test_a_call_is_told_though_one_before_had_its_id(
    model: FakeModel, session: SessionClient
) -> None:
    model.turns = [runs("echo one"), runs("echo two"), says("Done.")]
    events = await session.run("Work.")
    assert [tool["title"] for tool in events.of("tool.started")] == ["Run echo one", "Run echo two"]
    assert len({tool["call"] for tool in events.of("tool.started")}) == 1
    assert (events.outcomes, events.text) == (["done", "done"], "Done.")


def runs(command: str) -> Turn:
    """Run a command, with the id that all have."""

    async def turn(answer: ModelResponse) -> None:
        await answer.begin()
        await answer.tool_call("shell", {"command": command}, "call_0")
        await answer.finish()

    return turn


async def test_the_owners_instructions_are_told_with_ours(
    model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says("Yes.")]
    await session.run("Are you there?")
    instructions = model.requests[0]["messages"][0]
    assert instructions["role"] == "system"
    assert instructions["content"].endswith("Be brief.")
    assert "{{secret:name}}" in instructions["content"]


async def test_reasoning_is_told_apart(model: FakeModel, session: SessionClient) -> None:
    async def turn(answer: ModelResponse) -> None:
        await answer.begin()
        await answer.chunk({"reasoning": "Hm. "})
        await answer.chunk({"content": "Yes."})
        await answer.finish()

    model.turns = [turn]
    events = await session.run("Think.")
    assert [data["text"] for data in events.of("reasoning")] == ["Hm. "]
    assert events.text == "Yes."


async def test_another_session_has_to_wait(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(WAIT), says("Done.")]
    async with session.running("Wait.") as stream:
        await stream.until("tool.started")
        refused = await SessionClient(daemon, "other").post("runs", {"input": "And me?"})
        assert refused.status_code == 409
        assert refused.json()["error"]["reason"] == "busy"
        assert int(refused.headers["Retry-After"]) > 0
        async with daemon.client() as client:
            assert (await client.get("/sessions")).json()["data"][0]["state"] == "working"
        (daemon.workspace / "go").touch()
        assert (await stream.rest()).last["outcome"] == "completed"


async def test_what_is_said_amid_a_run_is_handed_into_it(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(WAIT), says("Done.")]
    async with session.running("Wait.") as stream:
        await stream.until("tool.started")
        steered = await session.post("runs", {"input": "Be quick."})
        assert steered.status_code == 202
        assert steered.json() == {"status": "steered", "run": stream.events[0].data["run"]}
        (daemon.workspace / "go").touch()
        events = await stream.rest()
    assert [data["input"] for data in events.of("steered")] == ["Be quick."]
    assert "Be quick." in [message["content"] for message in model.messages()]
    assert events.last["outcome"] == "completed"


async def test_what_was_handed_into_a_run_that_is_ended_is_said_in_the_next(
    model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(WAIT), says("Back.")]
    async with session.running("Wait.") as stream:
        await stream.until("tool.started")
        assert (await session.post("runs", {"input": "Be quick."})).status_code == 202
        assert await session.cancel() == 204
        await stream.rest()
    assert (await session.run("Go on.")).text == "Back."
    told = str([message["content"] for message in model.messages()])
    assert told.count("Be quick.") == 1
    assert told.count("Go on.") == 1


async def test_what_is_said_before_the_agent_is_there_is_handed_in(
    model: FakeModel, start: Callable[..., DaemonProcess]
) -> None:
    model.turns = [once(handed_in := Event(), says("First.")), says("Second.")]
    with start() as daemon:
        session = SessionClient(daemon)
        async with session.running("Begin.") as stream:
            steered = await session.post("runs", {"input": "And this."})
            handed_in.set()
            events = await stream.rest()
    assert steered.status_code == 202
    assert [data["input"] for data in events.of("steered")] == ["And this."]
    # Before the model is asked, or after its first answer: it hears of it once.
    assert [message["content"] for message in model.messages()].count("And this.") == 1


async def test_each_run_names_the_secrets_there_are_and_their_hosts(
    model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says("One."), says("Two.")]
    model.secrets = [{"name": "token", "hosts": ["api.example.com", "b.example"]}]
    await session.run("Begin.")
    model.secrets = []
    await session.run("Go on.")
    first, second = (str(each["messages"]) for each in model.requests)
    assert "- {{secret:token}} for api.example.com, b.example" in first
    assert "You have no secrets at present." in second


async def test_a_run_can_be_ended_with_all_that_it_runs(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    command = "(setsid sleep 86391 &); sleep 86391"
    model.turns = [says("I wait.", call("shell", command=command)), says("Back.")]
    async with session.running("Wait.") as stream:
        await stream.until("tool.started")
        await until(lambda: is_running(daemon, "86391"))
        assert await session.cancel() == 204
        assert not is_running(daemon, "86391")
        events = await stream.rest()
    assert events.outcomes == ["interrupted"]
    assert events.last["outcome"] == "cancelled"
    assert events.last["error"]["reason"] == "run_ended"

    assert (await session.run("Go on.")).text == "Back."
    told = model.messages()
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "user"]
    assert told[0]["content"] == "Wait."
    assert "interrupted" in told[2]["content"]


async def test_whoever_leaves_a_run_ends_it(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(call("shell", command="sleep 86392"))]
    async with session.running("Wait.") as stream:
        await stream.until("tool.started")
        await until(lambda: is_running(daemon, "86392"))
    await until(lambda: not is_running(daemon, "86392"))
    async with session.following() as stream:
        ended = await stream.until("run.ended")
    assert (ended["outcome"], ended["error"]["code"]) == ("cancelled", 499)
    assert ended["error"]["reason"] == "client_closed_request"


async def test_whoever_leaves_while_the_model_speaks_ends_that(
    model: FakeModel, session: SessionClient
) -> None:
    model.turns = [hangs("I think about", " it")]
    async with session.running("Think.") as stream:
        assert (await stream.until("text"))["text"].startswith("I think")
    await until(lambda: model.left == 1)
    model.turns = [says("Yes.")]
    async with session.following() as stream:
        await stream.until("run.ended")
    assert (await session.run("Are you there?")).text == "Yes."


async def test_events_are_read_again_from_where_a_client_was(
    model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says("One."), says("Two.")]
    first = await session.run("first")
    second = await session.run("second")
    assert await session.events() == [*first, *second]
    assert await session.events(after=first[-1].number) == second
    assert await session.events(after=second[-1].number) == []


async def test_whoever_follows_sees_what_comes(model: FakeModel, session: SessionClient) -> None:
    model.turns = [says("One."), says("Two.")]
    await session.run("first")
    async with session.following(after=1) as stream:
        await stream.until("run.ended")
        second = asyncio.create_task(session.run("second"))
        await stream.until("run.started")
        await stream.until("run.ended")
        assert stream.events == (await session.events())[1:]
        await second


async def test_sessions_are_listed_latest_first(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says("One."), says("Two.")]
    other = SessionClient(daemon, f"{session.id} 2")
    await session.run("first")
    last = (await other.run("second"))[-1].number
    async with daemon.client() as client:
        page = (await client.get("/sessions", params={"limit": 1})).json()
        rest = (await client.get("/sessions", params={"after": other.id})).json()
    (listed,) = page["data"]
    assert page["has_more"] is True
    assert (listed["session"], listed["state"]) == (other.id, "idle")
    assert listed["last_event"] == last
    assert listed["created_at"] <= listed["updated_at"]
    assert rest["data"][0]["session"] == session.id


async def test_a_long_text_comes_in_fewer_pieces(model: FakeModel, session: SessionClient) -> None:
    model.turns = [says(*("word " for _ in range(2000)))]
    events = await session.run("Talk.")
    assert events.text == "word " * 2000
    assert len(events.of("text")) < 500

"""Questions of the agent's, and answers of people."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.support.model_server import MODEL, FakeModel, call, says
from tests.support.session_client import Events, SessionClient
from tests.support.waiting import until

ASK = call(
    "ask_user",
    message="Which colour?",
    fields=[{"name": "colour", "options": ["red", "blue"]}, {"name": "why", "required": False}],
)
BLUE = {"action": "accept", "content": {"colour": "blue"}}


def interaction(events: Events) -> str:
    assert events[-1].kind == "question"
    return events.last["interaction"]


@contextmanager
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def reach(number: int, **more: object) -> Any:
    return call("shell", command=f"exec 3<>/dev/tcp/127.0.0.1/{number} && echo reached", **more)


async def test_a_question_is_answered_and_the_run_goes_on(
    model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says("Let me ask. ", ASK), says("Blue it is.")]

    asked = await session.run("Paint it.")

    question = asked.last["elicitation"]
    assert question["kind"] == "elicitation"
    assert question["message"] == "Which colour?"
    assert question["fields"] == [
        {"name": "colour", "type": "string", "required": True, "options": ["red", "blue"]},
        {"name": "why", "type": "string", "required": False},
    ]
    events = await session.answer(interaction(asked), BLUE)
    assert events.kinds() == ["answered", "tool.ended", "text", "run.ended"]
    told = {"interaction": interaction(asked), "outcome": "accept", "model": MODEL}
    assert events[0].data == {"run": asked[0].data["run"], **told}
    assert json.loads(model.messages()[-1]["content"]) == {"colour": "blue"}
    assert events.last["run"] == asked[0].data["run"]
    assert events.last["usage"]["input_tokens"] == 20
    assert [event.number for event in await session.events()] == list(
        range(1, events[-1].number + 1)
    )


async def test_what_may_be_chosen_is_a_text_whatever_the_model_says(
    model: FakeModel, session: SessionClient
) -> None:
    fields = [{"name": "count", "type": "integer", "options": ["1", "2"]}]
    model.turns = [says(call("ask_user", message="How many?", fields=fields)), says("Two.")]
    asked = await session.run("Count.")
    (field,) = asked.last["elicitation"]["fields"]
    assert (field["type"], field["options"]) == ("string", ["1", "2"])
    two = {"action": "accept", "content": {"count": "2"}}
    assert (await session.answer(interaction(asked), two)).text == "Two."


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([{"name": "a", "options": ["x" * 501]}], "at most 500"),
        ([{"name": f"a{n}", "options": ["x" * 500] * 100} for n in range(2)], "65536 bytes"),
    ],
    ids=["an option", "all of it"],
)
async def test_a_question_that_is_too_long_is_told_to_the_model(
    model: FakeModel, session: SessionClient, fields: object, why: str
) -> None:
    model.turns = [says(call("ask_user", message="Which?", fields=fields)), says("Oh.")]
    events = await session.run("Ask.")
    assert (events.outcomes, events.text) == (["failed"], "Oh.")
    assert why in model.messages()[-1]["content"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_question_may_be_declined(
    model: FakeModel, session: SessionClient, action: str
) -> None:
    model.turns = [says(ASK), says("Then not.")]
    asked = await session.run("Paint it.")
    events = await session.answer(interaction(asked), {"action": action})
    assert (events[0].data["outcome"], events.text) == (action, "Then not.")


@pytest.mark.parametrize(
    "answer",
    [
        "blue",
        '{"action": "maybe"}',
        '{"action": "accept", "content": {"colour": "green"}}',
        r'{"action": "accept", "content": {"colour": "red", "why": "\ud83d"}}',
    ],
)
async def test_what_a_question_does_not_offer_is_refused_and_the_run_waits_on(
    model: FakeModel, session: SessionClient, answer: str
) -> None:
    model.turns = [says(ASK), says("Blue.")]
    asked = await session.run("Paint it.")
    refused = await session.post("answers", {"interaction": interaction(asked), "answer": answer})
    assert (refused.status_code, refused.json()["error"]["reason"]) == (400, "bad_request")
    assert (await session.events())[-1] == asked[-1]
    assert (await session.answer(interaction(asked), BLUE)).text == "Blue."


async def test_a_question_is_one_of_its_session(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(ASK)]
    asked = await session.run("Paint it.")
    for client, known in (
        (session, "nothing"),
        (SessionClient(daemon, "elsewhere"), interaction(asked)),
    ):
        refused = await client.post("answers", {"interaction": known, "answer": "{}"})
        assert refused.status_code == 404
        assert refused.json()["error"]["reason"] == "interaction_unknown"


async def test_a_run_that_waits_can_be_ended(model: FakeModel, session: SessionClient) -> None:
    model.turns = [says(ASK), says("Gone on.")]
    asked = await session.run("Paint it.")
    assert await session.cancel() == 204
    events = await session.events(after=asked[-1].number)
    assert events.kinds() == ["tool.ended", "run.ended"]
    assert events.outcomes == ["interrupted"]
    late = await session.post("answers", {"interaction": interaction(asked), "answer": "{}"})
    assert late.json()["error"]["reason"] == "interaction_not_pending"
    assert (await session.run("And now?")).text == "Gone on."


async def test_eight_runs_may_wait(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    waiting = [SessionClient(daemon, f"{session.id} {number}") for number in range(8)]
    model.turns = [says(ASK) for _ in waiting]
    for each in waiting:
        interaction(await each.run("Ask."))
    refused = await session.post("runs", {"input": "Me too."})
    assert (refused.status_code, refused.json()["error"]["reason"]) == (503, "busy")
    assert refused.headers["Retry-After"]
    for each in waiting:
        assert await each.cancel() == 204


async def test_a_question_that_nobody_answers_ends_its_run(
    model: FakeModel, start: Callable[..., DaemonProcess]
) -> None:
    model.turns = [says(ASK)]
    with start(interaction_seconds=0.5) as daemon:
        session = SessionClient(daemon)
        asked = await session.run("Paint it.")
        async with session.following(after=asked[-1].number) as stream:
            ended = await stream.until("run.ended")
        assert (ended["outcome"], ended["error"]["code"]) == ("cancelled", 410)
        assert ended["error"]["reason"] == "run_ended"
        late = await session.post("answers", {"interaction": interaction(asked), "answer": "{}"})
        assert late.json()["error"]["reason"] == "interaction_not_pending"


async def test_a_run_waits_on_without_its_agent(
    model: FakeModel, start: Callable[..., DaemonProcess]
) -> None:
    model.turns = [says(ASK), says("Blue.")]
    with start(idle_seconds=0.1) as daemon:
        session = SessionClient(daemon)
        asked = await session.run("Paint it.")
        await until(lambda: len(daemon.processes()) == 1)
        assert (await session.answer(interaction(asked), BLUE)).text == "Blue."


@pytest.mark.parametrize("answer", ["reject_once", "reject_always", "cancel"])
async def test_what_is_rejected_is_not_done(
    model: FakeModel, session: SessionClient, answer: str
) -> None:
    model.turns = [says(call("http_request", url="http://127.0.0.1:9/")), says("Then not.")]
    asked = await session.run("Ask there.", approval_mode="manual")
    assert asked.last["permission"] == {
        "kind": "permission",
        "operation": "GET http://127.0.0.1:9/",
        "options": ["allow_once", "allow_always", "reject_once", "reject_always"],
    }
    events = await session.answer(interaction(asked), answer)
    assert events.outcomes == ["rejected"]
    assert events[0].data["outcome"] == answer
    assert (events.text, events.last["outcome"]) == ("Then not.", "completed")


@pytest.mark.parametrize("answer", ["accept", ""])
async def test_a_permission_has_the_options_that_were_offered(
    model: FakeModel, session: SessionClient, answer: str
) -> None:
    model.turns = [says(call("http_request", url="http://127.0.0.1:9/"))]
    asked = await session.run("Ask there.", approval_mode="manual")
    refused = await session.post("answers", {"interaction": interaction(asked), "answer": answer})
    assert (refused.status_code, refused.json()["error"]["reason"]) == (400, "bad_request")


async def test_always_holds_for_the_rest_of_the_session(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    with port() as number:
        command = reach(number, network=True)
        model.turns = [says(command), says("One."), says(command), says("Two."), says(command)]
        asked = await session.run("Reach out.", approval_mode="manual")
        await session.answer(interaction(asked), "allow_always")
        assert (await session.run("Again.", approval_mode="manual")).text == "Two."
        elsewhere = SessionClient(daemon, f"{session.id} 2")
        assert interaction(await elsewhere.run("And here?", approval_mode="manual"))
        await elsewhere.cancel()


async def test_several_calls_are_asked_about_one_after_the_other(
    model: FakeModel, session: SessionClient
) -> None:
    first, second = (call("http_request", url=f"http://127.0.0.1:9/{n}") for n in (1, 2))
    model.turns = [says(first, second, ASK), says("All done.")]
    one = await session.run("Ask all.", approval_mode="manual")
    two = await session.answer(interaction(one), "reject_once")
    assert two.kinds() == ["answered", "question"]
    three = await session.answer(interaction(two), "reject_once")
    assert "elicitation" in three.last
    last = await session.answer(interaction(three), BLUE)
    assert last.outcomes == ["rejected", "rejected", "done"]
    assert last.text == "All done."


async def test_an_answer_for_always_answers_what_would_be_asked_next(
    model: FakeModel, session: SessionClient
) -> None:
    first, second = (call("http_request", url=f"http://127.0.0.1:9/{n}") for n in (1, 2))
    model.turns = [says(first, second), says("Neither.")]
    asked = await session.run("Ask both.", approval_mode="manual")
    events = await session.answer(interaction(asked), "reject_always")
    assert (events.outcomes, events.text) == (["rejected", "rejected"], "Neither.")


async def test_any_answer_waits_for_the_run_that_works(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(ASK), says(ASK), says(call("shell", command="sleep 86393"))]
    first = await session.run("Paint it.")
    second = await session.answer(interaction(first), BLUE)
    other = SessionClient(daemon, f"{session.id} 2")
    async with other.running("Wait.") as stream:
        await stream.until("tool.started")
        for question, given in [
            (interaction(second), json.dumps(BLUE)),
            (interaction(second), "none that it offers"),
            (interaction(first), json.dumps(BLUE)),
            ("unknown", json.dumps(BLUE)),
        ]:
            refused = await session.post("answers", {"interaction": question, "answer": given})
            assert (refused.status_code, refused.json()["error"]["reason"]) == (409, "busy")
            assert int(refused.headers["Retry-After"]) > 0
        assert await other.cancel() == 204

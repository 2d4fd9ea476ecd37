"""An intern as an agent of the Agent Client Protocol, in one process with an editor."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from acp import (
    RequestError,
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
)
from acp.schema import ClientCapabilities, ElicitationCapabilities, ElicitationFormCapabilities

from tests.support.acp_editor import Editor, editor_in_process
from tests.support.fake_chat_gateway import (
    Disconnect,
    FakeChatGateway,
    Hang,
    error_body,
    form,
    permission,
    raw,
    refusal,
    run_fake_chat_gateway,
    stream,
)
from tests.support.waiting import until

FORMS = ClientCapabilities(elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()))


BUSY = refusal(409, "busy", retry_after=600)


@pytest.fixture
def gateway() -> Iterator[FakeChatGateway]:
    with run_fake_chat_gateway() as gateway:
        yield gateway


@pytest.fixture
async def editor(gateway: FakeChatGateway) -> AsyncIterator[Editor]:
    """One with a session."""
    async with editor_in_process(gateway) as made:
        await made.new_session()
        yield made


async def test_a_session_goes_on_and_another_one_is_apart(gateway: FakeChatGateway) -> None:
    gateway.script(*[stream("ok", session_id=None) for _ in range(3)])
    async with editor_in_process(gateway) as editor:
        await editor.new_session()
        await editor.prompt("one")
        await editor.prompt("two")
        await editor.new_session()
        await editor.prompt("three")
    first, second, third = (each["session_id"] for each in gateway.requests)
    assert first == second != third


async def test_a_session_of_earlier_is_resumed(gateway: FakeChatGateway) -> None:
    gateway.script(stream("ok"))
    async with editor_in_process(gateway) as editor:
        resumed = await editor.agent.resume_session(
            session_id="notes", cwd="/nowhere", mcp_servers=[]
        )
        assert resumed.modes.current_mode_id == "self-drive"
        editor.session_id = "notes"
        await editor.prompt("go on")
    assert gateway.requests[0]["session_id"] == "notes"


async def test_a_permission_that_is_closed_is_cancelled(
    gateway: FakeChatGateway, editor: Editor
) -> None:
    gateway.script(stream(ask=permission()), stream("Then not."))
    editor.decides = [None]
    assert (await editor.prompt("x")).stop_reason == "end_turn"
    assert gateway.received_answers == ["cancel"]


@pytest.mark.parametrize("questions", [["a"], ["a", "b"]])
async def test_cancel_at_a_question_stops_the_run_whatever_it_would_have_asked_next(
    gateway: FakeChatGateway, editor: Editor, questions: list[str]
) -> None:
    asked = [stream(ask=permission(each)) for each in questions]
    gateway.script(*asked, stream("Going on", Hang))
    editor.undecided = True
    turn = asyncio.ensure_future(editor.prompt("work"))
    await editor.wait_for_question()
    await editor.agent.cancel(session_id=editor.session_id)
    assert (await turn).stop_reason == "cancelled"
    await asyncio.to_thread(gateway.wait_for_hang_up)
    assert editor.text == ""
    assert gateway.received_answers == ["cancel"] * len(questions)
    assert gateway.requests[-1]["messages"][-1]["tool_call_id"] == questions[-1]


async def test_a_session_that_is_closed_at_a_question_stops_its_run(
    gateway: FakeChatGateway, editor: Editor
) -> None:
    gateway.script(stream(ask=permission()), stream("Going on", Hang))
    editor.undecided = True
    turn = asyncio.ensure_future(editor.prompt("work"))
    await editor.wait_for_question()
    await editor.agent.close_session(session_id=editor.session_id)
    assert gateway.received_answers == ["cancel"]
    assert (await turn).stop_reason == "cancelled"


async def test_after_a_cancel_it_waits_until_the_server_has_noticed(
    gateway: FakeChatGateway, editor: Editor
) -> None:
    gateway.script(refusal(409, "busy", retry_after=0), stream("Now."))
    await editor.prompt("again")
    assert editor.text == "Now."


async def test_the_mode_holds_from_the_next_prompt_on(
    gateway: FakeChatGateway, editor: Editor
) -> None:
    gateway.script(stream("a"), stream("b"))
    assert [each.id for each in editor.modes.available_modes] == ["self-drive", "manual"]
    await editor.prompt("x")
    await editor.agent.set_session_mode(session_id=editor.session_id, mode_id="manual")
    await editor.prompt("x")
    with pytest.raises(RequestError, match="there is no mode yolo"):
        await editor.agent.set_session_mode(session_id=editor.session_id, mode_id="yolo")
    assert [each["approval_mode"] for each in gateway.requests] == ["self-drive", "manual"]


async def test_a_form_is_shown_by_an_editor_that_has_forms(gateway: FakeChatGateway) -> None:
    fields = [
        {"name": "city", "type": "string", "required": True},
        {"name": "days", "type": "integer", "required": True},
        {"name": "class", "type": "integer", "options": [1, 2]},
        {"name": "train", "type": "boolean"},
    ]
    gateway.script(
        stream(ask=form("f", *fields, message="Where to?")),
        stream(ask=form("g", fields[0])),
        stream("Booked."),
    )
    async with editor_in_process(gateway, capabilities=FORMS) as editor:
        await editor.new_session()
        editor.fills_in = [{"city": "Rome", "days": 3, "class": "2", "train": True}, None]
        await editor.prompt("Book")
        assert editor.text == "Booked."
    content = {"city": "Rome", "days": 3, "class": 2, "train": True}
    assert gateway.received_answers == [
        json.dumps({"action": "accept", "content": content}),
        json.dumps({"action": "decline"}),
    ]
    message, schema = editor.forms[0]
    assert message == "Where to?"
    assert {name: each.type for name, each in schema.properties.items()} == {
        "city": "string",
        "days": "integer",
        "class": "string",
        "train": "boolean",
    }
    assert schema.properties["class"].enum == ["1", "2"]
    assert schema.required == ["city", "days"]


async def test_a_form_is_a_text_elsewhere_and_the_next_prompt_answers_it(
    gateway: FakeChatGateway, editor: Editor
) -> None:
    field = {"name": "days", "type": "integer", "required": True}
    gateway.script(stream(ask=form("f", field, message="How long?")), stream("Booked."))
    assert (await editor.prompt("Book")).stop_reason == "end_turn"
    assert "How long?" in editor.text
    assert "- days (integer, required)" in editor.text
    await editor.prompt("some")
    assert editor.text.endswith("days: a whole number")
    await editor.prompt("3")
    assert editor.text.endswith("Booked.")
    assert gateway.received_answers == ['{"action": "accept", "content": {"days": 3}}']


async def test_an_answer_in_words_that_comes_too_late_is_a_prompt(
    gateway: FakeChatGateway, editor: Editor
) -> None:
    gateway.script(
        stream(ask=form("f", {"name": "days", "type": "string"})),
        refusal(409, "interaction_not_pending"),
        stream("Hello."),
    )
    await editor.prompt("Book")
    await editor.prompt("three")
    assert editor.text.endswith("Hello.")
    assert gateway.requests[2]["messages"] == [{"role": "user", "content": "three"}]


@pytest.mark.parametrize(
    "refused",
    [refusal(400, "bad_request"), BUSY, refusal(502, "intern_unreachable")],
    ids=["bad request", "busy", "unreachable"],
)
async def test_a_question_whose_answer_was_refused_is_still_asked(
    gateway: FakeChatGateway, editor: Editor, refused: Any
) -> None:
    gateway.script(
        stream(ask=form("f", {"name": "days", "type": "integer"})), refused, stream("Booked.")
    )
    await editor.prompt("Book")
    with pytest.raises(RequestError):
        await editor.prompt("2")
    await editor.prompt("3")
    assert editor.text.endswith("Booked.")
    assert gateway.received_answers == [
        '{"action": "accept", "content": {"days": 2}}',
        '{"action": "accept", "content": {"days": 3}}',
    ]


async def test_a_question_whose_answer_was_cancelled_before_it_was_sent_is_still_asked(
    gateway: FakeChatGateway, editor: Editor
) -> None:
    gateway.script(
        stream(ask=form("f", {"name": "days", "type": "integer"})),
        refusal(409, "busy", retry_after=5),
        stream("Booked."),
    )
    await editor.prompt("Book")
    turn = asyncio.ensure_future(editor.prompt("2"))
    await until(lambda: len(gateway.requests) == 2)
    await editor.agent.cancel(session_id=editor.session_id)
    assert (await turn).stop_reason == "cancelled"
    await editor.prompt("3")
    assert editor.text.endswith("Booked.")
    assert gateway.received_answers[-1] == '{"action": "accept", "content": {"days": 3}}'


async def test_after_an_answer_that_broke_off_a_prompt_is_a_prompt(
    gateway: FakeChatGateway, editor: Editor
) -> None:
    gateway.script(
        stream(ask=form("f", {"name": "days", "type": "integer"})),
        stream("Going on", Disconnect),
        stream("Well."),
    )
    await editor.prompt("Book")
    with pytest.raises(RequestError, match="Nothing was sent again"):
        await editor.prompt("2")
    await editor.prompt("And now?")
    assert editor.text.endswith("Well.")


async def test_what_is_attached_is_in_the_text(gateway: FakeChatGateway, editor: Editor) -> None:
    gateway.script(stream("ok"))
    file = resource_block(embedded_text_resource("file:///a.py", "x = 1"))
    link = resource_link_block("b.py", "file:///b.py")
    await editor.prompt("Look at ", link, file)
    (message,) = gateway.requests[0]["messages"]
    assert message["content"] == (
        'Look at [b.py](file:///b.py)\n<file uri="file:///a.py">\nx = 1\n</file>\n'
    )


async def test_what_is_no_text_and_what_is_too_long_are_refused_here(
    gateway: FakeChatGateway, editor: Editor
) -> None:
    with pytest.raises(RequestError, match="reads text alone"):
        await editor.prompt(image_block("aGk=", "image/png"))
    with pytest.raises(RequestError, match="at most 32000"):
        await editor.prompt("x" * 32_001)
    assert gateway.requests == []


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (refusal(409, "intern_not_ready", "It is stopped."), "It is stopped."),
        (
            stream(error=error_body(502, "turn_failed", "Overloaded.", retryable=True)),
            "Overloaded.",
        ),
        (raw(Disconnect), "Nothing was sent again"),
        (raw(b"data: {\n\n"), "no chat of an intern"),
    ],
    ids=["refused", "failed", "cut", "garbage"],
)
async def test_what_goes_wrong_is_an_error_and_the_session_goes_on(
    gateway: FakeChatGateway, editor: Editor, reply: Any, expected: str
) -> None:
    gateway.script(reply, stream("Well."))
    with pytest.raises(RequestError, match=expected):
        await editor.prompt("x")
    assert (await editor.prompt("x")).stop_reason == "end_turn"


async def test_a_second_prompt_meanwhile_is_refused(
    gateway: FakeChatGateway, editor: Editor
) -> None:
    gateway.script(stream("Working", Hang))
    turn = asyncio.ensure_future(editor.prompt("work"))
    await editor.wait_for_text()
    with pytest.raises(RequestError, match="a turn under way"):
        await editor.prompt("more")
    await editor.agent.cancel(session_id=editor.session_id)
    await turn


async def test_a_session_that_nobody_made_is_not_there(gateway: FakeChatGateway) -> None:
    async with editor_in_process(gateway) as editor:
        editor.session_id = "nobody's"
        with pytest.raises(RequestError, match="there is no session"):
            await editor.prompt("x")


async def test_a_closed_session_is_forgotten_here(editor: Editor) -> None:
    await editor.agent.close_session(session_id=editor.session_id)
    with pytest.raises(RequestError, match="there is no session"):
        await editor.prompt("x")

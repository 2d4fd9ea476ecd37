"""Prompts, answers and steering, from the caller to the daemon and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chat_grammar import OWN_MODEL
from tests.integration.interns.made_up_daemon import (
    ANSWERED,
    ELICITATION,
    ENDED,
    PERMISSION,
    STARTED,
    STEERED,
    stream,
)

if TYPE_CHECKING:
    from tests.integration.interns.made_up_daemon import MadeUpDaemon
    from tests.integration.interns.parlour import Parlour


async def test_a_prompt_is_answered_with_what_the_agent_says(
    room: Parlour, daemon: MadeUpDaemon
) -> None:
    daemon.play(
        stream(
            STARTED,
            ("reasoning", {"text": "Let me look."}),
            ("tool.started", {"call": "c", "tool": "shell", "title": "ls"}),
            ("tool.ended", {"call": "c", "outcome": "done"}),
            ("steered", {"input": "x"}),
            ("text", {"text": "Hel"}),
            ("text", {"text": "lo"}),
            ENDED,
        )
    )
    told = await room.told()
    assert (told.content, told.finish) == ("Hello", "stop")
    assert told.reasoning == "Let me look.\n$ ls\n"
    assert told.models[0] == OWN_MODEL
    assert set(told.models[1:]) == {"a/b"}
    assert told.usage == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
        "cost": 0.000005,
    }


async def test_the_daemon_gets_the_text_and_the_mode_with_its_token(
    room: Parlour, daemon: MadeUpDaemon
) -> None:
    await room.told(approval_mode="manual")
    (asked,) = daemon.asked
    assert asked.path.endswith("/runs")
    assert asked.body == {"input": "Hello", "approval_mode": "manual"}
    wanted, sent = daemon.token_hashes[0]
    assert wanted == sent


async def test_a_new_session_is_named_at_the_end(room: Parlour, daemon: MadeUpDaemon) -> None:
    told = await room.told()
    assert told.session_id == daemon.asked[0].session
    again = await room.told()
    assert again.session_id != told.session_id


@pytest.mark.parametrize("session", ["mine", "..", "a/b?c=d#e %41", "x" * 256, "übung 🦉"])
async def test_a_session_that_the_caller_names_reaches_the_daemon_as_it_is(
    room: Parlour, daemon: MadeUpDaemon, session: str
) -> None:
    assert (await room.told(session_id=session)).session_id == session
    assert daemon.asked[0].session == session


async def test_a_question_ends_the_stream_and_its_answer_goes_on(
    room: Parlour, daemon: MadeUpDaemon
) -> None:
    daemon.play(
        stream(STARTED, ("text", {"text": "I clean up."}), PERMISSION),
        stream(ANSWERED, ENDED, first=4),
    )
    asked = await room.told()
    assert asked.finish == "tool_calls"
    assert asked.asked == {
        "kind": "permission",
        "operation": "rm -r build",
        "options": ["allow_once", "allow_always", "reject_once", "reject_always"],
    }
    assert asked.call is not None
    assert asked.session_id is not None
    assert asked.usage is None
    done = await room.answered(asked.session_id, asked.call["id"], "allow_once")
    assert (done.finish, done.session_id) == ("stop", asked.session_id)
    assert done.id != asked.id
    assert done.models[0] == OWN_MODEL
    assert set(done.models[1:]) == {"c/d"}
    assert daemon.asked[1].path == f"/sessions/{asked.session_id}/answers"
    assert daemon.asked[1].body == {"interaction": "ask-1", "answer": "allow_once"}


async def test_a_form_is_asked_for_and_filled_in(room: Parlour, daemon: MadeUpDaemon) -> None:
    daemon.play(stream(STARTED, ELICITATION), stream(ENDED, first=3))
    asked = await room.told()
    assert asked.asked == {
        "kind": "elicitation",
        "message": "Which city?",
        "fields": [
            {"name": "city", "type": "string", "required": True, "options": ["Bern", "Oslo"]}
        ],
    }
    filled_in = '{"action": "accept", "content": {"city": "Bern"}}'
    await room.answered(asked.session_id or "", "ask-2", filled_in)
    assert daemon.asked[1].body["answer"] == filled_in


async def test_the_mode_of_an_answer_is_not_passed_on(room: Parlour, daemon: MadeUpDaemon) -> None:
    body = {"approval_mode": "manual", "session_id": "s"}
    message = {"role": "tool", "tool_call_id": "ask-1", "content": "cancel"}
    await room.told(body, messages=[message])
    assert daemon.asked[0].body == {"interaction": "ask-1", "answer": "cancel"}


async def test_a_message_into_a_run_that_works_is_accepted(
    room: Parlour, daemon: MadeUpDaemon
) -> None:
    daemon.play(STEERED)
    reply = await room.send(session_id="mine")
    assert reply.status_code == 202
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == {"session_id": "mine", "status": "steered"}
    assert room.counted("steered") == 1


async def test_chats_are_counted_by_how_they_end(room: Parlour, daemon: MadeUpDaemon) -> None:
    daemon.play(stream(STARTED, ENDED), stream(STARTED, PERMISSION))
    await room.told()
    await room.told()
    assert (room.counted("stop"), room.counted("tool_calls"), room.streams()) == (1, 1, 0)


async def test_nothing_between_may_hold_the_stream_back(room: Parlour) -> None:
    reply = await room.send()
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["x-accel-buffering"] == "no"

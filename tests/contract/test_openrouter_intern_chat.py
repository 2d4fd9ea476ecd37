"""Talking to an intern with the published `openrouter` library 1.3.30; its daemon is made up."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.contract.client_process import CLIENTS, run_client
from tests.integration.interns.agency import Agency
from tests.integration.interns.machine import Machine
from tests.integration.interns.made_up_daemon import (
    CUT,
    ELICITATION,
    ENDED,
    PERMISSION,
    STARTED,
    STEERED,
    STREAM,
    chunk,
    event,
    plain,
    refusing,
    stream,
)
from tests.integration.interns.parlour import parlour
from tollhouse.identity.types import KeyKind, NewKey
from tollhouse.interns.chat.relay import Paces
from tollhouse.storage.database import open_database
from tollhouse.storage.migrator import upgrade
from tollhouse.storage.urls import sqlite_url
from tollhouse.testing.builders import OPERATOR, add_tenant
from tollhouse.testing.clock import FakeClock
from tollhouse.testing.ids import SequentialIds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.interns.made_up_daemon import Step

pytestmark = pytest.mark.contract
LIBRARY = "openrouter-1-3-30"
FAILED: Final = {"reason": "turn_failed", "message": "The provider is overloaded."}
CANCELLED: Final = {"code": 410, "reason": "run_ended", "message": "Ended.", "retryable": False}


def ended(outcome: str, error: dict[str, Any]) -> list[Step]:
    return stream(STARTED, ("run.ended", {"outcome": outcome, "usage": None, "error": error}))


ANSWERS: dict[str, list[Step]] = {
    "chat": stream(
        STARTED,
        ("reasoning", {"text": "Let me look."}),
        ("tool.started", {"call": "c", "tool": "shell", "title": "ls"}),
        ("text", {"text": "Done."}),
        ENDED,
    ),
    "asks for a permission": stream(STARTED, PERMISSION),
    "answer: allow_once": stream(("text", {"text": "Removed."}), ENDED, first=3),
    "asks for a city": stream(STARTED, ELICITATION),
    'answer: {"action": "accept", "content": {"city": "Bern"}}': stream(ENDED, first=3),
    "answer: too late": refusing(409, "interaction_not_pending"),
    "answer: to nothing": refusing(404, "interaction_unknown"),
    "answer: wrong": refusing(400, "bad_request"),
    "answer: gone": refusing(410, "attachment_failed"),
    "steer": STEERED,
    "busy": refusing(409, "busy"),
    "full": refusing(503, "busy"),
    "before chats": plain(404, {"error": {"code": 404, "message": "There is nothing here."}}),
    "nonsense": plain(200, {}),
    "unreachable": [CUT],
    "hangs": [0.5],
    "overloaded": ended("failed", {**FAILED, "retryable": True}),
    "unauthorised": ended("failed", {**FAILED, "retryable": False}),
    "cancelled": ended("cancelled", CANCELLED),
    "severed": [STREAM, chunk(event(*STARTED, 1)), CUT],
    "too slow": [STREAM, chunk(event(*STARTED, 1)), 1.5],
}


async def see(folder: Path) -> dict[str, Any]:
    url = sqlite_url(folder / "tollhouse.db")
    upgrade(url)
    database, clock, ids = open_database(url), FakeClock(), SequentialIds()
    tenant = await add_tenant(database, clock=clock, ids=ids)
    agency = Agency(database, tenant, clock, ids, folder / "logs")
    await agency.office.join()
    await agency.set_default_model("simulated/agent")
    async with database.writing() as write:
        wanted = NewKey("manage", kind=KeyKind.MANAGEMENT)
        account = tenant.account.id
        managing = await agency.office.identity.create_key(write, OPERATOR, account, wanted)
    machine = Machine(agency, folder)
    await machine.start()
    async with parlour(machine, Paces(head=0.3, stream=1.0, farewell=0.1)) as room:
        room.daemon.play(*ANSWERS.values())
        env = {
            "BASE_URL": f"{room.origin}/v1",
            "API_KEY": tenant.key_text,
            "MANAGEMENT_KEY": managing.text,
            "INTERN": room.intern.id,
            "STEPS": json.dumps(list(ANSWERS)),
        }
        script = CLIENTS / "openrouter" / "check_intern_chat.py"
        seen = await asyncio.to_thread(run_client, LIBRARY, script, env=env)
    await machine.stop()
    await database.close()
    return seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("chat")
    try:
        return asyncio.run(see(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def chunks(told: dict[str, Any]) -> list[dict[str, Any]]:
    assert told["class"] == "InternChatCompletionChunk", told
    return told["chunks"]


def joined(told: dict[str, Any], name: str) -> str:
    deltas = [choice["delta"] for each in chunks(told) for choice in each["choices"]]
    return "".join(delta.get(name) or "" for delta in deltas)


def finish(told: dict[str, Any]) -> str:
    return chunks(told)[-2]["choices"][0]["finish_reason"]


def test_a_chat_is_read_to_its_end(seen: dict[str, Any]) -> None:
    told = seen["chat"]
    assert (joined(told, "content"), finish(told)) == ("Done.", "stop")
    assert joined(told, "reasoning") == "Let me look.\n$ ls\n"
    last = chunks(told)[-1]
    assert last["choices"] == []
    assert last["session_id"]
    assert last["model"] == "a/b"
    assert last["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "cost": 0.000005,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


def test_the_first_chunk_has_the_role_and_no_model_of_the_interns(seen: dict[str, Any]) -> None:
    first = chunks(seen["chat"])[0]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["model"] == "openrouter/intern"


def test_a_permission_is_asked_for_and_given(seen: dict[str, Any]) -> None:
    asked = seen["asks for a permission"]
    assert finish(asked) == "tool_calls"
    (call,) = chunks(asked)[-3]["choices"][0]["delta"]["tool_calls"]
    assert call["function"]["name"] == "openrouter.provide_input"
    assert json.loads(call["function"]["arguments"])["operation"] == "rm -r build"
    answered = seen["answer: allow_once"]
    assert (joined(answered, "content"), finish(answered)) == ("Removed.", "stop")
    assert chunks(answered)[-1]["session_id"] == chunks(asked)[-1]["session_id"]


def test_a_form_is_asked_for_and_filled_in(seen: dict[str, Any]) -> None:
    asked = seen["asks for a city"]
    (call,) = chunks(asked)[-3]["choices"][0]["delta"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["fields"][0]["name"] == "city"
    name = 'answer: {"action": "accept", "content": {"city": "Bern"}}'
    assert finish(seen[name]) == "stop"


def test_a_message_into_a_run_that_works_is_steering(seen: dict[str, Any]) -> None:
    assert seen["steer"] == {
        "class": "InternChatSteeredResponse",
        "session_id": "mine",
        "status": "steered",
    }


@pytest.mark.parametrize(
    ("name", "status", "reason", "retryable"),
    [
        ("answer: wrong", 400, "bad_request", False),
        ("without a session", 400, "bad_request", False),
        ("unknown mode", 400, "bad_request", False),
        ("too long", 400, "bad_request", False),
        ("unknown", 404, "not_found", False),
        ("answer: to nothing", 404, "interaction_unknown", False),
        ("answer: too late", 409, "interaction_not_pending", False),
        ("before chats", 409, "intern_not_ready", True),
        ("busy", 409, "busy", True),
        ("answer: gone", 410, "attachment_failed", False),
        ("unreachable", 502, "intern_unreachable", True),
        ("nonsense", 502, "intern_rejected", False),
        ("full", 503, "busy", True),
        ("hangs", 504, "timeout", True),
    ],
)
def test_a_refusal_is_understood(
    seen: dict[str, Any], name: str, status: int, reason: str, *, retryable: bool
) -> None:
    told = seen[name]
    assert (told["class"], told["status"]) == ("InternChatErrorResponse", status)
    assert told["told"]["code"] == status
    assert told["told"]["metadata"] == {"reason": reason, "retryable": retryable}
    assert told["retry_after"] == ("5" if reason == "busy" else None)


def test_a_management_key_is_refused_without_metadata(seen: dict[str, Any]) -> None:
    told = seen["management key"]
    assert (told["class"], told["status"]) == ("InternChatErrorResponse", 401)
    assert set(told["told"]) == {"code", "message"}


@pytest.mark.parametrize(
    ("name", "code", "reason", "retryable"),
    [
        ("overloaded", 502, "turn_failed", True),
        ("unauthorised", 502, "turn_failed", False),
        ("cancelled", 410, "run_ended", False),
        ("severed", 502, "stream_severed", True),
        ("too slow", 504, "timeout", True),
    ],
)
def test_an_error_in_the_stream_is_understood(
    seen: dict[str, Any], name: str, code: int, reason: str, *, retryable: bool
) -> None:
    told = chunks(seen[name])
    assert finish(seen[name]) == "error"
    assert told[-2]["error"]["code"] == code
    assert told[-2]["error"]["metadata"] == {"reason": reason, "retryable": retryable}
    assert told[-1]["session_id"]

"""Talking to an intern with the published `openrouter` library 1.3.30; its daemon is a fake."""

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.component.interns.chat_server import CHATS_PER_MINUTE, ChatServer, serve_chat
from tests.component.interns.fake_daemon import (
    DISCONNECT,
    ELICITATION,
    ENDED,
    HOLD,
    PERMISSION,
    STARTED,
    STEERED,
    STREAM,
    Step,
    chunk,
    error_response,
    event,
    json_response,
    stream,
)
from tests.component.interns.intern_fixture import make_intern_fixture
from tests.component.interns.machine import running_machine
from tests.support.builders import OPERATOR, add_tenant
from tests.support.client_process import CLIENTS, run_client
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.api import request_rules
from tests.support.seams.identity import KeyKind, NewKey
from tollhouse.interns.chat.transcript import ChatTimeouts
from tollhouse.storage.database import open_database
from tollhouse.storage.failures import sqlite_url
from tollhouse.storage.migrator import upgrade

pytestmark = pytest.mark.contract
LIBRARY = "openrouter-1-3-30"
FAILED: Final = {"reason": "turn_failed", "message": "The provider is overloaded."}
CANCELLED: Final = {"code": 410, "reason": "run_ended", "message": "Ended.", "retryable": False}
ACCEPTED: Final = '{"action": "accept", "content": {"city": "Bern"}}'
DECLINED: Final = '{"action": "decline"}'
CALLED_OFF: Final = '{"action": "cancel"}'


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
    f"answer: {ACCEPTED}": stream(ENDED, first=3),
    "asks for a city that is not told": stream(STARTED, ELICITATION),
    f"answer: {DECLINED}": stream(("text", {"text": "No matter."}), ENDED, first=3),
    "asks for a city that nobody knows": stream(STARTED, ELICITATION),
    f"answer: {CALLED_OFF}": stream(("text", {"text": "Never mind."}), ENDED, first=3),
    "answer: too late": error_response(409, "interaction_not_pending"),
    "answer: to nothing": error_response(404, "interaction_unknown"),
    "answer: wrong": error_response(400, "bad_request"),
    "answer: by two": error_response(409, "attachment_failed"),
    "answer: gone": error_response(410, "attachment_failed"),
    "steer": STEERED,
    "busy": error_response(409, "busy"),
    "full": error_response(503, "busy"),
    "before chats": json_response(
        404, {"error": {"code": 404, "message": "There is nothing here."}}
    ),
    "nonsense": json_response(200, {}),
    "unreachable": [DISCONNECT],
    "hangs": [HOLD],
    "fails at once": error_response(502, "turn_failed", retryable=False),
    "fails at once, for now": error_response(502, "turn_failed", retryable=True),
    "overloaded": ended("failed", {**FAILED, "retryable": True}),
    "unauthorised": ended("failed", {**FAILED, "retryable": False}),
    "cancelled": ended("cancelled", CANCELLED),
    "severed": [STREAM, chunk(event(*STARTED, 1)), DISCONNECT],
    "too slow": [STREAM, chunk(event(*STARTED, 1)), HOLD],
}


@asynccontextmanager
async def served(
    folder: Path, paces: ChatTimeouts, chats: int = CHATS_PER_MINUTE
) -> AsyncGenerator[ChatServer]:
    url = sqlite_url(folder / "tollhouse.db")
    upgrade(url)
    database = open_database(url)
    try:
        interns = await make_intern_fixture(database, FakeClock(), SequentialIds(), folder)
        await interns.set_default_model("simulated/agent")
        async with (
            running_machine(interns, folder) as machine,
            serve_chat(machine, paces, chats) as chat,
        ):
            yield chat
    finally:
        await database.close()


async def keys_of(chat: ChatServer) -> dict[str, str]:
    """Return keys of all kinds, by what they are to the intern."""
    vault = chat.machine.interns.vault
    outsider = await add_tenant(vault.database, clock=vault.clock, ids=vault.ids, name="Else")
    made = {
        "management key": NewKey("manage", kind=KeyKind.MANAGEMENT),
        "own key": NewKey("own", kind=KeyKind.INTERN, intern_id=chat.intern.id),
    }
    async with vault.database.writing() as write:
        account = vault.tenant.account.id
        issued = {
            name: await vault.identity.create_key(write, OPERATOR, account, wanted)
            for name, wanted in made.items()
        }
    texts = {name: each.text for name, each in issued.items()}
    return {"api": vault.tenant.key_text, "outside the programme": outsider.key_text, **texts}


async def converse(chat: ChatServer, answers: dict[str, list[Step]]) -> dict[str, Any]:
    """Run the library's script against the planned answers; return what it parsed."""
    chat.daemon.script(*answers.values())
    env = {
        "BASE_URL": f"{chat.origin}/v1",
        "KEYS": json.dumps(await keys_of(chat)),
        "INTERN": chat.intern.id,
        "STEPS": json.dumps(list(answers)),
    }
    script = CLIENTS / "openrouter" / "check_intern_chat.py"
    return await asyncio.to_thread(run_client, LIBRARY, script, env=env)


async def record_chats(folder: Path) -> dict[str, Any]:
    async with served(folder, ChatTimeouts(head=1.5, stream=3.0)) as chat:
        seen = await converse(chat, ANSWERS)
        heard = [asked.body["answer"] for asked in chat.daemon.asked if "answer" in asked.body]
        return {**seen, "heard": heard}


async def record_impatient_chats(folder: Path) -> dict[str, Any]:
    async with served(folder, ChatTimeouts(), chats=1) as chat:
        return await converse(chat, {"has no end": [HOLD], "once more": []})


REFUSALS = yaml.safe_load(Path(__file__).with_name("openrouter_refusals.yaml").read_text())


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the library parsed of each answer, by the answer's name."""
    folder = tmp_path_factory.mktemp("chat")
    yield asyncio.run(record_chats(folder))
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def seen_without_patience(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The same with one chat a minute, which has to begin within two seconds."""
    folder = tmp_path_factory.mktemp("chat")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(request_rules, "CHAT_DEADLINE_SECONDS", 2.0)
        yield asyncio.run(record_impatient_chats(folder))
    shutil.rmtree(folder, ignore_errors=True)


def chunks(told: dict[str, Any]) -> list[dict[str, Any]]:
    assert told["class"] == "InternChatCompletionChunk", told
    return told["chunks"]


def joined(told: dict[str, Any], name: str) -> str:
    deltas = [choice["delta"] for each in chunks(told) for choice in each["choices"]]
    return "".join(delta.get(name) or "" for delta in deltas)


def check_refusal(
    told: dict[str, Any], status: int, reason: str, *, retryable: bool, after: str | None = None
) -> None:
    assert (told["class"], told["status"]) == ("InternChatErrorResponse", status)
    assert told["told"]["code"] == status
    assert told["told"]["metadata"] == {"reason": reason, "retryable": retryable}
    assert told["retry_after"] == after


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
    assert finish(seen[f"answer: {ACCEPTED}"]) == "stop"
    assert ACCEPTED in seen["heard"]


@pytest.mark.parametrize(
    ("answer", "text"), [(DECLINED, "No matter."), (CALLED_OFF, "Never mind.")]
)
def test_a_form_that_is_not_filled_in_lets_the_run_go_on(
    seen: dict[str, Any], answer: str, text: str
) -> None:
    told = seen[f"answer: {answer}"]
    assert (joined(told, "content"), finish(told)) == (text, "stop")
    assert answer in seen["heard"]


def test_a_message_into_a_run_that_works_is_steering(seen: dict[str, Any]) -> None:
    assert seen["steer"] == {
        "class": "InternChatSteeredResponse",
        "session_id": "mine",
        "status": "steered",
    }


@pytest.mark.parametrize(("name", "status", "reason", "retryable"), REFUSALS["instead"])
def test_a_refusal_is_understood(
    seen: dict[str, Any], name: str, status: int, reason: str, *, retryable: bool
) -> None:
    after = "5" if reason == "busy" else None
    check_refusal(seen[name], status, reason, retryable=retryable, after=after)


def test_a_chat_that_does_not_begin_in_time_is_understood(
    seen_without_patience: dict[str, Any],
) -> None:
    check_refusal(seen_without_patience["has no end"], 408, "timeout", retryable=True)


def test_too_many_chats_are_refused_with_the_time_to_wait(
    seen_without_patience: dict[str, Any],
) -> None:
    told = seen_without_patience["once more"]
    check_refusal(told, 429, "rate_limited", retryable=True, after="60")


@pytest.mark.parametrize(
    ("name", "status"), [("management key", 401), ("own key", 403), ("outside the programme", 404)]
)
def test_a_key_of_another_kind_is_refused_without_metadata(
    seen: dict[str, Any], name: str, status: int
) -> None:
    told = seen[name]
    assert (told["class"], told["status"]) == ("InternChatErrorResponse", status)
    assert told["told"]["code"] == status
    assert set(told["told"]) == {"code", "message"}


@pytest.mark.parametrize(("name", "code", "reason", "retryable"), REFUSALS["in streams"])
def test_an_error_in_the_stream_is_understood(
    seen: dict[str, Any], name: str, code: int, reason: str, *, retryable: bool
) -> None:
    told = chunks(seen[name])
    assert finish(seen[name]) == "error"
    assert told[-2]["error"]["code"] == code
    assert told[-2]["error"]["metadata"] == {"reason": reason, "retryable": retryable}
    assert told[-1]["session_id"]

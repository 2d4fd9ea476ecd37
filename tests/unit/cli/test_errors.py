from typing import Any

import pytest

from tests.support.tables import tables
from tollhouse.cli.errors import WHICH_KEY, chat_advice, refusal_message


def envelope(message: object) -> dict[str, object]:
    return {"error": {"code": 400, "message": message}}


@pytest.mark.parametrize(("status", "message", "path", "expected"), tables(__file__)["refusals"])
def test_a_refusal_is_what_was_said_and_what_to_do(
    status: int, message: str, path: str, expected: str
) -> None:
    text = refusal_message(status, envelope(message), path=path)
    assert text.startswith(message)
    assert (WHICH_KEY if expected == "WHICH_KEY" else expected) in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "reply", [None, [], "x", {}, {"error": "x"}, {"error": {}}, envelope(None), envelope("")]
)
@pytest.mark.parametrize("status", [200, 301, 404, 502])
def test_whatever_else_answers_is_no_tollhouse(status: int, reply: object) -> None:
    text = refusal_message(status, reply, path="/keys")
    assert text.startswith(f"the server answered with status {status} and not like a Tollhouse")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("intern_not_ready", "`tollhouse intern provision INTERN`"),
        ("intern_unreachable", "`tollhouse intern logs INTERN`"),
        ("stream_severed", "nothing was sent again"),
        ("interaction_not_pending", "waited too long"),
    ],
)
def test_a_reason_of_the_chat_has_its_advice(reason: str, expected: str) -> None:
    reply = {"error": {"code": 409, "message": "No.", "metadata": {"reason": reason}}}
    assert expected in refusal_message(409, reply, path="/interns/i/chat/completions")
    assert expected in chat_advice(reason)


def test_a_refusal_for_want_of_credits_says_what_helps() -> None:
    reply: dict[str, Any] = envelope("Too dear.")
    reply["error"]["metadata"] = {"remedy_hint": "Make it smaller, or add credits."}
    said = refusal_message(402, reply, path="/batches")
    assert said == "Too dear. Make it smaller, or add credits."


def test_a_server_cannot_steer_the_terminal() -> None:
    text = refusal_message(400, envelope("a\x1b[2Jb\nc"), path="/keys")
    assert text.isprintable()

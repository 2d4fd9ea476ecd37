from typing import Any

import pytest

from tollhouse.cli.errors import WHICH_KEY, chat_advice, refusal_message


def envelope(message: object) -> dict[str, object]:
    return {"error": {"code": 400, "message": message}}


@pytest.mark.parametrize(
    ("status", "message", "path", "expected"),
    [
        (404, "No such key.", "/keys/ab", "No such key. `tollhouse keys list` shows"),
        (404, "No such generation.", "/generation", "No such generation."),
        (401, "Invalid API key.", "/keys", WHICH_KEY),
        (401, "This answers for a key.", "/key", WHICH_KEY),
        (404, "No such batch.", "/batches/b", "`tollhouse batch list` shows"),
        (402, "Add credits to read its results.", "/batches/b", "Nothing is lost"),
        (402, "Too few credits.", "/batches", "Too few credits."),
        (403, "This needs a management key.", "/keys", WHICH_KEY),
        (403, "Not available on a regional hostname.", "/keys", "--base-url"),
        (403, "No inference; use an API key.", "/batches", "`tollhouse keys create NAME`"),
        (400, "Name the account: account_id.", "/keys", "Add --account NAME"),
        (400, "slug: taken", "/workspaces", "slug: taken."),
        (
            500,
            "Internal server error.",
            "/keys",
            "The server's log says more: `tollhouse logs` on its machine.",
        ),
        (429, "Too often.", "/keys", "Too often."),
        (404, "Not found.", "/vault/secrets", "--programme on"),
        (404, "No such intern here.", "/vault/interns/i/secrets", "No such intern here."),
        (404, "There is no secret a here.", "/vault/secrets/a", "`tollhouse vault list`"),
        (401, "Invalid API key.", "/vault/secrets", WHICH_KEY),
        (503, "Changes are switched off here.", "/vault/secrets/a", "`--vault-writes on`"),
        (
            503,
            "Try again.",
            "/vault/secrets/a",
            "The server's log says more: `tollhouse logs` on its machine.",
        ),
    ],
)
def test_a_refusal_is_what_was_said_and_what_to_do(
    status: int, message: str, path: str, expected: str
) -> None:
    text = refusal_message(status, envelope(message), path=path)
    assert text.startswith(message)
    assert expected in text
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

"""What errors of interns say beside their message, and how those of chats differ."""

from __future__ import annotations

import pytest

from tollhouse.api.errors import with_reason
from tollhouse.api.request_rules import deadline, is_intern_chat
from tollhouse.kernel.errors import (
    Bug,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotOffered,
    PayloadTooLarge,
    TimedOut,
    TollhouseError,
    Unauthenticated,
    Unavailable,
)

CHAT = "/interns/283d7485/chat/completions"
LIFE = "/interns/283d7485"


@pytest.mark.parametrize(
    ("error", "of_the_life_cycle", "of_a_chat"),
    [
        (Invalid("x"), ("invalid_body", False), ("bad_request", False)),
        (NotFound("x"), ("not_found", False), ("not_found", False)),
        (NotOffered("x"), ("not_found", False), None),
        (TimedOut("x"), ("timeout", True), ("timeout", True)),
        (Conflict("x"), ("conflict", False), ("intern_not_ready", True)),
        (PayloadTooLarge("x"), ("payload_too_large", False), ("payload_too_large", False)),
        (Unavailable("x"), ("unavailable", True), ("busy", True)),
        (Bug("x"), ("internal_error", True), ("internal_error", True)),
        (Unauthenticated("x"), None, None),
        (Forbidden("x"), None, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TollhouseError) else None,
)
def test_a_reason(
    error: TollhouseError,
    of_the_life_cycle: tuple[str, bool] | None,
    of_a_chat: tuple[str, bool] | None,
) -> None:
    for path, said in ((LIFE, of_the_life_cycle), (CHAT, of_a_chat)):
        error.metadata = {}
        expected = {} if said is None else {"reason": said[0], "retryable": said[1]}
        assert with_reason(error, path).metadata == expected


def test_an_error_that_knows_better_keeps_its_reason() -> None:
    error = Conflict("x", metadata={"reason": "busy", "retryable": True})
    assert with_reason(error, CHAT).metadata == {"reason": "busy", "retryable": True}


def test_other_routes_have_none() -> None:
    assert with_reason(Invalid("x"), "/key").metadata == {}


def test_a_chat_that_cannot_be_served_now_says_when_to_try_again() -> None:
    assert with_reason(Unavailable("x"), CHAT).retry_after == 5
    assert with_reason(Unavailable("x"), LIFE).retry_after is None


@pytest.mark.parametrize(
    ("path", "seconds"),
    [(CHAT, 300), (LIFE, 10), ("/interns", 10), ("/vault/secrets", 10), ("/key", None)],
)
def test_how_long_an_operation_may_take(path: str, seconds: int | None) -> None:
    assert deadline(path) == seconds


@pytest.mark.parametrize(
    "path", ["/chat/completions", "/interns/chat/completions", "/interns/a/b/chat/completions"]
)
def test_what_is_no_chat_with_an_intern(path: str) -> None:
    assert not is_intern_chat(path)

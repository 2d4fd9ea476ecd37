import pytest

from tests.support.seams.api import (
    deadline,
    error_response,
    is_intern_chat,
    not_offered,
    with_reason,
)
from tests.support.tables import tables
from tollhouse.kernel.errors import (
    Bug,
    Conflict,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    NotOffered,
    PayloadTooLarge,
    ProviderRateLimited,
    TimedOut,
    TollhouseError,
    Unauthenticated,
    Unavailable,
)

CASES = tables(__file__)

JSON = (b"content-type", b"application/json")


@pytest.mark.parametrize(
    ("error", "status", "header"),
    [
        (ProviderRateLimited("x", provider_name="p", retry_after=9), 429, (b"retry-after", b"9")),
        (MethodNotAllowed("x", allow=("GET", "HEAD")), 405, (b"allow", b"GET, HEAD")),
        (Unauthenticated("x"), 401, (b"www-authenticate", b"Bearer")),
    ],
)
def test_an_error_has_the_headers_that_its_status_asks_for(
    error: TollhouseError, status: int, header: tuple[bytes, bytes]
) -> None:
    assert error_response(error)[:2] == (status, [JSON, header])


def test_a_forbidden_caller_is_not_asked_for_a_key() -> None:
    assert error_response(Forbidden("x"))[:2] == (403, [JSON])


def test_the_headers_are_the_callers_to_extend() -> None:
    error_response(NotFound("x"))[1].append((b"x", b"y"))

    assert error_response(NotFound("x"))[1] == [JSON]


# What errors of interns say beside their message, and how those of chats differ


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


@pytest.mark.parametrize(("path", "seconds"), CASES["how_long_an_operation_may_take"])
def test_how_long_an_operation_may_take(path: str, seconds: int | None) -> None:
    assert deadline(path) == seconds


@pytest.mark.parametrize(
    "path", ["/chat/completions", "/interns/chat/completions", "/interns/a/b/chat/completions"]
)
def test_what_is_no_chat_with_an_intern(path: str) -> None:
    assert not is_intern_chat(path)


@pytest.mark.parametrize(("path", "instead"), CASES["an_endpoint_of_another_api_names_what_to_use"])
def test_an_endpoint_of_another_api_names_what_to_use(path: str, instead: str) -> None:
    said = not_offered(path) or ""
    assert "is not offered here" in said
    assert instead in said


@pytest.mark.parametrize("path", ["/nothing", "/filesystem", "/", "/model"])
def test_any_other_path_is_none_of_them(path: str) -> None:
    assert not_offered(path) is None

import json

import pytest

from tollhouse.api.errors import error_response
from tollhouse.kernel.errors import (
    Bug,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    ProviderRateLimited,
    TollhouseError,
    Unauthenticated,
)

JSON = (b"content-type", b"application/json")


def test_an_error_is_its_status_and_envelope() -> None:
    status, headers, body = error_response(NotFound("No such key."))

    assert status == 404
    assert headers == [JSON]
    assert json.loads(body) == {"error": {"code": 404, "message": "No such key."}}


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


def test_a_bug_does_not_show_its_text() -> None:
    status, _, body = error_response(Bug("the password is swordfish"))

    assert status == 500
    assert json.loads(body)["error"]["message"] == "Internal server error."
    assert b"swordfish" not in body


def test_the_headers_are_the_callers_to_extend() -> None:
    error_response(NotFound("x"))[1].append((b"x", b"y"))

    assert error_response(NotFound("x"))[1] == [JSON]

import json

import pytest

from tollhouse.kernel.errors import (
    INTERNAL_ERROR_MESSAGE,
    Bug,
    Invalid,
    MethodNotAllowed,
    NotFound,
    ProviderOverloaded,
    ProviderTimeout,
    TollhouseError,
    Unauthenticated,
    error_body,
    error_object,
    status_of,
)


def test_the_code_is_the_status_as_an_integer() -> None:
    assert error_body(Unauthenticated("No auth credentials found")) == {
        "error": {"code": 401, "message": "No auth credentials found"}
    }


def test_metadata_stands_beside_the_message() -> None:
    failure = ProviderOverloaded("busy", provider_name="acme", provider_code=529)
    assert error_object(failure) == {
        "code": 503,
        "message": "busy",
        "metadata": {
            "provider_name": "acme",
            "provider_code": 529,
            "error_type": "provider_overloaded",
        },
    }


@pytest.mark.parametrize("error", [Bug("password=hunter2"), TollhouseError("password=hunter2")])
def test_the_text_of_a_bug_stays_inside(error: TollhouseError) -> None:
    assert error_body(error) == {
        "error": {
            "code": 500,
            "message": INTERNAL_ERROR_MESSAGE,
            "metadata": {"error_type": "server"},
        }
    }


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Invalid("no"), 400),
        (NotFound("no"), 404),
        (MethodNotAllowed("no", allow=("GET",)), 405),
        (ProviderTimeout("no", provider_name="acme"), 504),
    ],
)
def test_the_kind_decides_the_status(error: TollhouseError, status: int) -> None:
    assert status_of(error) == status


def test_it_is_json() -> None:
    shown = error_body(NotFound("näin", metadata={"id": "x"}))
    assert json.loads(json.dumps(shown)) == shown

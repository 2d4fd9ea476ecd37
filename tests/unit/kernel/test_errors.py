import pickle
from collections.abc import Iterator
from typing import get_args

import pytest

from tests.support.seams.inference import WorkerGone
from tollhouse.kernel import errors
from tollhouse.kernel.errors import (
    INTERNAL_ERROR_MESSAGE,
    STATUS,
    Bug,
    Kind,
    ProviderFailure,
    ProviderOverloaded,
    TollhouseError,
    error_body,
    error_object,
    without_frames,
)

# Source: the `error_type` values of the public gateway's error reference, and what it lacks.
PUBLISHED_CODES = {
    "authentication",
    "invalid_request",
    "not_found",
    "payload_too_large",
    "payment_required",
    "permission_denied",
    "precondition_failed",
    "provider_overloaded",
    "provider_unavailable",
    "rate_limit_exceeded",
    "server",
    "timeout",
    "unprocessable",
}


def tree(root: type[TollhouseError] = TollhouseError) -> Iterator[type[TollhouseError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


TREE = [error for error in tree() if error.__module__ == errors.__name__]


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
class TestEveryError:
    def test_has_a_status(self, error: type[TollhouseError]) -> None:
        assert 400 <= STATUS[error.kind] <= 599

    def test_has_a_published_code(self, error: type[TollhouseError]) -> None:
        assert error.code in PUBLISHED_CODES

    def test_stands_in_the_picture_of_the_tree(self, error: type[TollhouseError]) -> None:
        assert f" {error.__name__}" in f" {errors.__doc__}".replace("\n", " ")


def test_every_kind_has_a_status_and_no_status_has_no_kind() -> None:
    assert set(STATUS) == set(get_args(Kind))


@pytest.mark.parametrize(
    "error",
    [
        errors.NotFound("It is not there.", metadata={"a": 1}, retry_after=2),
        ProviderFailure("acme failed.", provider_name="Acme", provider_code=500),
        WorkerGone(),
        errors.MethodNotAllowed("Use GET.", allow=("GET",)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_comes_from_another_process_is_the_same(error: TollhouseError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_a_long_chain_of_causes_gives_up_its_frames_at_once() -> None:
    """A cause is the context, too: to follow both anew at each step would take years."""
    error: Exception = ValueError("first")
    for _ in range(60):
        try:
            try:
                raise error
            except ValueError as cause:
                raise ValueError("next") from cause
        except ValueError as caught:
            error = caught
    first = without_frames(error)
    while first.__cause__ is not None:
        assert first.__traceback__ is None
        first = first.__cause__
    assert str(first) == "first"


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

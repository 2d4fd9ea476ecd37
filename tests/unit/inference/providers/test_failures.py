import pytest

from tollhouse.inference.providers.failures import failure
from tollhouse.kernel.envelope import envelope, status_of

SECRET = "Your organization org-123 has run out of money"


@pytest.mark.parametrize(
    ("theirs", "ours", "text"),
    [
        (400, 400, "Acme refused the request."),
        (413, 400, "Acme refused the request."),
        (422, 400, "Acme refused the request."),
        (401, 502, "Acme failed."),
        (402, 502, "Acme failed."),
        (403, 502, "Acme failed."),
        (404, 502, "Acme failed."),
        (408, 504, "Acme did not answer in time."),
        (418, 502, "Acme failed."),
        (429, 429, "Acme is rate limiting requests."),
        (500, 502, "Acme failed."),
        (502, 502, "Acme failed."),
        (503, 503, "Acme is overloaded."),
        (504, 504, "Acme did not answer in time."),
        (529, 503, "Acme is overloaded."),
        (302, 502, "Acme failed."),
        (0, 502, "Acme failed."),
        (10**30, 502, "Acme failed."),
    ],
)
def test_a_providers_status_becomes_ours(theirs: int, ours: int, text: str) -> None:
    error = failure("Acme", theirs)
    assert (status_of(error), error.message) == (ours, text)
    assert error.metadata["provider_name"] == "Acme"
    assert error.provider_code == theirs
    assert not error.ambiguous


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refusal_shows_the_providers_text(status: int) -> None:
    assert (
        failure("Acme", status, message="too long").message == "Acme refused the request: too long."
    )


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429, 500, 503, 504])
def test_any_other_failure_shows_nothing_of_the_operators_account(status: int) -> None:
    assert SECRET not in str(envelope(failure("Acme", status, message=SECRET)))


def test_a_text_keeps_its_full_stop() -> None:
    assert failure("Acme", 400, message="No.").message == "Acme refused the request: No."


def test_a_long_text_is_cut() -> None:
    assert len(failure("Acme", 400, message="x" * 10_000).message) < 600


def test_the_providers_own_code_goes_before_its_status() -> None:
    assert failure("Acme", 400, code="bad_thing").provider_code == "bad_thing"

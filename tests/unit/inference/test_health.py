import pytest

from tests.support.seams.inference import COOL_DOWN_SECONDS, Endpoint, Health, failure
from tests.unit.inference.fakes import PRICE

A = Endpoint("a", "m", PRICE)
SAME_PROVIDER = Endpoint("a", "n", PRICE)


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_an_endpoint_that_failed_cools_down_for_a_while(status: int) -> None:
    health = Health()
    health.failed(A, failure("a", status), now=100.0)
    assert health.is_cooling(A, 100.0 + COOL_DOWN_SECONDS - 1)
    assert not health.is_cooling(A, 100.0 + COOL_DOWN_SECONDS)


def test_other_models_of_a_provider_that_failed_are_not_blamed() -> None:
    health = Health()
    health.failed(A, failure("a", 500), now=0.0)
    assert not health.is_cooling(SAME_PROVIDER, 1.0)


def test_a_request_that_is_wrong_says_nothing_of_the_endpoint() -> None:
    health = Health()
    health.failed(A, failure("a", 400), now=0.0)
    assert not health.is_cooling(A, 1.0)


def test_an_endpoint_that_answers_again_is_healthy_at_once() -> None:
    health = Health()
    health.failed(A, failure("a", 500), now=0.0)
    health.answered(A)
    assert not health.is_cooling(A, 1.0)


def test_a_longer_hint_of_a_rate_limit_is_kept_to() -> None:
    health = Health()
    health.failed(A, failure("a", 429, retry_after=60), now=0.0)
    assert health.is_cooling(A, 59.0)
    assert not health.is_cooling(A, 61.0)


def test_no_hint_puts_an_endpoint_last_for_hours() -> None:
    health = Health()
    health.failed(A, failure("a", 429, retry_after=86_400), now=0.0)
    assert not health.is_cooling(A, 10 * COOL_DOWN_SECONDS)


def test_a_prompt_that_was_flagged_says_nothing_of_the_endpoint() -> None:
    health = Health()
    health.failed(A, failure("a", 400, code="moderation_blocked"), now=0.0)
    assert not health.is_cooling(A, 1.0)

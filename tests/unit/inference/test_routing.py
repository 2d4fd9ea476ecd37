import pytest

from tollhouse.inference.providers.failures import failure
from tollhouse.inference.providers.simulated.models import models
from tollhouse.inference.routing import last_word, moves_on, order
from tollhouse.kernel.errors import ProviderFailure, ProviderRefused, ProviderUnavailable


def test_endpoints_are_tried_in_the_catalogues_order() -> None:
    model = models()[0]
    assert order(model) == model.endpoints


UNSENT = ProviderUnavailable("x", provider_name="a")
AMBIGUOUS = ProviderUnavailable("x", provider_name="a", ambiguous=True)
REFUSED = ProviderRefused("x", provider_name="a")
REFUSED_AMBIGUOUSLY = ProviderRefused("x", provider_name="a", ambiguous=True)


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [
        (UNSENT, True),
        (AMBIGUOUS, False),
        (REFUSED, False),
        (REFUSED_AMBIGUOUSLY, False),
        (failure("a", 429), True),
        (failure("a", 500), True),
    ],
)
def test_the_next_endpoint_is_tried_only_where_no_work_was_done(
    error: ProviderFailure,
    goes_on: bool,  # noqa: FBT001
) -> None:
    assert moves_on(error, idempotent=False) is goes_on


@pytest.mark.parametrize("error", [UNSENT, AMBIGUOUS, failure("a", 429), failure("a", 500)])
def test_after_an_idempotent_provider_the_next_endpoint_is_tried(error: ProviderFailure) -> None:
    assert moves_on(error, idempotent=True)


@pytest.mark.parametrize("error", [REFUSED, REFUSED_AMBIGUOUSLY, failure("a", 400)])
def test_a_wrong_request_ends_at_an_idempotent_provider_too(error: ProviderFailure) -> None:
    assert not moves_on(error, idempotent=True)


def test_the_last_error_is_the_last_word() -> None:
    errors = [failure("a", 429, retry_after=1), failure("b", 503, retry_after=2)]
    assert last_word(errors) is errors[1]
    assert errors[1].retry_after == 1


@pytest.mark.parametrize("ambiguous", [False, True])
def test_the_last_word_is_ambiguous_if_any_error_was(*, ambiguous: bool) -> None:
    first = ProviderUnavailable("x", provider_name="a", ambiguous=ambiguous)
    assert last_word([first, failure("b", 500)]).ambiguous is ambiguous

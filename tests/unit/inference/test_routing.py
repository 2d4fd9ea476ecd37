import pytest

from tollhouse.inference.providers.failures import failure
from tollhouse.inference.providers.simulated.models import models
from tollhouse.inference.routing import last_word, moves_on, order
from tollhouse.kernel.errors import ProviderFailure, ProviderRefused, ProviderUnavailable


def test_endpoints_are_tried_in_the_catalogues_order() -> None:
    model = models()[0]
    assert order(model) == model.endpoints


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [
        (ProviderUnavailable("x", provider_name="a"), True),
        (ProviderUnavailable("x", provider_name="a", ambiguous=True), False),
        (ProviderRefused("x", provider_name="a"), False),
        (ProviderRefused("x", provider_name="a", ambiguous=True), False),
        (failure("a", 429), True),
        (failure("a", 500), True),
    ],
)
def test_the_next_endpoint_is_tried_only_where_no_work_was_done(
    error: ProviderFailure,
    goes_on: bool,  # noqa: FBT001
) -> None:
    assert moves_on(error) is goes_on


def test_the_last_error_is_the_last_word() -> None:
    errors = [failure("a", 429, retry_after=1), failure("b", 503, retry_after=2)]
    assert last_word(errors) is errors[1]
    assert errors[1].retry_after == 1

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tests.support.seams.accounting import FREE
from tests.support.seams.identity import AccessPolicy
from tests.support.seams.inference import (
    FORMATS,
    Candidate,
    Dialect,
    Endpoint,
    MaxPrice,
    Model,
    Preferences,
    Profile,
    failure,
    final_error,
    find_candidates,
    remaining,
)
from tests.unit.inference.fakes import PRICE
from tollhouse.kernel.errors import (
    Forbidden,
    NotFound,
    ProviderFailure,
    ProviderRefused,
    ProviderUnavailable,
    Unavailable,
)

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"top_k":3,"seed":1}'
ADAPTERS = FORMATS["/chat/completions"].parse(BODY, {}, b"")
A = Endpoint("a", "a1", PRICE, provider_name="Acme", keeps_data=False)
B = Endpoint("b/eu", "b1", FREE, provider_name="Beta")
C = Endpoint("c", "c1", PRICE, profile=Profile(refuses_in_chat=frozenset({"top_k"})))


def model(*endpoints: Endpoint, name: str = "m") -> Model:
    return Model(name, name, "", 8192, None, endpoints)


M = model(A, B, C)


def chosen(
    *models: Model,
    cooling: Callable[[Endpoint], bool] = lambda _: False,
    spoken: Collection[Dialect] = frozenset({Dialect.CHAT}),
    policies: Sequence[AccessPolicy] = (),
    **wanted: Any,
) -> Sequence[Candidate]:
    return find_candidates(
        models or [M],
        ADAPTERS,
        Preferences(**wanted),
        dialects_of=lambda _: spoken,
        cooling=cooling,
        policies=policies,
    )


def order(*models: Model, **wanted: Any) -> list[str]:
    return [candidate.endpoint.provider for candidate in chosen(*models, **wanted)]


def test_endpoints_are_tried_in_the_catalogues_order() -> None:
    assert order() == ["a", "b/eu", "c"]


def test_an_endpoint_that_failed_of_late_is_tried_last() -> None:
    assert order(cooling=lambda endpoint: endpoint is A) == ["b/eu", "c", "a"]


def test_the_requests_order_comes_first_even_of_one_that_failed_of_late() -> None:
    assert order(order=("c", "b"), cooling=lambda endpoint: endpoint is C) == ["c", "b/eu", "a"]


@pytest.mark.parametrize("name", ["b", "b/eu", "Beta", "BETA"])
def test_a_provider_goes_by_slug_stem_or_name(name: str) -> None:
    assert order(only=(name,)) == ["b/eu"]
    assert order(ignore=(name,)) == ["a", "c"]


def test_a_longer_name_than_the_slug_is_another_provider() -> None:
    with pytest.raises(Unavailable, match="routing requirements"):
        chosen(only=("a/us",))


def test_an_empty_list_allows_nobody() -> None:
    with pytest.raises(Unavailable):
        chosen(only=())


def test_without_fallbacks_the_first_endpoint_has_the_last_word() -> None:
    assert order(allow_fallbacks=False) == ["a"]
    assert order(allow_fallbacks=False, order=("c",)) == ["c"]


def test_without_fallbacks_further_models_are_still_tried_once_each() -> None:
    other = model(B, C, name="n")
    assert order(M, other, allow_fallbacks=False) == ["a", "b/eu"]


def test_all_parameters_are_required_of_an_endpoint_only_on_request() -> None:
    assert order(require_parameters=True) == ["a", "b/eu"]


def test_a_parameter_that_a_dialect_cannot_say_excludes_it_where_all_are_required() -> None:
    with pytest.raises(Unavailable):
        chosen(spoken={Dialect.MESSAGES}, require_parameters=True)
    assert order(spoken={Dialect.MESSAGES}) == ["a", "b/eu", "c"]


def test_who_keeps_data_is_left_out_where_that_is_denied() -> None:
    assert order(deny_data_collection=True) == ["a"]


def test_what_nobody_vouches_for_excludes_everybody() -> None:
    with pytest.raises(Unavailable):
        chosen(unsupported_guarantees=True)


def test_a_max_price_excludes_what_is_dearer() -> None:
    assert order(max_price=MaxPrice(prompt=Decimal(0))) == ["b/eu"]
    dearest = PRICE.rates.completion * 1_000_000
    assert order(max_price=MaxPrice(completion=dearest)) == ["a", "b/eu", "c"]


def test_the_cheapest_is_first_on_request() -> None:
    assert order(by_price=True) == ["b/eu", "a", "c"]


def test_further_models_come_after_the_first_ones_endpoints() -> None:
    assert [candidate.model.id for candidate in chosen(model(A, B), model(C, name="n"))] == [
        "m",
        "m",
        "n",
    ]


def test_the_best_way_that_a_provider_understands_is_taken() -> None:
    native = chosen(spoken={Dialect.CHAT, Dialect.MESSAGES})[0].adapter
    translated = chosen(spoken={Dialect.MESSAGES})[0].adapter
    assert (native.dialect, translated.dialect) == (Dialect.CHAT, Dialect.MESSAGES)


def test_a_model_that_can_be_asked_in_less_than_its_provider_speaks_is_asked_in_that() -> None:
    narrow = replace(A, dialects=frozenset({Dialect.EMBEDDINGS}))
    with pytest.raises(NotFound, match="does not answer requests of this kind"):
        chosen(model(narrow))


def test_what_a_policy_blocks_is_not_tried() -> None:
    policies = [AccessPolicy("key", blocked_providers=("a",))]
    assert [candidate.endpoint.provider for candidate in chosen(policies=policies)] == ["b/eu", "c"]


def test_every_policy_must_allow_an_endpoint() -> None:
    policies = [
        AccessPolicy("account", blocked_providers=("b*",)),
        AccessPolicy("workspace", data_collection="deny"),
    ]
    assert [candidate.endpoint.provider for candidate in chosen(policies=policies)] == ["a"]


def test_where_policies_allow_nothing_the_request_is_forbidden_with_the_reasons() -> None:
    policies = [AccessPolicy("account", allowed_models=("acme/*",))]
    with pytest.raises(Forbidden) as caught:
        chosen(policies=policies)
    assert caught.value.metadata == {
        "error_type": "permission_denied",
        "reasons": ["The account's policy does not allow the model m."],
    }


UNSENT = ProviderUnavailable("x", provider_name="a")
AMBIGUOUS = ProviderUnavailable("x", provider_name="a", ambiguous=True)
REFUSED = ProviderRefused("x", provider_name="a")
REFUSED_AMBIGUOUSLY = ProviderRefused("x", provider_name="a", ambiguous=True)
FIRST, SECOND, *_ = chosen()
OTHER_MODEL = chosen(model(C, name="n"))[0]
REST = [SECOND, OTHER_MODEL]


@pytest.mark.parametrize(
    ("error", "rest"),
    [
        (UNSENT, REST),
        (AMBIGUOUS, []),
        (REFUSED, [OTHER_MODEL]),
        (REFUSED_AMBIGUOUSLY, []),
        (failure("a", 429), REST),
        (failure("a", 500), REST),
    ],
)
def test_the_next_endpoint_is_tried_only_where_no_work_was_done(
    error: ProviderFailure, rest: list[Candidate]
) -> None:
    assert list(remaining(error, FIRST, REST)) == rest


@pytest.mark.parametrize("error", [UNSENT, AMBIGUOUS, failure("a", 429), failure("a", 500)])
def test_after_an_idempotent_provider_the_next_endpoint_is_tried(error: ProviderFailure) -> None:
    vouched = replace(FIRST, endpoint=replace(A, idempotent=True))
    assert list(remaining(error, vouched, REST)) == REST


@pytest.mark.parametrize("error", [REFUSED, REFUSED_AMBIGUOUSLY, failure("a", 400)])
def test_a_wrong_request_ends_at_an_idempotent_provider_too(error: ProviderFailure) -> None:
    vouched = replace(FIRST, endpoint=replace(A, idempotent=True))
    assert list(remaining(error, vouched, [SECOND])) == []


def test_the_last_error_is_the_last_word() -> None:
    errors = [failure("a", 429, retry_after=1), failure("b", 503, retry_after=2)]
    assert final_error(errors) is errors[1]
    assert errors[1].retry_after == 1


@pytest.mark.parametrize("ambiguous", [False, True])
def test_the_last_word_is_ambiguous_if_any_error_was(*, ambiguous: bool) -> None:
    first = ProviderUnavailable("x", provider_name="a", ambiguous=ambiguous)
    assert final_error([first, failure("b", 500)]).ambiguous is ambiguous

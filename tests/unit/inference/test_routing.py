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


def fails(*failed: Endpoint) -> Callable[[Endpoint], bool]:
    return lambda endpoint: endpoint in failed


DEAREST = PRICE.rates.completion * 1_000_000
DENIES = AccessPolicy("workspace", data_collection="deny")


@pytest.mark.parametrize(
    ("wanted", "providers"),
    [
        ({}, ["a", "b/eu", "c"]),
        # One that failed of late is last, unless the request's order has it first.
        ({"cooling": fails(A)}, ["b/eu", "c", "a"]),
        ({"order": ("c", "b"), "cooling": fails(C)}, ["c", "b/eu", "a"]),
        # A provider goes by slug, stem or name.
        *(({"only": (name,)}, ["b/eu"]) for name in ("b", "b/eu", "Beta", "BETA")),
        *(({"ignore": (name,)}, ["a", "c"]) for name in ("b", "b/eu", "Beta", "BETA")),
        # Without fallbacks the first has the last word.
        ({"allow_fallbacks": False}, ["a"]),
        ({"allow_fallbacks": False, "order": ("c",)}, ["c"]),
        # What an endpoint or a dialect cannot say excludes it only on request.
        ({"require_parameters": True}, ["a", "b/eu"]),
        ({"spoken": {Dialect.MESSAGES}}, ["a", "b/eu", "c"]),
        ({"deny_data_collection": True}, ["a"]),
        ({"max_price": MaxPrice(prompt=Decimal(0))}, ["b/eu"]),
        ({"max_price": MaxPrice(completion=DEAREST)}, ["a", "b/eu", "c"]),
        ({"by_price": True}, ["b/eu", "a", "c"]),
        # Every policy has to allow it.
        ({"policies": [AccessPolicy("key", blocked_providers=("a",))]}, ["b/eu", "c"]),
        ({"policies": [AccessPolicy("account", blocked_providers=("b*",)), DENIES]}, ["a"]),
    ],
)
def test_endpoints_are_tried_in_the_order_that_is_wanted(
    wanted: dict[str, Any], providers: list[str]
) -> None:
    assert order(**wanted) == providers


@pytest.mark.parametrize(
    "wanted",
    [
        {"only": ("a/us",)},  # longer than the slug
        {"only": ()},
        {"spoken": {Dialect.MESSAGES}, "require_parameters": True},
        {"unsupported_guarantees": True},  # nobody vouches for them
    ],
)
def test_where_nobody_meets_what_is_required_the_model_is_unavailable(
    wanted: dict[str, Any],
) -> None:
    with pytest.raises(Unavailable, match="routing requirements"):
        chosen(**wanted)


def test_further_models_come_after_the_first_ones_endpoints() -> None:
    found = chosen(model(A, B), model(C, name="n"))
    assert [candidate.model.id for candidate in found] == ["m", "m", "n"]
    assert order(M, model(B, C, name="n"), allow_fallbacks=False) == ["a", "b/eu"]


def test_the_best_way_that_a_provider_understands_is_taken() -> None:
    native = chosen(spoken={Dialect.CHAT, Dialect.MESSAGES})[0].adapter
    translated = chosen(spoken={Dialect.MESSAGES})[0].adapter
    assert (native.dialect, translated.dialect) == (Dialect.CHAT, Dialect.MESSAGES)


def test_a_model_that_can_be_asked_in_less_than_its_provider_speaks_is_asked_in_that() -> None:
    narrow = replace(A, dialects=frozenset({Dialect.EMBEDDINGS}))
    with pytest.raises(NotFound, match="does not answer requests of this kind"):
        chosen(model(narrow))


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
    vouched = FIRST._replace(endpoint=replace(A, idempotent=True))
    assert list(remaining(error, vouched, REST)) == REST


@pytest.mark.parametrize("error", [REFUSED, REFUSED_AMBIGUOUSLY, failure("a", 400)])
def test_a_wrong_request_ends_at_an_idempotent_provider_too(error: ProviderFailure) -> None:
    vouched = FIRST._replace(endpoint=replace(A, idempotent=True))
    assert list(remaining(error, vouched, [SECOND])) == []


def test_the_last_error_is_the_last_word() -> None:
    errors = [failure("a", 429, retry_after=1), failure("b", 503, retry_after=2)]
    assert final_error(errors) is errors[1]
    assert errors[1].retry_after == 1


@pytest.mark.parametrize("ambiguous", [False, True])
def test_the_last_word_is_ambiguous_if_any_error_was(*, ambiguous: bool) -> None:
    first = ProviderUnavailable("x", provider_name="a", ambiguous=ambiguous)
    assert final_error([first, failure("b", 500)]).ambiguous is ambiguous

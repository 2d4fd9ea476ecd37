from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from tests.support.batches import batch
from tests.support.builders import api_key
from tests.support.clock import START
from tollhouse.accounting.types import Price, Rates
from tollhouse.batches.policy import (
    BatchRules,
    candidates,
    catalog_name,
    check_open,
    check_rate,
    estimate_nano,
    find_model,
    is_kept,
    visibility_of,
)
from tollhouse.batches.types import BatchDemand, BatchEndpoint, VisibilityFilter
from tollhouse.identity.types import AccessPolicy, KeyKind, subject_of
from tollhouse.inference.catalog import Catalog
from tollhouse.inference.types import Dialect, Endpoint, MaxPrice, Model, Preferences
from tollhouse.kernel.errors import Forbidden, Invalid, RateLimited, Unprocessable

RULES = BatchRules(per_hour=3, most_open=2)
NOBODY = Preferences()
MICRO = Decimal("0.000001")


def endpoint(provider: str, prompt: int = 1, completion: int = 2, factor: str = "1") -> Endpoint:
    rates = Rates(prompt * MICRO, completion * MICRO, MICRO, MICRO, MICRO)
    return Endpoint(provider, "m", Price(rates), batch_price_factor=Decimal(factor))


def model(name: str, *endpoints: Endpoint) -> Model:
    return Model(name, name, "", 1_000, None, endpoints or (endpoint("acme"),))


CATALOG = Catalog([model("acme/large"), model("acme/large:free"), model("local/llama:8b")])


def dialects_of(_endpoint: Endpoint) -> frozenset[Dialect]:
    return frozenset({Dialect.CHAT})


@pytest.mark.parametrize("name", ["acme/large", "acme/large:batch"])
def test_the_batch_variant_is_the_same_model(name: str) -> None:
    assert find_model(CATALOG, name).id == catalog_name(name) == "acme/large"


def test_a_colon_in_a_models_own_name_is_no_variant() -> None:
    assert find_model(CATALOG, "local/llama:8b:batch").id == "local/llama:8b"


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-4o:batch", "big", "big:batch"])
def test_a_batch_may_name_its_model_in_any_way(name: str) -> None:
    catalog = Catalog([replace(model("acme/big"), aliases=("gpt-4o",))])
    assert find_model(catalog, name).id == "acme/big"


@pytest.mark.parametrize("variant", ["free", "online", "nitro", "free:batch"])
def test_other_variants_cannot_be_run_in_a_batch(variant: str) -> None:
    with pytest.raises(Unprocessable, match=r"^model: the variant"):
        find_model(CATALOG, f"acme/large:{variant}")


def test_an_unknown_model_is_a_mistake_of_the_request() -> None:
    with pytest.raises(Invalid, match=r"^model: No model 'acme/larg'.*acme/large"):
        find_model(CATALOG, "acme/larg")


def test_everybody_who_speaks_it_may_run_a_batch() -> None:
    both = model("m", endpoint("acme"), endpoint("other"))
    found = candidates(both, BatchEndpoint.MESSAGES, NOBODY, (), dialects_of)
    assert [each.provider for each in found] == ["acme", "other"]


def test_a_model_that_does_not_answer_an_endpoint_is_named_with_it() -> None:
    with pytest.raises(Invalid, match=r"^model: acme/large does not answer .* /v1/embeddings"):
        candidates(CATALOG.find("acme/large"), BatchEndpoint.EMBEDDINGS, NOBODY, (), dialects_of)


def test_only_those_may_run_it_that_the_batch_names() -> None:
    both = model("m", endpoint("acme"), endpoint("other/eu"))
    preferred = Preferences(only=("Other",))
    found = candidates(both, BatchEndpoint.CHAT_COMPLETIONS, preferred, (), dialects_of)
    assert [each.provider for each in found] == ["other/eu"]


def test_who_names_nobody_that_there_is_learns_who_there_is() -> None:
    both = model("m", endpoint("acme"), endpoint("other"))
    with pytest.raises(Invalid, match=r"^provider\.only: .* there are: acme, other\.$"):
        candidates(both, BatchEndpoint.CHAT_COMPLETIONS, Preferences(only=("x",)), (), dialects_of)


def test_without_fallbacks_the_first_alone_may_run_it() -> None:
    both = model("m", endpoint("acme"), endpoint("other"))
    preferred = Preferences(allow_fallbacks=False)
    found = candidates(both, BatchEndpoint.CHAT_COMPLETIONS, preferred, (), dialects_of)
    assert [each.provider for each in found] == ["acme"]


@pytest.mark.parametrize(
    ("preferred", "providers"),
    [
        (Preferences(order=("other",)), ["other", "acme"]),
        (Preferences(ignore=("acme",)), ["other"]),
        (Preferences(by_price=True), ["other", "acme"]),
        (Preferences(order=("other",), allow_fallbacks=False), ["other"]),
        (Preferences(max_price=MaxPrice(prompt=Decimal(2))), ["other"]),
    ],
)
def test_a_batch_chooses_its_providers_as_a_request_does(
    preferred: Preferences, providers: list[str]
) -> None:
    both = model("m", endpoint("acme", 3), endpoint("other", 1))
    found = candidates(both, BatchEndpoint.CHAT_COMPLETIONS, preferred, (), dialects_of)
    assert [each.provider for each in found] == providers


def test_a_preference_that_nobody_meets_is_named() -> None:
    with pytest.raises(Invalid, match=r"^provider\.data_collection: none of them runs"):
        candidates(
            CATALOG.find("acme/large"),
            BatchEndpoint.CHAT_COMPLETIONS,
            Preferences(deny_data_collection=True),
            (),
            dialects_of,
        )


def test_what_a_policy_blocks_is_refused_before_anything_is_stored() -> None:
    policy = AccessPolicy("key", blocked_providers=("acme",))
    with pytest.raises(Forbidden, match="blocks the provider acme"):
        candidates(
            CATALOG.find("acme/large"),
            BatchEndpoint.CHAT_COMPLETIONS,
            NOBODY,
            (policy,),
            dialects_of,
        )


DEMAND = BatchDemand(items=10, input_tokens=1_000, largest_input=100, output_tokens=500)


def test_a_batch_is_estimated_at_the_dearest_of_those_who_may_run_it() -> None:
    endpoints = [endpoint("acme", 1, 2), endpoint("other", 5, 10)]
    assert estimate_nano(DEMAND, BatchEndpoint.CHAT_COMPLETIONS, endpoints, RULES) == 10_000_000


def test_the_price_of_a_batch_has_its_factor() -> None:
    endpoints = [endpoint("acme", 1, 2, factor="0.5")]
    assert estimate_nano(DEMAND, BatchEndpoint.CHAT_COMPLETIONS, endpoints, RULES) == 1_000_000


def test_what_sets_no_limit_counts_what_is_assumed() -> None:
    demand = BatchDemand(items=10, unlimited=4)
    rules = BatchRules(assumed_output_tokens=250)
    assert (
        estimate_nano(demand, BatchEndpoint.CHAT_COMPLETIONS, [endpoint("acme")], rules)
        == 2_000_000
    )


def test_embeddings_write_nothing() -> None:
    demand = BatchDemand(items=10, input_tokens=1_000, largest_input=100, unlimited=10)
    assert estimate_nano(demand, BatchEndpoint.EMBEDDINGS, [endpoint("acme")], RULES) == 1_000_000


def test_an_account_may_submit_so_many_batches_in_an_hour() -> None:
    check_rate(RULES, 2, START, START)
    with pytest.raises(RateLimited, match="batches-per-hour") as refused:
        check_rate(RULES, 3, START - timedelta(minutes=20), START)
    assert refused.value.window.resets_at == START + timedelta(minutes=40)


def test_an_account_may_have_so_many_batches_open() -> None:
    check_open(RULES, 1, START)
    with pytest.raises(RateLimited, match="open-batches") as refused:
        check_open(RULES, 2, START)
    assert refused.value.window.limit == 2


def test_a_key_sees_the_batches_of_its_workspace() -> None:
    assert visibility_of(subject_of(api_key(workspace_id="here"))) == VisibilityFilter("here")


def test_an_intern_s_own_key_sees_those_of_its_intern() -> None:
    own = api_key(workspace_id="here", kind=KeyKind.INTERN, intern_id="ada")
    assert visibility_of(subject_of(own)) == VisibilityFilter("here", "ada")


def test_a_batch_is_kept_until_its_retention_is_over() -> None:
    rules = BatchRules(retention=timedelta(days=30))
    assert is_kept(batch(), rules, START + timedelta(days=29))
    assert not is_kept(batch(), rules, START + timedelta(days=30))
    assert not is_kept(batch(deleted_at=START), rules, START)

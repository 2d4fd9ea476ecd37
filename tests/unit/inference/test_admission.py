"""What a request asks of admission."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tests.support.clock import START
from tests.support.seams.accounting import FREE, AccountingRules, Price, Rates
from tests.support.seams.inference import (
    Candidate,
    ChatPassthroughAdapter,
    Endpoint,
    Model,
    admission_request_of,
    allowed_candidates,
    estimate_demand,
    output_limit,
    parse_request,
)
from tests.unit.inference.fakes import SUBJECT, parsed_request
from tollhouse.kernel.money import NANO_PER_CREDIT

if TYPE_CHECKING:
    from tests.support.seams.inference import InferenceRequest

RULES = AccountingRules()
ZERO = Decimal(0)


def price(prompt: str = "0", completion: str = "0", request: str = "0") -> Price:
    rates = (Decimal(prompt), Decimal(completion), ZERO, ZERO, ZERO)
    return Price(Rates(*rates, request=Decimal(request)))


def candidate(price_: Price, model: str = "acme/large", **fields: Any) -> Candidate:
    endpoint = Endpoint("acme", "large", price_, free_limits=fields.pop("free_limits", True))
    request = parse_request(b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}')
    found = Model(model, "Large", "", 128_000, None, (endpoint,))
    return Candidate(replace(found, **fields), endpoint, ChatPassthroughAdapter(request))


def asked(**body: Any) -> InferenceRequest:
    said = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    return parsed_request(parse_request(json.dumps(said | body).encode()))


def request(*candidates: Candidate, **body: Any) -> Any:
    return admission_request_of("gen-1", asked(**body), candidates, RULES)


def test_it_names_the_request_its_account_and_its_key() -> None:
    found = request(candidate(FREE))
    assert found.generation_id == "gen-1"
    assert (found.account_id, found.key_hashes) == (SUBJECT.account_id, (SUBJECT.key_hash,))
    assert found.now == START


def test_the_output_that_max_tokens_allows_is_claimed() -> None:
    found = request(candidate(price(completion="0.001")), max_tokens=100)
    assert found.estimate_nano == 100 * 1_000_000
    assert found.paid
    assert not found.open_ended


def test_without_max_tokens_the_cap_is_claimed() -> None:
    found = request(candidate(price(completion="0.000000001")))
    assert found.estimate_nano == RULES.request_cap_nano
    assert found.open_ended


def test_no_more_than_the_cap_is_claimed() -> None:
    found = request(candidate(price(completion="1")), max_tokens=1_000)
    assert found.estimate_nano == RULES.request_cap_nano


def test_the_dearest_of_the_ways_counts() -> None:
    cheap, dear = candidate(price(completion="0.001")), candidate(price(completion="0.002"))
    assert request(cheap, dear, max_tokens=100).estimate_nano == 200 * 1_000_000
    assert request(dear, cheap, candidate(FREE), max_tokens=100).estimate_nano == 200 * 1_000_000


def test_a_fee_is_paid_and_not_estimated() -> None:
    found = request(candidate(price(request="0.5")))
    assert found.paid
    assert found.estimate_nano == 0


def test_a_price_of_nothing_claims_nothing() -> None:
    found = request(candidate(FREE))
    assert not found.paid
    assert found.estimate_nano == 0
    assert not found.free
    assert found.rate is None


def test_free_models_share_a_limit_of_requests() -> None:
    found = request(candidate(FREE, "acme/large:free"))
    assert found.free
    assert found.only_free
    assert found.rate == ("free-models-per-min", None, 20)


def test_a_free_model_may_have_a_limit_of_its_own() -> None:
    found = request(candidate(FREE, "acme/large:free", requests_per_minute=3))
    assert found.rate == ("free-models-per-min", "acme/large:free", 3)


def test_an_exempt_endpoint_is_not_limited() -> None:
    found = request(candidate(FREE, "acme/large:free", free_limits=False))
    assert not found.free
    assert found.rate is None


def test_a_paid_model_beside_a_free_one_is_not_bound_to_it() -> None:
    found = request(candidate(FREE, "acme/large:free"), candidate(price("0.001")), max_tokens=1)
    assert found.free
    assert not found.only_free
    assert found.paid


def test_a_paid_model_has_a_limit_of_requests_only_where_that_is_set() -> None:
    assert request(candidate(price("0.001"))).rate is None
    found = request(candidate(price("0.001"), requests_per_minute=7))
    assert found.rate == ("requests-per-min", "acme/large", 7)


def test_a_free_model_behind_a_paid_one_counts_towards_the_minute() -> None:
    found = request(candidate(price("0.001")), candidate(FREE, "acme/large:free"))
    assert found.rate == ("free-models-per-min", None, 20)


def test_without_room_at_free_models_the_paid_ways_are_left() -> None:
    candidates = (candidate(FREE, "acme/large:free"), candidate(price("0.001")))
    claimed = request(*candidates, max_tokens=1)
    assert list(allowed_candidates(claimed, candidates, may_use_free=False)) == [candidates[1]]
    assert list(allowed_candidates(claimed, candidates, may_use_free=True)) == list(candidates)


def test_a_request_without_free_models_keeps_its_ways() -> None:
    candidates = (candidate(price("0.001")),)
    assert list(allowed_candidates(request(*candidates), candidates, may_use_free=False)) == list(
        candidates
    )


def test_the_most_that_it_may_cost_has_no_cap_and_counts_fees() -> None:
    dear = candidate(price(completion="0.001", request="1"))
    found = request(dear, max_tokens=100_000)
    assert found.maximum_nano == 101 * NANO_PER_CREDIT
    assert found.estimate_nano == RULES.request_cap_nano


def test_without_max_tokens_it_may_cost_all_that_its_model_writes() -> None:
    known = candidate(price(completion="0.001"), max_completion_tokens=500)
    assert request(known).maximum_nano == 500 * 1_000_000
    assert request(known, n=3).maximum_nano == 1_500 * 1_000_000
    assert request(candidate(price(completion="0.001"))).maximum_nano == 128_000 * 1_000_000


def test_without_max_tokens_it_costs_its_prompt_at_least() -> None:
    found = request(candidate(price(prompt="0.001", completion="0.001", request="1")))
    tokens = estimate_demand(asked().parsed).input_tokens
    assert found.minimum_nano == NANO_PER_CREDIT + tokens * 1_000_000


def test_reasoning_must_be_paid_for_beside_the_prompt() -> None:
    dear = candidate(price(completion="0.001"))
    assert request(dear, reasoning={"max_tokens": 2_000}).minimum_nano == 2_000 * 1_000_000
    assert request(dear, reasoning_effort="low").minimum_nano == 1_024 * 1_000_000


def test_the_limit_of_output_is_what_the_dearest_way_pays_for() -> None:
    cheap, dear = candidate(price(completion="0.001")), candidate(price(completion="0.002"))
    wanted = estimate_demand(asked().parsed)
    assert output_limit(wanted, (cheap, dear), NANO_PER_CREDIT) == 500
    assert output_limit(wanted, (cheap, candidate(FREE)), NANO_PER_CREDIT) == 1_000


def test_the_limit_of_output_is_never_above_the_models_own() -> None:
    small = candidate(price(completion="0.001"), max_completion_tokens=20)
    assert output_limit(estimate_demand(asked().parsed), (small,), NANO_PER_CREDIT) == 20


def test_no_token_less_is_asked_for_than_providers_take() -> None:
    dear = candidate(price(completion="1"))
    assert output_limit(estimate_demand(asked().parsed), (dear,), 5) == 1

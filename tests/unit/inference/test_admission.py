"""What a request asks of admission."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import START
from tests.support.seams.accounting import FREE, AccountingRules, Price, Rates
from tests.support.seams.inference import (
    Candidate,
    ChatPassthroughAdapter,
    Dialect,
    Endpoint,
    Model,
    admission_request_of,
    allowed_candidates,
    demand_of,
    output_limit,
    parse_request,
)
from tests.unit.inference.fakes import SUBJECT, parsed_request
from tollhouse.kernel.money import NANO_PER_CREDIT

if TYPE_CHECKING:
    from tests.support.seams.inference import InferenceRequest

RULES = AccountingRules()
CAP = RULES.request_cap_nano
MILLI = NANO_PER_CREDIT // 1_000
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
    return parsed_request(json.dumps(said | body).encode())


def request(*candidates: Candidate, **body: Any) -> Any:
    return admission_request_of("gen-1", asked(**body), candidates, RULES)


def test_it_names_the_request_its_account_and_its_key() -> None:
    found = request(candidate(FREE))
    assert found.generation_id == "gen-1"
    assert (found.account_id, found.key_hashes) == (SUBJECT.account_id, (SUBJECT.key_hash,))
    assert found.now == START


CHEAP, DEAR = price(completion="0.001"), price(completion="0.002")
FREE_MODEL = "acme/large:free"
PER_MINUTE = ("free-models-per-min", None, 20)


@pytest.mark.parametrize(
    ("ways", "limit", "claimed"),
    [
        ([CHEAP], 100, {"estimate_nano": 100 * MILLI, "paid": True, "open_ended": False}),
        # Without a limit, or above the cap, the cap is claimed.
        ([price(completion="0.000000001")], None, {"estimate_nano": CAP, "open_ended": True}),
        ([price(completion="1")], 1_000, {"estimate_nano": CAP}),
        ([CHEAP], 1, {"estimate_nano": MILLI, "maximum_nano": MILLI}),
        ([CHEAP, DEAR], 100, {"estimate_nano": 200 * MILLI}),
        ([DEAR, CHEAP, FREE], 100, {"estimate_nano": 200 * MILLI}),
        ([price(request="0.5")], None, {"estimate_nano": 0, "paid": True}),
        ([FREE], None, {"estimate_nano": 0, "paid": False, "free": False, "rate": None}),
        # The most that it may cost has no cap, and counts fees.
        (
            [price(completion="0.001", request="1")],
            100_000,
            {"maximum_nano": 101 * NANO_PER_CREDIT, "estimate_nano": CAP},
        ),
    ],
)
def test_what_the_dearest_of_the_ways_may_cost_is_claimed(
    ways: list[Price], limit: int | None, claimed: dict[str, object]
) -> None:
    found = request(*map(candidate, ways), **({} if limit is None else {"max_tokens": limit}))
    assert {name: getattr(found, name) for name in claimed} == claimed


@pytest.mark.parametrize("body", [{}, {"max_tokens": 100}, {"n": 3, "reasoning_effort": "low"}])
@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.MESSAGES, Dialect.RESPONSES])
@given(
    rates=st.tuples(*[st.decimals(0, 1, places=11)] * 3),
    limits=st.tuples(*[st.none() | st.integers(1, 9)] * 2),
)
def test_the_only_way_asks_for_what_it_asks_for_among_several(
    body: dict[str, Any],
    dialect: Dialect,
    rates: tuple[Decimal, ...],
    limits: tuple[int | None, int | None],
) -> None:
    most, a_minute = limits
    way = candidate(
        price(*map(str, rates)), max_completion_tokens=most, requests_per_minute=a_minute
    )
    way = way._replace(adapter=cast("Any", SimpleNamespace(dialect=dialect)))
    assert request(way, **body) == request(way, way, **body)


def free_way(**fields: Any) -> Candidate:
    return candidate(FREE, FREE_MODEL, **fields)


@pytest.mark.parametrize(
    ("ways", "claimed"),
    [
        ([free_way()], {"free": True, "only_free": True, "rate": PER_MINUTE}),
        ([free_way(requests_per_minute=3)], {"rate": ("free-models-per-min", FREE_MODEL, 3)}),
        ([free_way(free_limits=False)], {"free": False, "rate": None}),
        ([free_way(), candidate(CHEAP)], {"free": True, "only_free": False, "paid": True}),
        ([candidate(CHEAP), free_way()], {"rate": PER_MINUTE}),
        ([candidate(CHEAP)], {"rate": None}),
        (
            [candidate(CHEAP, requests_per_minute=7)],
            {"rate": ("requests-per-min", "acme/large", 7)},
        ),
    ],
)
def test_limits_of_requests_are_those_of_free_models_and_a_models_own(
    ways: list[Candidate], claimed: dict[str, object]
) -> None:
    found = request(*ways, max_tokens=1)
    assert {name: getattr(found, name) for name in claimed} == claimed


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


def test_the_smallest_limit_costs_what_its_provider_raises_it_to() -> None:
    asked_as_responses: Any = SimpleNamespace(dialect=Dialect.RESPONSES)
    raising = candidate(CHEAP)._replace(adapter=asked_as_responses)
    assert request(raising, max_tokens=1).maximum_nano == 16 * MILLI
    assert request(raising, max_tokens=1, n=2).estimate_nano == 32 * MILLI


def test_without_max_tokens_it_may_cost_all_that_its_model_writes() -> None:
    known = candidate(price(completion="0.001"), max_completion_tokens=500)
    assert request(known).maximum_nano == 500 * MILLI
    assert request(known, n=3).maximum_nano == 1_500 * MILLI
    assert request(candidate(price(completion="0.001"))).maximum_nano == 128_000 * MILLI


def test_without_max_tokens_it_costs_its_prompt_at_least() -> None:
    found = request(candidate(price(prompt="0.001", completion="0.001", request="1")))
    tokens = demand_of(asked()).input_tokens
    assert found.minimum_nano == NANO_PER_CREDIT + tokens * MILLI


def test_reasoning_must_be_paid_for_beside_the_prompt() -> None:
    dear = candidate(price(completion="0.001"))
    assert request(dear, reasoning={"max_tokens": 2_000}).minimum_nano == 2_000 * MILLI
    assert request(dear, reasoning_effort="low").minimum_nano == 1_024 * MILLI


def test_the_limit_of_output_is_what_the_dearest_way_pays_for() -> None:
    cheap, dear = candidate(price(completion="0.001")), candidate(price(completion="0.002"))
    wanted = demand_of(asked())
    assert output_limit(wanted, (cheap, dear), NANO_PER_CREDIT) == 500
    assert output_limit(wanted, (cheap, candidate(FREE)), NANO_PER_CREDIT) == 1_000


def test_the_limit_of_output_is_never_above_the_models_own() -> None:
    small = candidate(price(completion="0.001"), max_completion_tokens=20)
    assert output_limit(demand_of(asked()), (small,), NANO_PER_CREDIT) == 20


def test_no_token_less_is_asked_for_than_providers_take() -> None:
    dear = candidate(price(completion="1"))
    assert output_limit(demand_of(asked()), (dear,), 5) == 1

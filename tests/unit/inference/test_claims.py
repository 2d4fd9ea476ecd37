"""What a request claims of its account."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

from tests.unit.inference.fakes import SUBJECT
from tollhouse.accounting.rules import Rules
from tollhouse.accounting.types import FREE, Attribution, Price, Rates
from tollhouse.inference.call import Call
from tollhouse.inference.claims import claim_of, open_to
from tollhouse.inference.formats.chat_completions.parse import parse_request
from tollhouse.inference.formats.chat_completions.relay import ChatRelay
from tollhouse.inference.preferences import NO_PREFERENCES
from tollhouse.inference.routing import Way
from tollhouse.inference.types import Endpoint, Model
from tollhouse.testing.clock import START

RULES = Rules()
ZERO = Decimal(0)


def price(prompt: str = "0", completion: str = "0", request: str = "0") -> Price:
    rates = (Decimal(prompt), Decimal(completion), ZERO, ZERO, ZERO)
    return Price(Rates(*rates, request=Decimal(request)))


def way(price_: Price, model: str = "acme/large", **fields: Any) -> Way:
    endpoint = Endpoint("acme", "large", price_, free_limits=fields.pop("free_limits", True))
    request = parse_request(b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}')
    found = Model(model, "Large", "", 128_000, None, (endpoint,))
    return Way(replace(found, **fields), endpoint, ChatRelay(request))


def claim(*ways: Way, **body: Any) -> Any:
    said = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    request = parse_request(json.dumps(said | body).encode())
    call = Call(request, (ChatRelay(request),), NO_PREFERENCES, SUBJECT, Attribution(), START, 0.0)
    return claim_of("gen-1", call, ways, RULES)


def test_it_names_the_request_its_account_and_its_key() -> None:
    found = claim(way(FREE))
    assert found.generation_id == "gen-1"
    assert (found.account_id, found.key_hash) == (SUBJECT.account_id, SUBJECT.key_hash)
    assert found.now == START


def test_the_output_that_max_tokens_allows_is_claimed() -> None:
    found = claim(way(price(completion="0.001")), max_tokens=100)
    assert found.estimate_nano == 100 * 1_000_000
    assert found.paid
    assert not found.open_ended


def test_without_max_tokens_the_cap_is_claimed() -> None:
    found = claim(way(price(completion="0.000000001")))
    assert found.estimate_nano == RULES.request_cap_nano
    assert found.open_ended


def test_no_more_than_the_cap_is_claimed() -> None:
    found = claim(way(price(completion="1")), max_tokens=1_000)
    assert found.estimate_nano == RULES.request_cap_nano


def test_the_dearest_of_the_ways_counts() -> None:
    cheap, dear = way(price(completion="0.001")), way(price(completion="0.002"))
    assert claim(cheap, dear, max_tokens=100).estimate_nano == 200 * 1_000_000
    assert claim(dear, cheap, way(FREE), max_tokens=100).estimate_nano == 200 * 1_000_000


def test_a_fee_is_paid_and_not_estimated() -> None:
    found = claim(way(price(request="0.5")))
    assert found.paid
    assert found.estimate_nano == 0


def test_a_price_of_nothing_claims_nothing() -> None:
    found = claim(way(FREE))
    assert not found.paid
    assert found.estimate_nano == 0
    assert not found.free
    assert found.rate is None


def test_free_models_share_a_limit_of_requests() -> None:
    found = claim(way(FREE, "acme/large:free"))
    assert found.free
    assert found.only_free
    assert found.rate == ("free-models-per-min", None, 20)


def test_a_free_model_may_have_a_limit_of_its_own() -> None:
    found = claim(way(FREE, "acme/large:free", requests_per_minute=3))
    assert found.rate == ("free-models-per-min", "acme/large:free", 3)


def test_an_exempt_endpoint_is_not_limited() -> None:
    found = claim(way(FREE, "acme/large:free", free_limits=False))
    assert not found.free
    assert found.rate is None


def test_a_paid_model_beside_a_free_one_is_not_bound_to_it() -> None:
    found = claim(way(FREE, "acme/large:free"), way(price("0.001")), max_tokens=1)
    assert found.free
    assert not found.only_free
    assert found.paid


def test_a_paid_model_has_a_limit_of_requests_only_where_that_is_set() -> None:
    assert claim(way(price("0.001"))).rate is None
    found = claim(way(price("0.001"), requests_per_minute=7))
    assert found.rate == ("requests-per-min", "acme/large", 7)


def test_a_free_model_behind_a_paid_one_counts_towards_the_minute() -> None:
    found = claim(way(price("0.001")), way(FREE, "acme/large:free"))
    assert found.rate == ("free-models-per-min", None, 20)


def test_without_room_at_free_models_the_paid_ways_are_left() -> None:
    ways = (way(FREE, "acme/large:free"), way(price("0.001")))
    claimed = claim(*ways, max_tokens=1)
    assert list(open_to(claimed, ways, may_use_free=False)) == [ways[1]]
    assert list(open_to(claimed, ways, may_use_free=True)) == list(ways)


def test_a_request_without_free_models_keeps_its_ways() -> None:
    ways = (way(price("0.001")),)
    assert list(open_to(claim(*ways), ways, may_use_free=False)) == list(ways)

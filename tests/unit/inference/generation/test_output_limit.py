"""A request without a limit of its output, of which not all that it could cost can be paid for."""

import json
from typing import Any

import pytest

from tests.support.seams.accounting import maximum_cost
from tests.support.seams.inference import Dialect, estimate_demand
from tests.unit.inference.fakes import (
    PRICE,
    FakeAdmission,
    FakeProvider,
    PipelineFixture,
    outcome,
    whole_reply,
)

LIMITS = {"max_tokens", "max_completion_tokens", "max_output_tokens"}
NAMES = {
    Dialect.CHAT: "max_tokens",
    Dialect.RESPONSES: "max_output_tokens",
    Dialect.MESSAGES: "max_tokens",
}
NULLS = {"max_completion_tokens": None, "max_tokens": None}


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize(
    ("form", "fields", "affordable", "least", "most"),
    [
        ("/chat/completions", {}, 500, 400, 600),
        ("/chat/completions", NULLS, 500, 400, 600),
        ("/chat/completions", {"n": 4}, 500, 100, 125),
        ("/chat/completions", {}, 10_000_000, 100_000, 127_999),  # the context has 128,000
        ("/responses", {}, 500, 400, 600),
        ("/messages", {}, 500, 400, 600),
        ("/completions", {}, 500, 400, 600),
    ],
)
async def test_the_provider_is_asked_with_the_limit_that_can_be_paid_for(
    form: str, fields: dict[str, Any], affordable: int, least: int, most: int, dialect: Dialect
) -> None:
    w = PipelineFixture([FakeProvider(whole_reply(), dialects=frozenset({dialect}))])
    request = w.request("/chat/completions")
    asked = estimate_demand(request.parsed, request.body)
    spendable = maximum_cost(asked.input_tokens, affordable, 0, PRICE)
    w.admission = FakeAdmission(spendable_nano=spendable)
    w.__post_init__()
    exchange = w.ask(form, **fields)
    await outcome(exchange)
    assert least <= (exchange.output_limit or 0) <= most
    if dialect is Dialect.CHAT or "n" not in fields:
        sent = json.loads(w.providers[0].calls[0].body)
        assert sent.keys() & LIMITS == {NAMES[dialect]}
        assert sent[NAMES[dialect]] == exchange.output_limit

"""A request without a limit of its output, of which not all that it could cost can be paid for."""

from __future__ import annotations

import json

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

FORMS = ["/chat/completions", "/responses", "/messages", "/completions"]
NAMES = {
    Dialect.CHAT: "max_tokens",
    Dialect.RESPONSES: "max_output_tokens",
    Dialect.MESSAGES: "max_tokens",
}
LIMITS = {"max_tokens", "max_completion_tokens", "max_output_tokens"}


def fixture(dialect: Dialect, output_tokens: int) -> PipelineFixture:
    """Return a world where a short question may cost what so much output does."""
    w = PipelineFixture([FakeProvider(whole_reply(), dialects=frozenset({dialect}))])
    asked = estimate_demand(w.request("/chat/completions").parsed)
    w.admission = FakeAdmission(
        spendable_nano=maximum_cost(asked.input_tokens, output_tokens, 0, PRICE)
    )
    w.__post_init__()
    return w


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize("form", FORMS)
async def test_the_provider_is_asked_with_the_limit_that_can_be_paid_for(
    form: str, dialect: Dialect
) -> None:
    w = fixture(dialect, 500)
    exchange = w.ask(form)
    await outcome(exchange)
    sent = json.loads(w.providers[0].calls[0].body)
    assert sent.keys() & LIMITS == {NAMES[dialect]}
    assert sent[NAMES[dialect]] == exchange.output_limit
    assert 400 <= sent[NAMES[dialect]] <= 600


async def test_a_limit_of_null_is_none_of_the_clients() -> None:
    w = fixture(Dialect.CHAT, 500)
    await outcome(w.ask("/chat/completions", max_completion_tokens=None, max_tokens=None))
    sent = json.loads(w.providers[0].calls[0].body)
    assert sent.keys() & LIMITS == {"max_tokens"}


async def test_several_answers_share_what_can_be_paid_for() -> None:
    w = fixture(Dialect.CHAT, 500)
    exchange = w.ask("/chat/completions", n=4)
    await outcome(exchange)
    assert exchange.output_limit is not None
    assert 100 <= exchange.output_limit <= 125


async def test_it_is_never_above_what_the_model_has_room_for() -> None:
    w = fixture(Dialect.CHAT, 10_000_000)
    exchange = w.ask("/chat/completions")
    await outcome(exchange)
    [model] = w.catalog.models
    assert exchange.output_limit is not None
    assert exchange.output_limit < model.context_length


async def test_a_request_that_can_pay_for_everything_is_asked_as_it_is() -> None:
    w = PipelineFixture([FakeProvider(whole_reply())])
    exchange = w.ask("/chat/completions")
    await outcome(exchange)
    assert exchange.output_limit is None
    assert not json.loads(w.providers[0].calls[0].body).keys() & LIMITS

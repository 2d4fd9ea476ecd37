import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.seams.identity import AccessPolicy
from tests.support.seams.inference import (
    Catalog,
    Dialect,
    Endpoint,
    Model,
    TokenCounter,
    failure,
    render_count,
)
from tests.support.seams.inference import messages_parse_request as parse_request
from tests.unit.inference.fakes import PRICE, FakeProvider, FakeReply
from tollhouse.kernel.errors import Forbidden, ProviderRefused

COUNTS = frozenset({Dialect.MESSAGES, Dialect.COUNT_TOKENS})
BODY = json.dumps(
    {"model": "acme/large", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
).encode()
REQUEST = parse_request(BODY)
ESTIMATE = -(-len(BODY) // 4)


def counting(answer: Any) -> FakeProvider:
    reply = FakeReply([json.dumps(answer).encode()]) if isinstance(answer, dict) else answer
    return FakeProvider(reply, dialects=COUNTS)


async def asks(endpoint: Endpoint) -> bytes:
    return render_count(BODY, endpoint)


async def count(*providers: FakeProvider, policies: Sequence[AccessPolicy] = ()) -> int:
    by_slug = {f"p{number}": each for number, each in enumerate(providers)}
    endpoints = tuple(Endpoint(slug, "large-2026", PRICE) for slug in by_slug)
    model = Model("acme/large", "Large", "", 8192, None, endpoints)
    counter = TokenCounter(Catalog([model]), by_slug)

    return await counter.count(REQUEST, asks, "beta=true", (("anthropic-beta", "b"),), policies)


async def test_a_provider_that_counts_is_asked_without_what_is_of_the_reply() -> None:
    provider = counting({"input_tokens": 7})
    assert await count(provider) == 7
    [call] = provider.calls
    assert call.dialect is Dialect.COUNT_TOKENS
    assert (call.query, call.headers) == ("beta=true", (("anthropic-beta", "b"),))
    sent = json.loads(call.body)
    assert sent == {"model": "large-2026", "messages": [{"role": "user", "content": "hi"}]}
    assert provider.answer.closed == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("answer", [{"input_tokens": -1}, {}, failure("Acme", 529)])
async def test_a_provider_that_fails_to_count_is_followed_by_the_next(answer: Any) -> None:
    assert await count(counting(answer), counting({"input_tokens": 7})) == 7
    assert await count(counting(answer)) == ESTIMATE


async def test_a_request_that_a_provider_refuses_is_refused() -> None:
    with pytest.raises(ProviderRefused):
        await count(counting(failure("Acme", 400)))


async def test_a_provider_that_a_policy_blocks_is_not_asked_to_count() -> None:
    blocked, other = counting({"input_tokens": 1}), counting({"input_tokens": 7})
    policies = (AccessPolicy("key", blocked_providers=("p0",)),)
    assert await count(blocked, other, policies=policies) == 7
    assert blocked.calls == []
    with pytest.raises(Forbidden):
        await count(blocked, policies=policies)

"""Several processes on one database spend one budget, and together exactly that."""

import asyncio
import json
import random
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
import pytest

from tests.support.deployment import (
    BUDGETS,
    COST,
    SETTINGS,
    TOKENS,
    WORKERS,
    Deployment,
    Payer,
    body_of,
    model,
)
from tests.support.postgresql_databases import plain_url
from tests.support.scripted_providers import ScriptedProviders, reply
from tests.support.server_process import DATABASE_URL
from tests.support.spenders import Reply, Spenders, admitted, having, refusals
from tests.support.waiting import until, wait_until

ROUNDS_IN_TEST = 2
ROUNDS_IN_SOAK = 10
"""At the small dose."""
IN_FORCE_SECONDS = 1.0
"""When a change is in force in every process."""
SERVERS = pytest.param(("postgresql", 0), marks=pytest.mark.postgresql, id="servers")
OF_WORKERS = [
    pytest.param(("sqlite", WORKERS), id="workers"),
    pytest.param(
        ("postgresql", WORKERS),
        marks=[pytest.mark.postgresql, pytest.mark.soak],
        id="workers-postgresql",
    ),
]
OVER = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "over",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "more than it may"},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2 * TOKENS, "total_tokens": 2 * TOKENS + 1},
}
"""A reply that costs twice what was held for it."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=[SERVERS, *OF_WORKERS])
def deployment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Deployment]:
    """Four processes on one database; in the end its books are right."""
    database, workers = request.param
    env = {}
    if database == "postgresql":
        env = {DATABASE_URL: plain_url(request.getfixturevalue("postgresql").take())}
    with ScriptedProviders() as providers:
        providers.say("over", reply(OVER))
        over = {"slug": "over", "kind": "openai_compatible", "base_url": f"{providers.origin}/over"}
        settings = {
            **SETTINGS,
            "providers": [*SETTINGS["providers"], over],
            "models": [*SETTINGS["models"], model("over", "any", "over")],
        }
        folder = tmp_path_factory.mktemp("processes")
        made = Deployment(folder, env, workers=workers, settings=settings)
        yield made
        assert made.differences() == []
        assert made.holds_expired() == 0
        made.close()


@pytest.fixture
async def spenders(deployment: Deployment) -> AsyncGenerator[Spenders]:
    async with Spenders(deployment, random.randrange(10**6)) as made:
        yield made


@asynccontextmanager
async def spending(spenders: Spenders, payer: Payer) -> AsyncGenerator[list[Reply]]:
    """Have clients ask through every process during the block, whatever they are answered."""
    stopped, replies = asyncio.Event(), list[Reply]()

    async def client() -> None:
        while not stopped.is_set():
            replies.append(await spenders.ask(payer.key, body_of(payer.model)))
            await asyncio.sleep(0.02)

    clients = [asyncio.create_task(client()) for _ in range(16)]
    try:
        yield replies
    finally:
        stopped.set()
        await asyncio.gather(*clients)


async def assert_used(spenders: Spenders, payer: Payer, requests: float) -> None:
    """Wait until every process tells what so many requests cost, and no more."""
    deployment = spenders.deployment
    for process in range(len(deployment.servers)):
        await until(lambda p=process: deployment.used(payer, p) == round(requests, 6))


async def assert_left(spenders: Spenders, payer: Payer, requests: int) -> None:
    """Spend what is left through any process, to the last."""
    replies = await spenders.fill(replace(payer, k=requests))
    assert refusals(replies[:requests]) == {}
    assert admitted(replies) == requests


@pytest.mark.parametrize("budget", BUDGETS)
async def test_of_a_budget_for_k_requests_exactly_k_are_admitted(
    spenders: Spenders, budget: str
) -> None:
    rounds = [await spenders.round(number, budget) for number in range(ROUNDS_IN_TEST)]
    assert [each.problem for each in rounds] == [""] * ROUNDS_IN_TEST


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("budget", BUDGETS)
async def test_many_budgets_are_exact(spenders: Spenders, budget: str, soak_factor: int) -> None:
    times = range(ROUNDS_IN_SOAK * soak_factor)
    rounds = [await spenders.round(number, budget) for number in times]
    assert [each.problem for each in rounds] == [""] * len(times)


LIMITED = [each for each in BUDGETS if each in {"key", "workspace"}]


@pytest.mark.parametrize("budget", [*LIMITED, "none"])
async def test_a_limit_that_is_lowered_recalls_what_others_have(
    spenders: Spenders, budget: str
) -> None:
    deployment = spenders.deployment
    payer = await asyncio.to_thread(deployment.payer, budget, 1_000)
    assert refusals(await spenders.times(50, payer)) == {}
    await asyncio.to_thread(deployment.limit, payer, 80, 1)
    await asyncio.sleep(IN_FORCE_SECONDS)
    await assert_left(spenders, payer, 30)
    await assert_used(spenders, payer, 80)


@pytest.mark.parametrize("budget", [*LIMITED, "balance"])
async def test_what_is_added_while_others_spend_is_spent_by_all(
    spenders: Spenders, budget: str
) -> None:
    deployment = spenders.deployment
    payer = await asyncio.to_thread(deployment.payer, budget, 40)
    async with spending(spenders, payer) as replies:
        await until(lambda: len(having(replies, 402)) >= 40)
        assert admitted(replies) == 40
        if budget == "balance":
            await asyncio.to_thread(deployment.add_credits, payer.account, 30, 1)
        else:
            await asyncio.to_thread(deployment.limit, payer, 70, 1)
        await until(lambda: admitted(replies) >= 70)
    assert admitted(replies) == 70
    await assert_used(spenders, payer, 70)


def _limit_below_use(deployment: Deployment, payer: Payer) -> None:
    deployment.limit(payer, 10, 1)


def _disable(deployment: Deployment, payer: Payer) -> None:
    deployment.manage("PATCH", f"/keys/{payer.key_hash}", 2, disabled=True)


def _delete(deployment: Deployment, payer: Payer) -> None:
    deployment.manage("DELETE", f"/keys/{payer.key_hash}", 3)


@pytest.mark.parametrize(
    ("end", "status"), [(_limit_below_use, 402), (_disable, 401), (_delete, 401)]
)
async def test_a_key_that_may_spend_no_more_does_so_nowhere(
    spenders: Spenders, end: Callable[[Deployment, Payer], None], status: int
) -> None:
    payer = await asyncio.to_thread(spenders.deployment.payer, "key", 100_000)
    async with spending(spenders, payer) as replies:
        await until(lambda: admitted(replies) >= 50)
        await asyncio.to_thread(end, spenders.deployment, payer)
        await asyncio.sleep(IN_FORCE_SECONDS)
        since = time.monotonic()
        await until(lambda: sum(reply.began > since for reply in replies) >= 64)
    late = [reply for reply in replies if reply.began > since]
    assert len(having(late, status)) == len(late)
    await assert_used(spenders, payer, admitted(replies))


async def test_costs_above_estimates_are_in_what_is_used(spenders: Spenders) -> None:
    deployment, k = spenders.deployment, 50
    payer = replace(await asyncio.to_thread(deployment.payer, "key", k), model="over")
    served = admitted(await spenders.race(payer))
    assert k / 2 <= served <= k, "not one beyond what was held"
    await assert_used(spenders, payer, 2 * served)
    assert having(await spenders.times(64, payer), 200) == []
    await asyncio.to_thread(deployment.limit, payer, 2 * served + 5, 1)
    await asyncio.sleep(IN_FORCE_SECONDS)
    await assert_left(spenders, replace(payer, model="exact"), 5)


async def test_what_a_cut_stream_did_not_cost_can_be_spent_by_all(spenders: Spenders) -> None:
    deployment, streams = spenders.deployment, 16
    payer = await asyncio.to_thread(deployment.payer, "key", 10 * streams)
    body = body_of("slow", 10 * TOKENS, stream=True)
    cut = await asyncio.gather(*(spenders.ask(payer.key, body, n, 3) for n in range(streams)))
    assert refusals(cut) == {}
    costs = [await asyncio.to_thread(_cost_of, deployment, payer, each) for each in cut]
    assert 0 < sum(costs) < 10 * streams * COST
    left = int(round((10 * streams * COST - sum(costs)) / COST, 6))
    await assert_left(spenders, payer, left)


def _cost_of(deployment: Deployment, payer: Payer, reply: Reply) -> float:
    """Wait until a generation is in the books; return its cost."""
    url = f"{deployment.servers[0].base_url}/generation?id={reply.generation_id}"
    headers = {"authorization": f"Bearer {payer.key}"}
    wait_until(lambda: httpx2.get(url, headers=headers).is_success)
    return httpx2.get(url, headers=headers).json()["data"]["total_cost"]


@pytest.mark.parametrize("budget", ["key", "balance"])
async def test_a_batch_and_requests_spend_one_budget(spenders: Spenders, budget: str) -> None:
    deployment, k, items = spenders.deployment, 60, 40
    payer = await asyncio.to_thread(deployment.payer, budget, k)
    headers = {"authorization": f"Bearer {payer.key}"}
    body = json.loads(body_of("exact"))
    requests = [{"custom_id": f"c-{n}", "body": body} for n in range(items)]
    batch = {"endpoint": "/v1/chat/completions", "model": "acme/exact", "requests": requests}
    url = f"{deployment.servers[0].base_url}/batches"

    def ended() -> int:
        sent = httpx2.post(url, json=batch, headers=headers, timeout=60)
        if sent.status_code == 402:
            return 0
        assert sent.status_code == 202, sent.text
        one = f"{url}/{sent.json()['id']}"
        wait_until(lambda: httpx2.get(one, headers=headers).json()["status"] == "completed")
        return items

    done, raced = await asyncio.gather(asyncio.to_thread(ended), spenders.race(payer))
    assert done in {0, items}
    served = admitted(raced) + admitted(await spenders.race(payer))
    assert served + done == k
    await assert_used(spenders, payer, k)

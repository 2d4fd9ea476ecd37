"""Many clients spend the same credits at the same time; `cost equals estimate` makes it exact.

The model writes as many tokens as it is allowed and only those are charged, so that a request costs
what it held.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.faults.ledger import Ledger, verify
from tests.faults.raw_client import Answer, post_chat
from tests.support.backdoor import new_own_key
from tests.support.server_process import ServerProcess, start_server

CLIENTS = 64
ROUNDS_IN_TEST = 3
ROUNDS_IN_SOAK = 10
FIT = 10
"""How many requests a round's credits pay for."""
TOKENS = 20
COST = 0.2
"""Credits that such a reply costs."""
CONFIG = """
accounting: {{initial_grant: 0}}
limits: {{{limits}}}
byok: {{{byok}}}
providers: [{{slug: simulated, kind: simulated}}]
models:
  - id: acme/exact
    context_length: 1000
    endpoints: [{{provider: simulated, model: {model},
                 pricing: {{prompt: "0", completion: "0.01"}}}}]
"""
SCOPES = {"workspace": "workspace", "user": "member", "end user": "end_user"}
"""Whose budgets keys have in common, and what the wire calls them."""
EXACT = 'in_flight_fraction: "1", settlement_seconds: 0, admission_wait_seconds: 0'
BODY = json.dumps(
    {
        "model": "acme/exact",
        "max_tokens": TOKENS,
        "messages": [{"role": "user", "content": "word " * (2 * TOKENS)}],
    }
).encode()


class CreditsClient:
    """A client that manages a server's credits."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._http = httpx2.Client(
            base_url=server.base_url, headers={"authorization": f"Bearer {server.management_key}"}
        )

    def add(self, credits_: float) -> None:
        body = {"amount": f"{credits_:.9f}", "kind": "grant"}
        self._http.post("/credits", json=body).raise_for_status()

    @property
    def balance(self) -> float:
        data = self._http.get("/credits").raise_for_status().json()["data"]
        return round(data["total_credits"] - data["total_usage"], 9)

    @property
    def key_hash(self) -> str:
        """The hash of the one API key."""
        [key] = [each for each in self._http.get("/keys").json()["data"] if each["kind"] == "api"]
        return str(key["hash"])

    def limit_key(self, limit: float | None, **fields: Any) -> None:
        body = {"limit": limit, **fields}
        self._http.patch(f"/keys/{self.key_hash}", json=body).raise_for_status()

    def owner(self, whose: str) -> tuple[str, list[str]]:
        """Return where an owner's budgets are, and keys that draw on them: two, and an intern's."""
        user = self._http.post("/users", json={"name": "Ada"}).json()["data"]["id"]
        made = {"name": "second", "creator_user_id": user}
        keys = [self._http.post("/keys", json=made).json() for _ in range(2)]
        workspace = self.server.announced["workspace_id"]
        payer = keys[0]["data"]["hash"]
        texts = [each["key"] for each in keys]
        texts.append(new_own_key(self.server, workspace, "eve", payer_hash=payer))
        if whose == "user":
            return f"/users/{user}/budgets/daily", texts
        end_user = "" if whose == "workspace" else "/end-users/ada@example.com%2F1"
        return f"/workspaces/default{end_user}/budgets/daily", texts

    def limit(self, path: str, limit: float | None) -> None:
        """Set the limit of a budget, or remove it."""
        body = None if limit is None else {"limit_usd": limit}
        method = "DELETE" if limit is None else "PUT"
        self._http.request(method, path, json=body).raise_for_status()

    def bring_own_key(self) -> None:
        body = {"provider": "simulated", "key": "of-the-customer", "is_required": True}
        self._http.post("/byok", json=body).raise_for_status()

    def usage(self) -> tuple[float, float]:
        """The use of the API key, and that with own keys."""
        key = self._http.get("/key", headers=self.server.authorization).json()["data"]
        return round(key["usage"], 9), round(key["byok_usage"], 9)

    def own_key(self, intern: str) -> str:
        """Create a key of an intern that the API key pays for; return its text."""
        workspace = self.server.announced["workspace_id"]
        return new_own_key(self.server, workspace, intern, payer_hash=self.key_hash)

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def credits_client(
    request: pytest.FixtureRequest, tmp_path: Path, ledger: Ledger
) -> Iterator[CreditsClient]:
    """A server with the settings and the model that the test names."""
    limits, model, byok = request.param
    config = CONFIG.format(limits=limits, model=model, byok=byok)
    with start_server(tmp_path, config=config, env=ledger.env) as server:
        made = CreditsClient(server)
        yield made
        made.close()


def exact(model: str = "echo", limits: str = EXACT, byok: str = "") -> Any:
    return pytest.mark.parametrize("credits_client", [(limits, model, byok)], indirect=True)


on_postgresql_in_soak = pytest.mark.parametrize(
    "ledger",
    ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.soak])],
    indirect=True,
)


async def spend(
    credits_client: CreditsClient, keys: Sequence[str] = (), body: bytes = BODY
) -> list[Answer]:
    """Send a request from every client at once, with the API key or in turn with some others."""
    server = credits_client.server
    turns = cycle(keys or [server.api_key])
    asked = (post_chat(server.base_url, next(turns), body) for _ in range(CLIENTS))
    answers = list(await asyncio.gather(*asked))
    assert {answer.status for answer in answers} <= {200, 402}
    return answers


def served(answers: list[Answer]) -> int:
    return sum(answer.status == 200 for answer in answers)


async def rounds(credits_client: CreditsClient, count: int) -> None:
    for _ in range(count):
        credits_client.add(FIT * COST)
        assert served(await spend(credits_client)) == FIT
        assert credits_client.balance == 0
        assert served(await spend(credits_client)) == 0


@exact()
async def test_the_balance_of_ten_requests_serves_ten_of_sixty_four(
    credits_client: CreditsClient,
) -> None:
    await rounds(credits_client, ROUNDS_IN_TEST)


@pytest.mark.soak
@exact()
async def test_the_balance_holds_over_many_rounds(
    credits_client: CreditsClient, soak_factor: int
) -> None:
    await rounds(credits_client, ROUNDS_IN_SOAK * soak_factor)


@on_postgresql_in_soak
@exact()
async def test_a_keys_limit_of_ten_requests_serves_ten_of_sixty_four(
    credits_client: CreditsClient,
) -> None:
    credits_client.add(1_000)
    for number in range(1, ROUNDS_IN_TEST + 1):
        credits_client.limit_key(round(number * FIT * COST, 9))
        assert served(await spend(credits_client)) == FIT
    credits_client.limit_key(None)
    assert served(await spend(credits_client)) == CLIENTS


@on_postgresql_in_soak
@exact()
async def test_a_keys_limit_of_ten_requests_serves_ten_of_it_and_its_interns(
    credits_client: CreditsClient,
) -> None:
    credits_client.add(1_000)
    keys = [
        credits_client.server.api_key,
        await asyncio.to_thread(credits_client.own_key, "ada"),
        await asyncio.to_thread(credits_client.own_key, "bob"),
    ]
    for number in range(1, ROUNDS_IN_TEST + 1):
        credits_client.limit_key(round(number * FIT * COST, 9))
        assert served(await spend(credits_client, keys)) == FIT
    assert credits_client.balance == round(1_000 - ROUNDS_IN_TEST * FIT * COST, 9)


@on_postgresql_in_soak
@pytest.mark.parametrize("owner", SCOPES)
@exact()
async def test_what_keys_have_in_common_of_ten_requests_serves_ten_of_sixty_four(
    credits_client: CreditsClient, owner: str
) -> None:
    """With two keys and an intern's; the limit is raised, lowered and removed under load."""
    credits_client.add(1_000)
    path, keys = await asyncio.to_thread(credits_client.owner, owner)
    body = json.dumps(json.loads(BODY) | {"user": "ada@example.com/1"}).encode()
    for number in range(1, ROUNDS_IN_TEST + 1):
        await asyncio.to_thread(credits_client.limit, path, round(number * FIT * COST, 9))
        answers = await spend(credits_client, keys, body)
        assert served(answers) == FIT
        refused = [each.json["error"]["metadata"] for each in answers if each.status == 402]
        assert {each["limit_source"] for each in refused} == {f"service_{SCOPES[owner]}"}
    await asyncio.to_thread(credits_client.limit, path, COST)
    assert served(await spend(credits_client, keys, body)) == 0
    running = asyncio.create_task(spend(credits_client, keys, body))
    await asyncio.to_thread(credits_client.limit, path, None)
    assert served(await running) <= CLIENTS
    assert served(await spend(credits_client, keys, body)) == CLIENTS
    assert verify(credits_client.server) == {"clean": True, "differences": []}


@on_postgresql_in_soak
@exact(byok='fee_percent: "50", free_requests_a_month: 5')
async def test_of_many_requests_with_own_keys_as_many_are_served_as_fees_are_paid(
    credits_client: CreditsClient,
) -> None:
    credits_client.bring_own_key()
    fees = round(FIT * COST / 2, 9)
    credits_client.add(fees)
    answers = await spend(credits_client)
    assert served(answers) == 5 + FIT
    costs = [each.json["usage"]["cost"] for each in answers if each.status == 200]
    assert sorted(costs) == [0] * 5 + [COST / 2] * FIT
    assert (credits_client.balance, served(await spend(credits_client))) == (0, 0)
    credits_client.add(1_000)
    credits_client.limit_key(2 * fees)
    assert served(await spend(credits_client)) == FIT
    used, own = round(2 * fees, 9), round((5 + 2 * FIT) * COST, 9)
    assert credits_client.usage() == (used, own)
    credits_client.limit_key(round(used + own + 3 * fees, 9), include_byok_in_limit=True)
    assert served(await spend(credits_client)) == FIT
    assert verify(credits_client.server) == {"clean": True, "differences": []}


@pytest.mark.soak
@exact("slow")
async def test_no_more_run_at_once_than_the_balance_can_pay(credits_client: CreditsClient) -> None:
    credits_client.add(FIT * COST)
    answers = await spend(credits_client)
    assert served(answers) == FIT
    reasons = {
        answer.json["error"]["metadata"]["reason"] for answer in answers if answer.status == 402
    }
    assert reasons == {"in_flight_budget_exhausted"}


@pytest.mark.soak
@exact(limits="settlement_seconds: 0.5, admission_wait_seconds: 0.1")
async def test_with_half_the_balance_as_budget_all_are_served_in_the_end(
    credits_client: CreditsClient,
) -> None:
    # The last one needs a budget of its cost, so twice that as balance.
    credits_client.add((FIT + 1) * COST)
    done = 0
    while done < FIT:
        answers = await spend(credits_client)
        assert credits_client.balance >= COST, "never below what is left for the last one"
        done += served(answers)
        for answer in answers:
            if answer.status == 402 and done < FIT:
                metadata = answer.json["error"]["metadata"]
                assert metadata["limit_source"] == "service_in_flight_budget"
                assert int(answer.headers["retry-after"]) >= 1
        await asyncio.sleep(0.6)
    assert done == FIT
    [last] = {answer.json["error"]["metadata"]["reason"] for answer in await spend(credits_client)}
    assert last == "weight_exceeds_budget"

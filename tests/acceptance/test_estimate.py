"""`POST /estimate` through the running gateway: its prediction is what then happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.support.accounts import LONG_TEXT, QUESTIONS, AccountClient, Accounts, body
from tests.support.server_process import ServerProcess, start_server

if TYPE_CHECKING:
    from collections.abc import Generator

CONFIG = """
server:
  max_requests_per_address_per_minute: 100000000
limits:
  admission_wait_seconds: 0
providers:
  - {slug: simulated, kind: simulated, keeps_data: false}
  - {slug: keeper, name: Keeper, kind: simulated}
models:
  - id: acme/many
    context_length: 8192
    max_completion_tokens: 100
    endpoints:
      - {provider: keeper, model: overloaded, pricing: free}
      - {provider: simulated, model: echo, pricing: {prompt: "0.000001", completion: "0.000002"}}
      - {provider: keeper, model: echo, pricing: {prompt: "0.00001", completion: "0", request: "1"}}
      - {provider: simulated, model: embedding, dialects: [embeddings], pricing: free}
  - id: acme/dear
    context_length: 8192
    endpoints:
      - {provider: simulated, model: echo, pricing: {prompt: "0.001", completion: "0.001"}}
  - id: acme/tired
    context_length: 8192
    endpoints:
      - {provider: keeper, model: limited, pricing: free}
      - {provider: simulated, model: echo, pricing: free}
  - id: acme/beside:free
    context_length: 8192
    requests_per_minute: 1
    endpoints: [{provider: simulated, model: echo, pricing: free}]
"""
ECHO, FREE, CHAT = "simulated/echo", "simulated/echo:free", "/chat/completions"
TEXT_MODELS = ["echo", "echo:free", "tools", "reasoning", "refusal"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("estimate"), config=CONFIG) as running:
        yield running


def estimated(
    account: AccountClient, model: str, form: str = CHAT, **fields: Any
) -> dict[str, Any]:
    """Return the estimate of a short question."""
    return estimate_of(account, form, body(form, model, **fields))


def estimate_of(account: AccountClient, form: str, content: dict[str, Any]) -> dict[str, Any]:
    reply = account.post("/estimate", {"endpoint": f"/v1{form}", "body": content})
    assert reply.status_code == 200, reply.text
    return reply.json()["data"]


def limits(estimate: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in estimate["limits"]}


def order(estimate: dict[str, Any]) -> list[str]:
    return [f"{each['provider']}:{each['provider_model']}" for each in estimate["endpoints"]]


def left_out(estimate: dict[str, Any]) -> dict[str, str]:
    return {
        f"{each['provider']}:{each['provider_model']}": each["reason"]
        for each in estimate["left_out"]
    }


# What it foretells


@pytest.mark.parametrize("limit", [None, 1_000], ids=["open ended", "limited"])
def test_the_estimated_hold_equals_the_hold_of_the_request(
    accounts: Accounts, limit: int | None
) -> None:
    account = accounts.create("20", limit="5")
    given = {} if limit is None else {"max_tokens": limit}
    said = [{"role": "user", "content": LONG_TEXT}]
    content = {"model": "simulated/slow", "messages": said, "stream": True, **given}
    before = estimate_of(account, CHAT, content)
    assert before["hold"]["credits"] > 0
    assert before["hold"]["open_ended"] is (limit is None)
    assert before["refusal"] is None
    with account.slow_request(**given):
        during = limits(estimate_of(account, CHAT, content))
    holds = {"in_flight_budget": "credits", "credits": "balance", "key_limit": "key_limit"}
    for name, held in holds.items():
        assert limits(before)[f"service_{name}"]["held"] == 0
        assert during[f"service_{name}"]["held"] == before["hold"][held]


@pytest.mark.parametrize("limit", [None, 30], ids=["open ended", "limited"])
@pytest.mark.parametrize("form", QUESTIONS)
@pytest.mark.parametrize("model", TEXT_MODELS)
def test_a_request_costs_no_more_than_the_estimate(
    accounts: Accounts, form: str, model: str, limit: int | None
) -> None:
    account = accounts.create("10")
    content = body(form, f"simulated/{model}", limit or (2_000 if form == "/messages" else None))
    estimate = estimate_of(account, form, content)
    reply = account.post(form, content)
    assert reply.status_code == 200, reply.text
    cost = account.get("/generation", id=reply.headers["x-generation-id"])["total_cost"]
    [endpoint] = estimate["endpoints"]
    assert cost <= endpoint["cost_estimate"]
    assert (cost > 0) is (model != "echo:free")


def test_embeddings_cost_no_more_than_the_estimate(accounts: Accounts) -> None:
    account, content = accounts.create("10"), {"model": "simulated/embedding", "input": "one two"}
    estimate = estimate_of(account, "/embeddings", content)
    reply = account.post("/embeddings", content)
    cost = account.get("/generation", id=reply.headers["x-generation-id"])["total_cost"]
    assert 0 < cost <= estimate["endpoints"][0]["cost_estimate"]
    assert estimate["tokens"]["output"] == 0


def test_a_fee_is_part_of_the_cost_but_not_of_the_hold(accounts: Accounts) -> None:
    estimate = estimated(
        accounts.create("10"), "acme/many", provider={"only": ["keeper"]}, max_tokens=9
    )
    [dear] = [each for each in estimate["endpoints"] if each["provider_model"] == "echo"]
    assert dear["cost_estimate"] > 1
    assert dear["pricing"]["request"] == "1"
    assert 0 < estimate["hold"]["credits"] < 0.01


def test_without_an_output_limit_the_models_own_limit_counts(accounts: Accounts) -> None:
    estimate = estimated(accounts.create("10"), "acme/many")
    assert estimate["tokens"]["output"] is None
    assert {each["output_tokens"] for each in estimate["endpoints"]} == {100}
    [echo] = estimated(accounts.create("10"), ECHO)["endpoints"]
    assert echo["output_tokens"] == 131_072


def test_images_are_counted(accounts: Accounts) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://acme.example/a.png"}}
    said = [{"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]}]
    assert estimated(accounts.create("10"), ECHO, messages=said)["tokens"]["images"] == 1


@pytest.mark.parametrize("way", ["402", "429", "403"])
def test_an_estimate_is_refused_like_its_request(accounts: Accounts, way: str) -> None:
    account = accounts.create("1")
    model, fields = ECHO, {"max_tokens": 1_000_000} if way == "402" else {}
    if way == "429":
        model = "acme/beside:free"
        assert account.ask(model).status_code == 200
    if way == "403":
        set_policy(accounts, account, blocked_models=["simulated/*"])
    told = estimated(account, model, **fields)["refusal"]
    reply = account.ask(model, **fields)
    assert told["status"] == reply.status_code == int(way)
    shown = reply.json()["error"]
    assert told["message"].split(" Wait")[0] == shown["message"].split(" Wait")[0]
    assert told["metadata"].keys() == shown["metadata"].keys()
    assert told["metadata"].get("reason") == shown["metadata"].get("reason")


def test_every_limit_has_a_verdict(accounts: Accounts) -> None:
    poor = limits(estimated(accounts.create(limit="0.001"), ECHO, max_tokens=1_000))
    assert {name: each["fits"] for name, each in poor.items()} == {
        "service_key_limit": False,
        "service_credits": False,
        "service_in_flight_budget": False,
    }
    free = limits(estimated(accounts.create(), FREE))
    assert {name: each["fits"] for name, each in free.items()} == {
        "free-models-per-min": True,
        "free-models-per-day": True,
        "service_credits": True,
    }
    assert (free["free-models-per-day"]["limit"], free["free-models-per-min"]["limit"]) == (50, 20)
    assert free["free-models-per-day"]["resets_at"].endswith("T00:00:00.000Z")


def test_a_request_over_the_balance_does_not_fit_and_is_refused(accounts: Accounts) -> None:
    account = accounts.create("4", kind="purchase")
    told = estimated(account, "acme/dear", max_tokens=100_000)
    assert limits(told)["service_credits"]["fits"] is False
    assert told["refusal"]["status"] == 402
    assert told["refusal"]["metadata"]["reason"] == "weight_exceeds_credits"
    assert account.ask("acme/dear", max_tokens=100_000).status_code == 402


def test_a_request_that_will_be_shortened_says_to_how_many_tokens(accounts: Accounts) -> None:
    account = accounts.create("100", limit="0.05")
    told = estimated(account, "acme/dear")
    reply = account.ask("acme/dear")
    assert told["max_tokens"] == int(reply.headers["x-max-tokens"])
    assert told["endpoints"][0]["output_tokens"] == told["max_tokens"]
    assert told["endpoints"][0]["cost_estimate"] <= 0.05
    assert estimated(accounts.create("100"), ECHO)["max_tokens"] is None


@pytest.mark.parametrize("form", QUESTIONS)
def test_the_last_credits_of_a_key_pay_for_the_smallest_limit(
    accounts: Accounts, form: str
) -> None:
    content = body(form, "acme/dear", 1)
    prompt = estimate_of(accounts.create("100"), form, content)["tokens"]["input"]
    account = accounts.create("100", limit=f"{(prompt + 1) / 1_000:.3f}")
    assert account.post(form, content).status_code == 200
    assert 0 < account.get("/key")["usage"] <= (prompt + 1) / 1_000


# Who would be asked


def test_each_endpoint_is_tried_or_has_its_reason(accounts: Accounts) -> None:
    account = accounts.create("10")
    plain = estimated(account, "acme/many")
    assert sorted(order(plain)) == ["keeper:echo", "keeper:overloaded", "simulated:echo"]
    assert left_out(plain) == {"simulated:embedding": "not_spoken"}


@pytest.mark.parametrize(
    ("provider", "reason", "out"),
    [
        ({"only": ["keeper"]}, "only", {"simulated:echo"}),
        ({"ignore": ["keeper"]}, "ignore", {"keeper:echo", "keeper:overloaded"}),
        ({"data_collection": "deny"}, "data_collection", {"keeper:echo", "keeper:overloaded"}),
        ({"max_price": {"request": 0.5}}, "max_price", {"keeper:echo"}),
        (
            {"zdr": True},
            "unvouched",
            {"keeper:echo", "keeper:overloaded", "simulated:echo"},
        ),
    ],
)
def test_provider_preferences_exclude_endpoints_with_a_reason(
    accounts: Accounts, provider: dict[str, Any], reason: str, out: set[str]
) -> None:
    told = left_out(estimated(accounts.create("10"), "acme/many", provider=provider))
    assert told == {"simulated:embedding": "not_spoken"} | dict.fromkeys(out, reason)


def test_a_request_that_no_endpoint_may_serve_is_refused(accounts: Accounts) -> None:
    told = estimated(accounts.create("10"), "acme/many", provider={"zdr": True})
    assert (told["endpoints"], told["hold"], told["limits"]) == ([], None, [])
    assert told["refusal"]["status"] == 503


def test_without_fallbacks_only_the_first_endpoint_is_tried(accounts: Accounts) -> None:
    wanted = {"allow_fallbacks": False, "order": ["simulated"]}
    told = estimated(accounts.create("10"), "acme/many", provider=wanted)
    assert order(told) == ["simulated:echo"]
    assert left_out(told)["keeper:echo"] == "allow_fallbacks"


def set_policy(accounts: Accounts, account: AccountClient, **policy: Any) -> None:
    path = f"/keys/{account.key_hash}/policy?account_id={account.account_id}"
    accounts.manage("PUT", path, **policy)


def test_an_endpoint_that_a_policy_blocks_has_the_policys_reason(accounts: Accounts) -> None:
    account = accounts.create("10")
    set_policy(accounts, account, blocked_providers=["keeper"])
    told = estimated(account, "acme/many")
    assert order(told) == ["simulated:echo"]
    blocked = [each for each in told["left_out"] if each["reason"] == "policy"]
    assert [each["details"] for each in blocked] == [
        ["The key's policy blocks the provider keeper."]
    ] * 2


def test_the_patterns_of_a_policy_are_matched(accounts: Accounts) -> None:
    account = accounts.create("10")
    set_policy(accounts, account, patterns=["one two"])
    told = estimated(account, ECHO)
    assert told["refusal"]["status"] == 403
    assert told["refusal"]["metadata"]["patterns"] == ["one two"]


def test_an_endpoint_that_failed_of_late_is_flagged_and_last(accounts: Accounts) -> None:
    account = accounts.create("10")
    assert order(estimated(account, "acme/tired")) == ["keeper:limited", "simulated:echo"]
    assert account.ask("acme/tired", max_tokens=5).status_code == 200
    told = estimated(account, "acme/tired")
    assert order(told) == ["simulated:echo", "keeper:limited"]
    assert [each["cooling_down"] for each in told["endpoints"]] == [False, True]


def test_a_free_model_over_its_limit_leaves_the_paid_one(accounts: Accounts) -> None:
    account = accounts.create("10")
    assert account.ask("acme/beside:free").status_code == 200
    told = estimated(account, "acme/beside:free", models=[ECHO], max_tokens=5)
    assert [each["model"] for each in told["endpoints"]] == [ECHO]
    assert [each["reason"] for each in told["left_out"]] == ["free_limits"]
    assert told["refusal"] is None


# What it does not do


def test_a_thousand_estimates_change_nothing(accounts: Accounts, server: ServerProcess) -> None:
    account = accounts.create("10", limit="5")

    def counters() -> object:
        metrics = httpx2.get(f"{server.origin}/metrics", headers=account.headers).text
        told = [
            line
            for line in metrics.splitlines()
            if line.startswith("tollhouse_generations") and not line.startswith("#")
        ]
        return (
            account.get("/key"),
            told,
            [estimated(account, each)["limits"] for each in (ECHO, FREE)],
        )

    before = counters()
    for number in range(1_000):
        estimated(account, (ECHO, FREE)[number % 2])
    assert counters() == before


# Who may, and what is refused


@pytest.mark.parametrize(
    "endpoint",
    ["chat/completions", "/chat/completions", "v1/chat/completions", "/api/v1/chat/completions"],
)
def test_an_endpoint_goes_with_and_without_the_version(accounts: Accounts, endpoint: str) -> None:
    reply = accounts.create("1").post("/estimate", {"endpoint": endpoint, "body": body(CHAT, ECHO)})
    assert reply.status_code == 200


@pytest.mark.parametrize(
    "endpoint", ["", "/v1", "/v1/models", "messages/count_tokens", "/estimate"]
)
def test_another_endpoint_is_a_400_that_lists_them(accounts: Accounts, endpoint: str) -> None:
    reply = accounts.create("1").post("/estimate", {"endpoint": endpoint, "body": body(CHAT, ECHO)})
    assert reply.status_code == 400
    assert "/v1/chat/completions" in reply.json()["error"]["message"]


@pytest.mark.parametrize("form", QUESTIONS)
def test_a_body_that_is_not_of_its_format_is_a_400_in_the_common_envelope(
    accounts: Accounts, form: str
) -> None:
    asked = {"endpoint": form, "body": {"model": ECHO, "messages": 5, "input": 5, "prompt": {}}}
    reply = accounts.create("1").post("/estimate", asked)
    assert reply.status_code == reply.json()["error"]["code"] == 400


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"endpoint": CHAT}, "body"),
        ({"body": {}}, "endpoint"),
        ({"endpoint": 5, "body": {}}, "endpoint"),
        ({"endpoint": CHAT, "body": {}, "more": 1}, "more"),
        ({"endpoint": CHAT, "body": []}, "object"),
    ],
)
def test_an_invalid_wrapper_of_the_body_is_a_400_that_names_the_field(
    accounts: Accounts, asked: dict[str, Any], word: str
) -> None:
    reply = accounts.create("1").post("/estimate", asked)
    assert reply.status_code == 400
    assert word in reply.json()["error"]["message"]


def test_an_unknown_model_is_a_404(accounts: Accounts) -> None:
    asked = {"endpoint": CHAT, "body": body(CHAT, "acme/none")}
    assert accounts.create("1").post("/estimate", asked).status_code == 404


def test_a_management_key_is_refused(server: ServerProcess) -> None:
    headers = {"Authorization": f"Bearer {server.management_key}"}
    asked = {"endpoint": CHAT, "body": body(CHAT, ECHO)}
    assert (
        httpx2.post(f"{server.base_url}/estimate", json=asked, headers=headers).status_code == 403
    )

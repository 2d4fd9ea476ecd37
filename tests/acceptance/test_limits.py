"""Limits on the wire: every 402 and 429 of ours, in every format, through the running gateway."""

import time
from collections.abc import Generator
from email.utils import parsedate_to_datetime
from itertools import product
from typing import Any

import httpx2
import pytest

from tests.support.accounts import AccountClient, Accounts
from tests.support.server_process import ServerProcess, start_server

CONFIG = """
server:
  max_requests_per_address_per_minute: 100000000
limits:
  admission_wait_seconds: 0
providers:
  - {slug: simulated, kind: simulated}
models:
  - id: acme/fee
    context_length: 8192
    endpoints:
      - {provider: simulated, model: echo, pricing: {prompt: "0", completion: "0", request: "1"}}
  - id: acme/dear
    context_length: 8192
    endpoints:
      - {provider: simulated, model: echo, pricing: {prompt: "0.0001", completion: "0.001"}}
  - id: acme/fast:free
    context_length: 8192
    requests_per_minute: 1000
    endpoints: [{provider: simulated, model: echo, pricing: free}]
  - id: acme/exempt:free
    context_length: 8192
    endpoints: [{provider: simulated, model: echo, pricing: free, free_limits: false}]
  - id: acme/own-limit
    context_length: 8192
    requests_per_minute: 2
    endpoints: [{provider: simulated, model: echo, pricing: free}]
"""
ECHO, FREE, FAST = "simulated/echo", "simulated/echo:free", "acme/fast:free"
FORMATS = ["/chat/completions", "/responses", "/messages", "/completions"]
WINDOW = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("limits"), config=CONFIG) as running:
        yield running


def rate_headers(reply: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if name.startswith("x-ratelimit")}


def metadata_of(reply: httpx2.Response, status: int) -> dict[str, Any]:
    """Check a refusal's envelope (Anthropic's or ours) and return its metadata."""
    shown = reply.json()
    assert reply.status_code == status, reply.text
    if shown.get("type") == "error":
        kind = {402: "billing_error", 429: "rate_limit_error"}[status]
        error_type = {402: "payment_required", 429: "rate_limit_exceeded"}[status]
        assert shown["error"]["type"] == kind
        assert shown["error"]["error_type"] == error_type
        return {"error_type": error_type, **shown["metadata"]}
    assert type(shown["error"]["code"]) is int
    assert shown["error"]["code"] == status
    assert shown["error"]["message"]
    return shown["error"]["metadata"]


def refused(reply: httpx2.Response, reason: str, source: str) -> dict[str, Any]:
    """Return the metadata of a 402, which names what binds first."""
    shown = metadata_of(reply, 402)
    assert shown["error_type"] == "payment_required"
    assert (shown["reason"], shown["limit_source"]) == (reason, source)
    assert shown["remedy_hint"]
    assert not rate_headers(reply)
    return shown


def used(accounts: Accounts, account: AccountClient) -> float:
    """Return what an account was charged."""
    data = accounts.manage("GET", f"/credits?account_id={account.account_id}")["data"]
    return float(data["total_usage"])


# 402


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("form", FORMATS)
def test_a_402_looks_the_same_in_every_format(
    accounts: Accounts, form: str, *, stream: bool
) -> None:
    account = accounts.create("1")
    reply = account.ask(ECHO, form, max_tokens=300_000, stream=stream)
    shown = refused(reply, "weight_exceeds_budget", "service_credits")
    assert [each["limit_source"] for each in shown["limits"]] == [
        "service_credits",
        "service_in_flight_budget",
    ]
    keys = {"limit_source", "payer", "limit", "used", "held", "remaining", "resets_at"}
    assert all(set(each) == keys for each in shown["limits"])
    assert "retry-after" not in reply.headers


def test_an_in_flight_budget_that_is_full_says_when_to_come_again(accounts: Accounts) -> None:
    account = accounts.create("4")
    with account.slow_request():
        reply = account.ask(ECHO, max_tokens=1_000)
    refused(reply, "in_flight_budget_exhausted", "service_in_flight_budget")
    assert reply.headers["retry-after"] == "5"


def test_a_request_that_just_ended_counts_in_the_in_flight_budget(accounts: Accounts) -> None:
    # The fee is not estimated, but what a request did cost stays for the settlement window.
    account = accounts.create("3")
    assert account.ask("acme/fee").status_code == 200
    reply = account.ask(ECHO, max_tokens=1_000)
    refused(reply, "in_flight_budget_exhausted", "service_in_flight_budget")
    assert 1 <= int(reply.headers["retry-after"]) <= 5


def test_a_request_too_heavy_for_the_budget_is_not_told_to_wait(accounts: Accounts) -> None:
    reply = accounts.create("3").ask(ECHO)
    refused(reply, "weight_exceeds_budget", "service_credits")
    assert "retry-after" not in reply.headers


def test_an_account_without_credits_is_told_to_add_some(accounts: Accounts) -> None:
    account = accounts.create()
    reply = account.ask(ECHO, max_tokens=5)
    shown = refused(reply, "insufficient_credits", "service_credits")
    assert "Add credits" in shown["remedy_hint"]
    assert "retry-after" not in reply.headers
    accounts.add_credits(account.account_id, "1")
    assert account.ask(ECHO, max_tokens=5).status_code == 200


def test_a_negative_balance_refuses_free_models_on_the_wire(accounts: Accounts) -> None:
    account = accounts.create("0.5")
    accounts.manage(
        "POST",
        "/credits",
        amount="-1",
        kind="adjustment",
        note="Paid twice.",
        account_id=account.account_id,
    )
    reply = account.ask(FREE)
    refused(reply, "negative_balance", "service_credits")
    assert "retry-after" not in reply.headers


def test_a_used_up_key_limit_names_itself_and_its_reset(accounts: Accounts) -> None:
    account = accounts.create("100", limit="1", limit_reset="daily")
    assert account.ask("acme/fee").status_code == 200
    reply = account.ask(ECHO)
    shown = refused(reply, "key_limit_exhausted", "service_key_limit")
    assert shown["limits"][0]["limit_source"] == "service_key_limit"
    assert shown["limits"][0]["resets_at"].endswith("T00:00:00Z")
    assert shown["limits"][0]["resets_at"] in shown["remedy_hint"]
    assert "retry-after" not in reply.headers


def test_a_request_too_heavy_for_its_key_is_not_told_to_wait(accounts: Accounts) -> None:
    reply = accounts.create("100", limit="0.001").ask(ECHO, max_tokens=100_000)
    refused(reply, "weight_exceeds_key_limit", "service_key_limit")
    assert "retry-after" not in reply.headers


def test_a_key_limit_that_others_hold_says_when_to_come_again(accounts: Accounts) -> None:
    account = accounts.create("100", limit="0.2")
    with account.slow_request():
        reply = account.ask(ECHO, max_tokens=5)
    refused(reply, "key_limit_held", "service_key_limit")
    assert reply.headers["retry-after"] == "5"


@pytest.mark.parametrize("form", FORMATS)
def test_a_prompt_that_a_key_cannot_pay_for_is_refused(accounts: Accounts, form: str) -> None:
    account = accounts.create("100", limit="0.000000001")
    refused(account.ask(ECHO, form), "weight_exceeds_key_limit", "service_key_limit")
    assert account.get("/key")["usage"] == 0


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("form", FORMATS)
def test_without_a_limit_of_output_a_reply_is_as_long_as_its_key_can_pay_for(
    accounts: Accounts, form: str, *, stream: bool
) -> None:
    account = accounts.create("100", limit="0.1")
    said = " ".join(["word"] * 150)
    told = {"input": said} if form == "/responses" else {"prompt": said}
    if form in {"/chat/completions", "/messages"}:
        told = {"messages": [{"role": "user", "content": said}]}
    reply = account.post(form, {"model": "acme/dear", "stream": stream, **told})
    assert reply.status_code == 200, reply.text
    allowed = int(reply.headers["x-max-tokens"])
    record = account.get("/generation", id=reply.headers["x-generation-id"])
    assert record["tokens_completion"] == allowed < 150
    assert record["finish_reason"] == "length"
    assert 0 < account.get("/key")["usage"] <= 0.1


def test_a_reply_that_its_key_can_pay_for_is_not_limited(accounts: Accounts) -> None:
    reply = accounts.create("100", limit="1").ask(ECHO)
    assert reply.status_code == 200
    assert "x-max-tokens" not in reply.headers


@pytest.mark.parametrize("model", ["acme/dear", "acme/fee"])
def test_a_request_over_the_balance_is_refused(accounts: Accounts, model: str) -> None:
    account = accounts.create("0.9", kind="purchase")
    reply = account.ask(model, max_tokens=100_000)
    refused(reply, "weight_exceeds_credits", "service_credits")
    assert "retry-after" not in reply.headers
    assert used(accounts, account) == 0


def test_a_balance_that_others_hold_says_when_to_come_again(accounts: Accounts) -> None:
    # A subscription has no in-flight budget, which would refuse before.
    account = accounts.create("0.2", type="subscription")
    with account.slow_request():
        reply = account.ask(ECHO, max_tokens=5)
    refused(reply, "credits_held", "service_credits")
    assert reply.headers["retry-after"] == "5"


@pytest.mark.parametrize("kind", ["enterprise", "invoice"])
def test_an_account_that_pays_afterwards_needs_no_balance(accounts: Accounts, kind: str) -> None:
    account = accounts.create(type=kind)
    for model in ("acme/fee", "acme/fee", FREE):
        assert account.ask(model).status_code == 200
    assert used(accounts, account) == 2


# 429


def used_up(accounts: Accounts, model: str, times: int) -> AccountClient:
    """Return an account that has sent so many requests to a model."""
    account = accounts.create("1")
    for _ in range(times):
        reply = account.ask(model)
        assert reply.status_code == 200, reply.text
        assert not rate_headers(reply)
    return account


def date_of(reply: httpx2.Response) -> float:
    """Return the server's time of a reply, in seconds."""
    return parsedate_to_datetime(reply.headers["date"]).timestamp()


def test_a_429_of_ours_looks_the_same_in_every_format(
    accounts: Accounts, subtests: pytest.Subtests
) -> None:
    began = date_of(accounts.create("1").ask(FREE))
    account = used_up(accounts, FREE, 20)
    for form, stream in product(FORMATS, (False, True)):
        with subtests.test(f"{form} {stream=}"):
            reply = account.ask(FREE, form, max_tokens=50, stream=stream)
            shown, headers = metadata_of(reply, 429), rate_headers(reply)
            assert shown["error_type"] == "rate_limit_exceeded"
            assert {name.lower(): text for name, text in shown["headers"].items()} == headers
            assert list(headers) == WINDOW
            assert (headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"]) == ("20", "0")
            reset = int(headers["x-ratelimit-reset"]) / 1000
            assert began + 59 < reset < date_of(reply) + 62
            assert "retry-after" not in reply.headers
            assert "free-models-per-min" in reply.text


def test_the_day_of_free_models_ends_with_a_429_that_names_it(accounts: Accounts) -> None:
    account = used_up(accounts, FAST, 50)
    reply = account.ask(FAST)
    metadata_of(reply, 429)
    assert "free-models-per-day" in reply.json()["error"]["message"]
    headers = rate_headers(reply)
    assert (headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"]) == ("50", "0")
    assert int(headers["x-ratelimit-reset"]) % 86_400_000 == 0, "midnight UTC"
    counted = account.get("/key")["free_model_daily_requests"]
    assert counted == {"used": 50, "limit": 50, "remaining": 0}
    # Another key of the account changes nothing, nine purchased credits do.
    assert accounts.another_key(account.account_id).ask(FAST).status_code == 429
    accounts.add_credits(account.account_id, "9")
    assert account.ask(FAST).status_code == 200
    assert account.get("/key")["free_model_daily_requests"]["limit"] == 1_000


def test_a_models_own_limit_is_a_429_that_names_it(accounts: Accounts) -> None:
    account = used_up(accounts, "acme/own-limit", 2)
    reply = account.ask("acme/own-limit")
    metadata_of(reply, 429)
    assert "requests-per-min" in reply.json()["error"]["message"]
    assert rate_headers(reply)["x-ratelimit-limit"] == "2"
    assert account.ask(ECHO, max_tokens=5).status_code == 200


def test_exempt_accounts_and_endpoints_get_no_429(accounts: Accounts) -> None:
    exempt, other = accounts.create(free_limits_exempt=True), accounts.create()
    for _ in range(25):
        assert exempt.ask(FREE).status_code == 200
        assert other.ask("acme/exempt:free").status_code == 200
    assert other.get("/key")["free_model_daily_requests"]["used"] == 0


def test_a_providers_own_429_has_its_code_and_no_window_of_ours(accounts: Accounts) -> None:
    reply = accounts.create("10").ask("simulated/limited", max_tokens=5)
    shown = metadata_of(reply, 429)
    assert shown["error_type"] == "rate_limit_exceeded"
    assert shown["provider_name"]
    assert shown["provider_code"] is not None
    assert not rate_headers(reply)


@pytest.mark.parametrize("model", [ECHO, FREE])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_success_has_no_rate_limit_headers(
    accounts: Accounts, model: str, *, stream: bool
) -> None:
    reply = accounts.create("10").ask(model, max_tokens=5, stream=stream)
    assert reply.status_code == 200
    assert not rate_headers(reply)
    assert "retry-after" not in reply.headers


# What changes meanwhile


def test_a_key_that_is_deleted_while_its_request_runs_pays_for_it(accounts: Accounts) -> None:
    account = accounts.create("10")
    witness = accounts.another_key(account.account_id)
    with account.slow_request(max_tokens=1_000) as generation:
        accounts.manage("DELETE", f"/keys/{account.key_hash}?account_id={account.account_id}")
        assert account.ask(ECHO).status_code == 401
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = witness.http.get("/generation", params={"id": generation}, headers=witness.headers)
        if found.status_code == 200:
            break
        time.sleep(0.05)
    assert found.json()["data"]["total_cost"] > 0


def test_a_limit_that_is_lowered_below_what_is_used_refuses_at_once(accounts: Accounts) -> None:
    account = accounts.create("100", limit="1")
    assert account.ask(ECHO, max_tokens=5).status_code == 200
    accounts.manage("PATCH", f"/keys/{account.key_hash}?account_id={account.account_id}", limit=0)
    reply = account.ask(ECHO, max_tokens=5)
    shown = refused(reply, "key_limit_exhausted", "service_key_limit")
    assert shown["limits"][0]["remaining"] == 0
    assert account.get("/key")["limit_remaining"] == 0

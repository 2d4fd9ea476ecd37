"""Customers' own keys of providers, over HTTP: who is asked with which key, and who pays."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.batch_requests import batch_body, chats, ended, send
from tests.acceptance.wire import DIALECTS, said, told
from tests.support.accounts import Accounts, body
from tests.support.scripted_providers import reply, stream
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

    import httpx2

    from tests.acceptance.wire import Wire

GATEWAYS = "k-chat-key"
REFUSED = {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}
PRICE = 7 * 0.001 + 3 * 0.01
"""Of the scripted replies: 7 tokens in, 3 out."""


class Customer:
    """An account with a key, and its own keys."""

    numbers = count()

    def __init__(self, wire: Wire, credits: str = "1000", **fields: Any) -> None:  # noqa: A002 - the word for it
        self.wire, self.accounts = wire, Accounts(wire.server)
        self.client = self.accounts.create(credits, **fields)
        self.account = self.client.account_id

    def add(self, provider: str = "chat", **rules: Any) -> tuple[str, str]:
        """Store an own key; return its id and its text."""
        text = f"own-{next(self.numbers)}-of-the-customers"
        content = {"provider": provider, "key": text, "account_id": self.account, **rules}
        made = self.accounts.manage("POST", "/byok", **content)["data"]
        assert text not in str(made)
        return made["id"], text

    def set(self, key_id: str, **rules: Any) -> Any:
        path = f"/byok/{key_id}?account_id={self.account}"
        return self.accounts.manage("PATCH", path, **rules)["data"]

    def own(self, key_id: str) -> Any:
        return self.accounts.manage("GET", f"/byok/{key_id}?account_id={self.account}")["data"]

    def ask(self, model: str = "t/chat-two", **fields: Any) -> httpx2.Response:
        return self.client.ask(model, **fields)

    def asked(self, *providers: str, model: str = "t/chat-two", **fields: Any) -> list[str]:
        """Send a request that succeeds; return the keys that providers were shown."""
        answered = self.ask(model, **fields)
        assert answered.status_code == 200, answered.text
        return [key for _, key in self.wire.providers.shown(*providers or ("chat", "chat-b"))]

    def generation(self, answered: httpx2.Response) -> Any:
        return self.client.get("/generation", id=answered.headers["x-generation-id"])


@pytest.fixture
def customer(wire: Wire) -> Generator[Customer]:
    """A customer before providers that answer, one of which keeps nothing."""
    for dialect in DIALECTS:
        for slug in (dialect, f"{dialect}-b"):
            wire.providers.say(slug, reply(said(dialect, "hello")))
    made = Customer(wire)
    yield made
    made.accounts.close()
    assert wire.differences() == []


def limited(seconds: int = 60) -> bytes:
    return reply({"error": {"message": "slow down"}}, 429, {"retry-after": str(seconds)})


def test_without_own_keys_the_gateways_key_is_shown(customer: Customer) -> None:
    assert customer.asked() == [GATEWAYS]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("streams", [False, True])
def test_an_own_key_is_shown_and_its_owner_pays_the_provider(
    customer: Customer, dialect: str, *, streams: bool
) -> None:
    _, text = customer.add(dialect)
    if streams:
        customer.wire.providers.say(dialect, stream(*told(dialect, "hello"), done=False))
    answered = customer.ask(f"t/{dialect}", stream=streams)
    assert customer.wire.providers.shown(dialect) == [(dialect, text)]
    assert ('"is_byok":true' in answered.text) == (answered.status_code == 200)
    found = customer.generation(answered)
    assert (found["is_byok"], found["total_cost"]) == (True, 0)
    assert found["upstream_inference_cost"] == pytest.approx(PRICE)
    assert [each["is_byok"] for each in found["provider_responses"]] == [True]
    key = customer.client.get("/key")
    for window in ("", "_daily", "_weekly", "_monthly"):
        assert key[f"byok_usage{window}"] == pytest.approx(PRICE)
        assert key[f"usage{window}"] == 0


def test_keys_come_by_their_places_then_the_gateway_then_fallbacks(customer: Customer) -> None:
    last, late = customer.add(is_fallback=True)
    first, early = customer.add()
    second, text = customer.add("chat-b")
    providers = customer.wire.providers
    for slug in ("chat", "chat-b"):
        providers.say(slug, reply({"error": "busy"}, 500))
    assert customer.ask().status_code == 502
    order = ["chat", "chat-b", "chat", "chat-b", "chat"]
    shown = [early, text, GATEWAYS, "k-chat-b-key", late]
    assert providers.shown("chat", "chat-b") == list(zip(order, shown, strict=True))
    for slug in ("chat", "chat-b"):
        providers.say(slug, reply(said("chat", "hello")))
    assert customer.asked(provider={"order": ["chat"], "ignore": ["chat-b"]}) == [early]
    providers.say("chat", reply(said("chat", "hello")))
    assert customer.asked(provider={"order": ["chat-b"]}) == [text]
    assert [customer.own(each)["sort_order"] for each in (last, first, second)] == [0, 1, 0]
    asked = {"endpoint": "/v1/chat/completions", "body": body("/chat/completions", "t/chat-two")}
    told_ = customer.client.post("/estimate", asked).json()["data"]["endpoints"]
    assert [each["provider"] for each in told_] == order
    assert [each["is_byok"] for each in told_] == [True, True, False, False, True]


@pytest.mark.parametrize("status", [401, 403, 429, 402, 400])
def test_a_key_that_is_refused_cools_down_alone_and_its_owner_sees_why(
    customer: Customer, status: int
) -> None:
    own, text = customer.add()
    _, other = customer.add()
    refusal = reply(REFUSED, status, {"retry-after": "60"})
    providers = customer.wire.providers
    providers.say("chat", refusal, reply(said("chat", "hello")))
    assert customer.asked() == [text, other]
    if status == 400:
        return  # nothing is read of when to try again
    providers.say("chat", reply(said("chat", "hello")))
    assert customer.asked() == [other]
    wait_until(lambda: customer.own(own)["last_error"] is not None)
    found = customer.own(own)
    assert found["label"] in found["last_error"]
    assert text not in str(found)
    assert customer.set(own, key="another-key-of-the-customer")["last_error"] is None
    providers.say("chat", reply(said("chat", "hello")))
    assert customer.asked() == ["another-key-of-the-customer"]


def test_neither_the_gateways_key_nor_an_own_one_cools_down_for_the_other(
    customer: Customer,
) -> None:
    _, text = customer.add()
    without = Customer(customer.wire)
    providers = customer.wire.providers
    providers.say("chat", limited(), reply(said("chat", "hello")))
    assert customer.asked("chat") == [text, GATEWAYS]
    providers.say("chat", limited(), reply(said("chat", "hello")))
    assert without.asked("chat", "chat-b")[-2:] == [GATEWAYS, "k-chat-b-key"]
    providers.say("chat", reply(said("chat", "hello")))
    providers.say("chat-b", reply(said("chat", "hello")))
    assert without.asked() == ["k-chat-b-key"]
    another = Customer(customer.wire)
    _, fresh = another.add()
    providers.say("chat-b", reply(said("chat", "hello")))
    assert another.asked() == [fresh]
    providers.say("chat", reply(said("chat", "hello")))
    assert without.asked("chat", provider={"only": ["chat"]}) == [GATEWAYS]  # cools no more
    without.accounts.close()
    another.accounts.close()


@pytest.mark.parametrize("rule", ["is_required", "is_byok_only"])
def test_a_rule_closes_the_gateways_endpoints_of_its_provider(
    customer: Customer, rule: str
) -> None:
    _, text = customer.add(**{rule: True})
    providers = customer.wire.providers
    providers.say("chat", reply({"error": "busy"}, 500))
    assert customer.asked() == [text, "k-chat-b-key"]
    providers.say("chat", reply(REFUSED, 401))
    refused = customer.ask("t/chat")
    assert (refused.status_code, GATEWAYS in str(providers.shown("chat"))) == (502, False)
    assert "own-" not in refused.text


def test_a_required_key_closes_its_models_and_an_only_one_all(customer: Customer) -> None:
    key, text = customer.add(is_required=True, allowed_models=["t/chat-two"])
    assert customer.asked("chat", model="t/chat") == [GATEWAYS]
    assert customer.asked("chat")[1:] == [text]
    customer.set(key, is_required=False, is_byok_only=True)
    assert customer.ask("t/chat").status_code == 503
    assert customer.asked("chat")[2:] == [text]
    customer.set(key, disabled=True)
    assert customer.asked("chat", model="t/chat")[3:] == [GATEWAYS]


def test_a_key_is_for_its_workspace_users_and_keys(customer: Customer) -> None:
    accounts, account = customer.accounts, customer.account
    user = accounts.manage("POST", "/users", name="Ada", account_id=account)["data"]["id"]
    place = accounts.manage("POST", "/workspaces", name="Lab", slug="lab", account_id=account)[
        "data"
    ]["id"]
    hers = accounts.another_key(account, creator_user_id=user)
    there = accounts.another_key(account, workspace_id=place)
    key, text = customer.add(allowed_user_ids=[user], is_byok_only=True)

    def shown(*clients: Any) -> list[str]:
        providers = customer.wire.providers
        providers.say("chat", reply(said("chat", "hello")))
        for client in clients:
            assert client.ask("t/chat").status_code == 200
        return [each for _, each in providers.shown("chat")]

    everybody = (customer.client, hers, there)
    assert shown(*everybody) == [GATEWAYS, text, GATEWAYS]
    customer.set(key, allowed_user_ids=None, allowed_api_key_hashes=[customer.client.key_hash])
    assert shown(*everybody) == [text, GATEWAYS, GATEWAYS]
    customer.set(key, allowed_api_key_hashes=None)
    assert shown(*everybody) == [text, text, GATEWAYS]
    _, theirs = customer.add(workspace_id=place)
    assert shown(*everybody) == [text, text, theirs]


def test_data_policies_hold_for_own_keys(customer: Customer) -> None:
    key, text = customer.add()
    denied = customer.ask(provider={"data_collection": "deny"})
    assert denied.status_code == 503
    assert customer.ask(provider={"zdr": True}).status_code == 503
    customer.set(key, declared_zdr=True)
    assert customer.asked(provider={"zdr": True}) == [text]
    path = f"/accounts/{customer.account}/policy"
    customer.accounts.manage("PUT", path, blocked_providers=["chat"])
    assert customer.ask("t/chat").status_code == 403
    assert customer.wire.providers.shown("chat") == [("chat", text)]


@pytest.mark.parametrize(
    ("changes", "told_of"),
    [
        *(({"key": "short"}, "8 to"), ({"provider": "unknown"}, "no such provider")),
        ({"key": '{"api_key": "own-key-0123", "region": "eu"}'}, "amazon-bedrock takes one"),
        ({"allowed_api_key_hashes": ["0" * 64]}, "is no key of this account"),
        ({"is_fallback": True, "is_byok_only": True}, "is_byok_only"),
        *(({name: []}, name) for name in ("allowed_api_key_hashes", "unknown", "name")),
        *(({"allowed_models": ["m"] * 101}, "allowed_models"), ({"name": "x" * 256}, "name")),
        *(({name: "mars"}, name) for name in ("declared_region", "workspace_id")),
    ],
)
def test_what_makes_no_sense_is_refused(
    customer: Customer, changes: dict[str, Any], told_of: str
) -> None:
    text = "own-key-that-is-not-stored"
    content = {"provider": "chat", "key": text, "account_id": customer.account, **changes}
    headers = {"Authorization": f"Bearer {customer.wire.server.management_key}"}
    refused = customer.accounts.http.post("/byok", json=content, headers=headers)
    assert (refused.status_code, told_of in refused.text) == (400, True), refused.text
    assert text not in refused.text
    as_api_key = customer.client.post("/byok", {"provider": "chat", "key": text})
    assert as_api_key.status_code == 403


def test_without_credits_own_keys_alone_still_serve(wire: Wire) -> None:
    wire.providers.say("chat", reply(said("chat", "hello")))
    poor = Customer(wire, "0")
    key, text = poor.add()
    assert poor.ask("t/chat").status_code == 402  # it may end at the gateway's own key
    poor.set(key, is_required=True)
    assert poor.asked("chat", model="t/chat") == [text]
    assert poor.ask("t/chat-two", max_tokens=5).status_code == 402
    poor.accounts.manage(
        "POST", "/credits", amount="-1", kind="adjustment", note="n", account_id=poor.account
    )
    assert "negative_balance" in poor.ask("t/chat").text
    poor.accounts.close()


def test_what_own_keys_write_is_cut_by_no_balance(wire: Wire) -> None:
    customer, providers = Customer(wire, "10"), wire.providers
    customer.add()
    providers.say(
        "chat", reply(said("chat", "hello")), reply(REFUSED, 401), reply(said("chat", ""))
    )
    whole, cut = customer.ask("t/chat"), customer.ask("t/chat")
    own, refused, gateways = providers.asked("chat")
    assert [each.get("max_tokens") for each in (own, refused)] == [None, None]
    assert 900 < gateways["max_tokens"] <= 1000
    limits = [each.headers.get("x-max-tokens") for each in (whole, cut)]
    assert limits == [None, str(gateways["max_tokens"])]
    customer.accounts.close()


def test_a_free_model_with_an_own_key_takes_nothing_from_the_limits_of_free_models(
    customer: Customer,
) -> None:
    _, text = customer.add()
    model, providers = "t/chat:free", customer.wire.providers
    assert customer.asked("chat", model=model)[:1] == [text]
    assert customer.asked("chat", model=model) == [text] * 2
    providers.say("chat", reply(REFUSED, 401), reply(said("chat", "hello")), reply(REFUSED, 401))
    assert customer.asked("chat", model=model) == [text, GATEWAYS]
    assert customer.ask(model).status_code == 502  # the one of this minute is used
    assert customer.client.get("/key")["free_model_daily_requests"]["used"] == 1


def test_what_was_wrong_with_a_key_is_forgotten_once_it_is_taken(customer: Customer) -> None:
    own, _ = customer.add(is_required=True)
    customer.wire.providers.say("chat", reply(REFUSED, 401), reply(said("chat", "hello")))
    assert customer.ask("t/chat").status_code == 502
    wait_until(lambda: customer.own(own)["last_error"] is not None)
    assert customer.ask("t/chat").status_code == 200
    wait_until(lambda: customer.own(own)["last_error"] is None)


def test_what_a_provider_echoes_of_an_own_key_is_hidden(customer: Customer) -> None:
    customer.add(is_required=True, key=(text := "own-key8"))
    providers = customer.wire.providers
    encoded = [b64encode(b"x" * more + text.encode() + b"???").decode() for more in range(3)]
    spelled = [text, *encoded, urlsafe_b64encode(f"~{text}???".encode()).decode()]
    for written in spelled:
        providers.say("chat", reply(said("chat", f"it is {written}")))
        answers = [customer.ask("t/chat")]
        providers.say("chat", reply({"error": {"message": f"bad: {written}"}}, 400))
        answers.append(customer.ask("t/chat"))
        providers.say("chat", stream(*told("chat", f"key {written}")))
        answers.append(customer.ask("t/chat", stream=True))
        assert [written in each.text for each in answers] == [False] * 3
        assert [each.status_code for each in answers] == [200, 400, 200]


def test_a_request_under_way_ends_with_the_key_that_it_began_with(customer: Customer) -> None:
    key, text = customer.add(is_required=True)
    rotated: list[str] = []

    def rotate(_: Any) -> bytes:
        rotated.append(customer.set(key, key="the-next-key-of-the-customer")["label"])
        return reply(said("chat", "hello"))

    customer.wire.providers.say("chat", rotate, reply(said("chat", "hello")))
    assert customer.asked("chat") == [text]
    assert customer.asked("chat") == [text, "the-next-key-of-the-customer"]
    assert rotated == ["the...mer"]


@pytest.mark.parametrize("included", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_of_many_requests_with_own_keys_a_limit_that_includes_them_lets_in_what_it_pays_for(
    customer: Customer, *, included: bool, alone: bool
) -> None:
    customer.add(is_required=alone)
    cost, tokens = 3 * 0.001 + 3 * 0.01, 3
    customer.wire.providers.say(
        "chat", reply(said("chat", "hi") | {"usage": {"prompt_tokens": 3, "completion_tokens": 3}})
    )
    fields = {"limit": 1, "include_byok_in_limit": included}
    client = customer.accounts.another_key(customer.account, **fields)
    with ThreadPoolExecutor(64) as pool:
        statuses = list(
            pool.map(lambda _: client.ask("t/chat", max_tokens=tokens).status_code, range(64))
        )
    key = client.get("/key")
    assert key["usage"] == 0
    assert key["byok_usage"] == pytest.approx(statuses.count(200) * cost)
    assert set(statuses) <= {200, 402}
    if included:
        assert key["byok_usage"] <= 1
        assert 402 in statuses
        assert key["limit_remaining"] == pytest.approx(1 - key["byok_usage"])
    else:
        assert key["limit_remaining"] == 1
    if alone and not included:
        assert set(statuses) == {200}


def test_items_of_batches_use_own_keys_and_give_back_what_was_reserved(customer: Customer) -> None:
    _, text = customer.add()
    client, account = customer.client, customer.account
    asked = batch_body(*chats(3, max_tokens=5), model="t/chat")
    before = customer.accounts.manage("GET", f"/credits?account_id={account}")
    sent = send(client, asked).json()
    found = ended(client, sent["id"])
    assert (found["status"], found["usage"]["is_byok"]) == ("completed", True)
    assert found["usage"]["cost"] == 0
    assert [key for _, key in customer.wire.providers.shown("chat")] == [text] * 3
    assert customer.accounts.manage("GET", f"/credits?account_id={account}") == before
    assert client.get("/key")["byok_usage"] == pytest.approx(3 * PRICE)


def test_a_batch_that_only_own_keys_can_serve_needs_no_credits_and_is_served_by_them_alone(
    wire: Wire,
) -> None:
    poor = Customer(wire, "0")
    key, text = poor.add()
    asked = batch_body(chats(1)[0], model="t/chat")
    assert "batch_exceeds_credits" in send(poor.client, asked).text
    poor.set(key, is_required=True)

    def leave(_: Any) -> bytes:
        poor.set(key, disabled=True)
        return reply({"error": "busy"}, 500)

    wire.providers.say("chat", leave, reply(said("chat", "hello")))
    found = ended(poor.client, send(poor.client, asked).json()["id"])
    assert (found["status"], wire.providers.shown("chat")) == ("failed", [("chat", text)])
    poor.set(key, disabled=False)
    found = ended(poor.client, send(poor.client, asked).json()["id"])
    assert (found["status"], found["usage"]["cost"]) == ("completed", 0)
    assert wire.providers.shown("chat") == [("chat", text)] * 2
    poor.accounts.close()


def test_a_batch_reserves_what_own_keys_may_take_where_a_limit_includes_them(
    customer: Customer,
) -> None:
    customer.add(is_required=True)
    client = customer.accounts.another_key(customer.account, limit=0, include_byok_in_limit=True)
    asked = batch_body(*chats(3, max_tokens=3), model="t/chat-half")
    refused = send(client, asked)
    assert refused.status_code == 402
    most = float(refused.json()["error"]["message"].split()[4])
    customer.accounts.manage("PATCH", f"/keys/{client.key_hash}", limit=most)
    batch = send(client, asked).json()
    assert ended(client, batch["id"])["status"] == "completed"
    key = client.get("/key")
    assert key["byok_usage"] == pytest.approx(3 * PRICE)
    assert key["limit_remaining"] == pytest.approx(most - 3 * PRICE)


def test_tokens_are_counted_with_own_keys_alone_where_a_rule_wants_it(customer: Customer) -> None:
    _, text = customer.add("messages", is_required=True)
    customer.wire.providers.say("messages", reply({"input_tokens": 5}), reply(REFUSED, 401))
    said_ = {"model": "t/messages", "messages": [{"role": "user", "content": "hi"}]}
    for _ in range(2):
        assert customer.client.post("/messages/count_tokens", said_).status_code == 200
    assert customer.wire.providers.shown("messages") == [("messages", text)] * 2


def test_neither_the_log_nor_the_database_has_an_own_key_in_clear(customer: Customer) -> None:
    _, text = customer.add()
    customer.wire.providers.say("chat", reply(REFUSED, 401), reply(said("chat", "hello")))
    assert customer.asked("chat") == [text, GATEWAYS]
    folder = customer.wire.server.data_dir
    kept = [path for path in folder.rglob("*") if path.is_file()]
    assert kept
    assert [path for path in kept if text.encode() in path.read_bytes()] == []

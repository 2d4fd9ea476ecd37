"""Submitting batches to the running server: what is refused, how, and that nothing of it stays."""

import json
import socket
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.acceptance.batch_requests import (
    assert_nothing_kept,
    batch_body,
    batch_folders,
    cancel,
    chat,
    chats,
    ended,
    errors_of,
    listed,
    send,
    submit,
    texts_of,
    until,
)
from tests.support.accounts import AccountClient, Accounts
from tests.support.server_process import ServerProcess, start_server

LARGEST, MOST_ITEMS = 4_000_000, 32_000
DEEP = b"[" * 2_000 + b"]" * 2_000
CONFIG = f"""
server:
  regional_hostnames: ["eu.*"]
  body_limit_bytes: 1500000
limits:
  admission_wait_seconds: 0
batches:
  body_limit_bytes: {LARGEST}
  max_items: {MOST_ITEMS}
  submits_per_hour: 4
  max_open: 2
  part_seconds: 0.1
providers:
  - {{slug: simulated, kind: simulated}}
  - {{slug: other, kind: simulated}}
models:
  - id: acme/dear
    context_length: 8192
    endpoints:
      - {{provider: simulated, model: echo, pricing: {{prompt: "0", completion: "0.001"}}}}
  - id: acme/two
    context_length: 8192
    endpoints:
      - {{provider: simulated, model: echo, pricing: free}}
      - {{provider: other, model: echo, pricing: free}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("submits"), config=CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def nobody_special(accounts: Accounts) -> AccountClient:
    """An account whose submits are all refused."""
    return accounts.create("10")


def error_of(reply: httpx2.Response, status: int) -> dict[str, Any]:
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, status), reply.text
    return error


def text_of(reply: httpx2.Response, status: int) -> str:
    return error_of(reply, status)["message"]


def lines(count: int, size: int = 0) -> list[bytes]:
    """Return items as bytes, filled up to a size."""
    made = (b'{"custom_id":"c-%d","body":{"a":"%b"}}' % (at, b"x" * size) for at in range(count))
    return list(made)


def document(items: list[bytes]) -> bytes:
    head = b'{"endpoint":"/v1/chat/completions","model":"simulated/echo","requests":['
    return head + b",".join(items) + b"]}"


# The envelope


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"requests": []}, 400, "requests: has to have at least one item"),
        ({"requests": {}}, 400, "requests: has to be an array"),
        ({"requests": [{"custom_id": "", "body": {}}]}, 400, "requests[0].custom_id: "),
        (
            {"requests": [{"custom_id": "x" * 513, "body": {}}]},
            400,
            "requests[0].custom_id: must be at most 512 characters",
        ),
        ({"requests": [{"custom_id": "a", "body": "no"}]}, 400, "requests[0].body: "),
        ({"requests": [{"body": {}}]}, 400, "requests[0]"),
        ({"endpoint": "/v1/completions"}, 400, "endpoint: has to be one of /v1/chat/completions"),
        ({"completion_window": "1h"}, 400, "completion_window: "),
        ({"model": ""}, 400, "model: "),
        ({"model": "nobody/nothing"}, 400, "model: No model 'nobody/nothing'"),
        ({"model": "simulated/embedding"}, 400, "simulated/embedding does not answer"),
        ({"model": "simulated/echo:nitro"}, 422, "model: the variant ':nitro'"),
        ({"model": "simulated/echo:free"}, 422, "model: the variant ':free'"),
        ({"callback_url": "https://hooks.example"}, 400, "callback_url: "),
        ({"callback_url": "http://hooks.example"}, 400, "callback_url: "),
        (
            {"model": "acme/two", "provider": {"only": ["nobody"]}},
            400,
            "provider.only: none of them runs acme/two; there are: simulated, other.",
        ),
        ({"provider": {"colour": "red"}}, 400, "provider: "),
        ({"provider": {"only": "simulated"}}, 400, "provider.only: "),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else None,
)
def test_an_invalid_batch_is_refused_with_the_reason(
    server: ServerProcess,
    nobody_special: AccountClient,
    fields: dict[str, Any],
    status: int,
    says: str,
) -> None:
    with assert_nothing_kept(server, nobody_special):
        reply = send(nobody_special, batch_body(chat()) | fields)
    assert says in text_of(reply, status)


@pytest.mark.parametrize("missing", ["endpoint", "model", "requests"])
def test_a_field_that_is_missing_is_named(nobody_special: AccountClient, missing: str) -> None:
    content = batch_body(chat())
    del content[missing]
    assert missing in text_of(send(nobody_special, content), 400)


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_the_requests_field_may_come_at_any_position(accounts: Accounts, *, first: bool) -> None:
    account = accounts.create("1")
    content = batch_body(chat())
    requests = {"requests": content.pop("requests")}
    reply = send(account, requests | content if first else content | requests)
    assert texts_of(ended(account, reply.json()["id"])) == {"c-0": "one two three"}


def test_the_batch_variant_is_the_model_itself(accounts: Accounts) -> None:
    account = accounts.create("1")
    batch = ended(account, submit(account, chat(), model="simulated/echo:batch")["id"])
    assert (batch["model"], batch["status"]) == ("simulated/echo:batch", "completed")


@pytest.mark.parametrize(
    "preferences",
    [{"only": ["other"]}, {"order": ["other"]}, {"ignore": ["simulated"]}],
    ids=lambda preferences: next(iter(preferences)),
)
def test_a_batch_runs_on_the_provider_that_it_names(
    accounts: Accounts, preferences: dict[str, list[str]]
) -> None:
    account = accounts.create("1")
    batch = ended(account, submit(account, chat(), model="acme/two", provider=preferences)["id"])
    (item,) = batch["results"]
    assert batch["provider"] == item["response"]["body"]["provider"]
    assert batch["provider"] != "Simulated"


# What costs a single item


def test_an_invalid_request_fails_alone(accounts: Accounts) -> None:
    account = accounts.create("1")
    bodies = [
        chat(),
        chat(model="simulated/echo"),
        chat(model="simulated/tools"),
        chat(stream=True),
        {"messages": "none"},
        chat(provider={"only": ["nobody"]}),
    ]
    batch = ended(account, submit(account, *bodies)["id"])
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 6, "completed": 2, "failed": 4}
    errors = errors_of(batch)
    params = {name: error["param"] for name, error in errors.items()}
    assert params == {"c-2": "model", "c-3": "stream", "c-4": "messages", "c-5": None}
    assert "No provider" in errors["c-5"]["message"]


def test_an_invalid_request_of_the_largest_depth_fails_alone(accounts: Accounts) -> None:
    account = accounts.create("1")
    deep = b'{"custom_id":"deep","body":{"messages":%b}}' % (b"[" * 980 + b"]" * 980)
    good = b'{"custom_id":"good","body":%b}' % json.dumps(chat()).encode()
    batch = ended(account, send(account, document([deep, good])).json()["id"])
    assert set(errors_of(batch)) == {"deep"}
    assert set(texts_of(batch)) == {"good"}


def test_a_batch_of_which_nothing_can_be_run_fails_as_a_whole(accounts: Accounts) -> None:
    account = accounts.create("1")
    batch = ended(account, submit(account, chat(stream=True), chat(stream=True))["id"])
    assert (batch["status"], batch["results"]) == ("failed", None)
    assert "requests[0]: stream: " in batch["error"]["message"]
    assert batch["request_counts"] == {"total": 2, "completed": 0, "failed": 2}


# What is no JSON


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "ends"),
        (b"no", "the body has to be a JSON object"),
        (b"[]", "the body has to be a JSON object"),
        (document(lines(3))[:-20], "ends"),
        (document([b'{"custom_id":"a","body":{"b":%b}}' % DEEP]), "requests[0]: nested too deeply"),
        (document([b'{"custom_id":"a","body":{"b":"\xff"}}']), "requests[0]: not valid UTF-8"),
        (document(lines(2)) + b"{}", "something follows"),
    ],
    ids=["empty", "word", "array", "cut", "deep", "utf-8", "more"],
)
def test_invalid_json_is_a_400_that_names_the_position(
    server: ServerProcess, nobody_special: AccountClient, content: bytes, says: str
) -> None:
    with assert_nothing_kept(server, nobody_special):
        reply = send(nobody_special, content)
    assert says in text_of(reply, 400)


def test_invalid_utf_8_far_into_a_batch_is_a_400_that_names_the_item(
    server: ServerProcess, nobody_special: AccountClient
) -> None:
    items = lines(31_500, size=40)
    items[31_000] = items[31_000].replace(b"x", b"\xff", 1)
    with assert_nothing_kept(server, nobody_special):
        reply = send(nobody_special, document(items))
    assert "requests[31000]: not valid UTF-8" in text_of(reply, 400)


def test_an_id_that_stands_twice_in_different_chunks_is_a_422(
    server: ServerProcess, nobody_special: AccountClient
) -> None:
    items = lines(20_000, size=40)
    items[19_999] = items[3]
    with assert_nothing_kept(server, nobody_special):
        reply = send(nobody_special, document(items))
    assert "requests[19999].custom_id: duplicate 'c-3'" in text_of(reply, 422)


# Sizes


def test_one_request_more_than_allowed_is_a_422(
    server: ServerProcess, nobody_special: AccountClient
) -> None:
    with assert_nothing_kept(server, nobody_special):
        reply = send(nobody_special, document(lines(MOST_ITEMS + 1)))
    assert f"more than {MOST_ITEMS}" in text_of(reply, 422)


def test_a_body_of_the_largest_size_is_a_batch_and_one_byte_more_is_a_413(
    accounts: Accounts,
) -> None:
    account = accounts.create("1")
    small = document(lines(1))
    largest = small[:-1] + b" " * (LARGEST - len(small)) + b"}"
    assert send(account, largest).status_code == 202
    assert f"larger than {LARGEST} bytes" in text_of(send(account, largest + b" "), 413)


def test_a_request_may_be_as_large_as_outside_of_a_batch(accounts: Accounts) -> None:
    assert send(accounts.create("1000"), document(lines(1, size=1_499_000))).status_code == 202


def test_a_request_that_is_too_large_is_a_413_that_names_it(
    server: ServerProcess, nobody_special: AccountClient
) -> None:
    with assert_nothing_kept(server, nobody_special):
        reply = send(nobody_special, document([*lines(2), *lines(1, size=1_500_001)]))
    assert "requests[2].body" in text_of(reply, 413)


# Uploads that do not end


class Upload:
    """A submit whose bytes a test sends one by one."""

    def __init__(self, server: ServerProcess, account: AccountClient, *head: bytes) -> None:
        address = urlsplit(server.origin)
        self.connection = socket.create_connection((address.hostname, address.port), timeout=20)
        first = b"POST /v1/batches HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
        fields = b"\r\n".join((first + account.key.encode(), *head))
        self.connection.sendall(fields + b"\r\n\r\n")

    def reply(self) -> tuple[int, dict[str, Any]]:
        """Return the answer; nothing more was sent."""
        received = b""
        while b"\r\n\r\n" not in received or not received.endswith(b"}"):
            received += self.connection.recv(65_536)
        self.connection.close()
        head, _, body = received.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)


def test_an_upload_that_breaks_off_leaves_nothing(
    server: ServerProcess, nobody_special: AccountClient
) -> None:
    content = document(lines(20_000, size=100))
    with assert_nothing_kept(server, nobody_special):
        before = batch_folders(server)
        upload = Upload(server, nobody_special, b"content-length: %d" % (len(content) + 1))
        upload.connection.sendall(content)
        until(lambda: batch_folders(server) - before)
        upload.connection.close()


def test_a_declared_length_that_is_too_large_is_refused_before_the_body_is_sent(
    server: ServerProcess, nobody_special: AccountClient
) -> None:
    upload = Upload(server, nobody_special, b"content-length: %d" % (LARGEST + 1))
    status, told = upload.reply()
    assert status == told["error"]["code"] == 413


def test_a_body_that_is_too_large_is_refused_while_it_is_sent(
    server: ServerProcess, nobody_special: AccountClient
) -> None:
    content = document(lines(30_000, size=110))
    assert len(content) > LARGEST
    with assert_nothing_kept(server, nobody_special):
        upload = Upload(server, nobody_special, b"transfer-encoding: chunked")
        with suppress(OSError):  # it may refuse and close while we are still sending
            upload.connection.sendall(b"%x\r\n" % len(content) + content)
        status, told = upload.reply()
    assert status == told["error"]["code"] == 413


# Who may not


def test_a_management_key_submits_nothing(
    server: ServerProcess, nobody_special: AccountClient
) -> None:
    manager = {"Authorization": f"Bearer {server.management_key}"}
    assert "management key" in text_of(send(nobody_special, batch_body(chat()), manager), 403)


def test_a_regional_hostname_takes_no_batches(nobody_special: AccountClient) -> None:
    reply = send(nobody_special, batch_body(chat()), {"Host": "eu.tollhouse.example"})
    assert set(error_of(reply, 403)) == {"code", "message"}


def test_a_batch_that_a_policy_blocks_is_a_403(server: ServerProcess, accounts: Accounts) -> None:
    account = accounts.create("1")
    path = f"/keys/{account.key_hash}/policy?account_id={account.account_id}"
    accounts.manage("PUT", path, blocked_models=["simulated/*"])
    with assert_nothing_kept(server, account):
        error_of(send(account, batch_body(chat())), 403)


# Limits


def test_more_batches_than_an_hour_allows_are_a_429_with_the_window(accounts: Accounts) -> None:
    account = accounts.create("1")
    for _ in range(4):
        ended(account, submit(account, chat())["id"])
    reply = send(account, batch_body(chat()))
    error = error_of(reply, 429)
    assert error["metadata"]["error_type"] == "rate_limit_exceeded"
    assert "batches-per-hour (4)" in error["message"]
    window = [reply.headers[f"x-ratelimit-{name}"] for name in ("limit", "remaining")]
    assert window == ["4", "0"]
    assert int(reply.headers["x-ratelimit-reset"]) > 0


def test_more_open_batches_than_allowed_are_a_429_until_one_has_ended(accounts: Accounts) -> None:
    account = accounts.create("1")
    opened = [submit(account, *chats(40), model="simulated/slow")["id"] for _ in range(2)]
    reply = send(account, batch_body(chat()))
    assert "open-batches (2)" in text_of(reply, 429)
    assert reply.headers["x-ratelimit-limit"] == "2"
    for batch_id in opened:
        cancel(account, batch_id)
        ended(account, batch_id)
    submit(account, chat())


# Credits


def test_a_batch_that_may_cost_more_than_the_balance_is_a_402(
    server: ServerProcess, accounts: Accounts
) -> None:
    account = accounts.create("1")
    with assert_nothing_kept(server, account):
        reply = send(account, batch_body(*chats(3, max_tokens=400), model="acme/dear"))
    metadata = error_of(reply, 402)["metadata"]
    assert metadata["limit_source"] == "service_credits"
    assert metadata["remedy_hint"]


@pytest.mark.parametrize("whose", ["key_limit", "workspace", "member"])
def test_a_batch_that_may_cost_more_than_a_limit_is_a_402(
    server: ServerProcess, accounts: Accounts, whose: str
) -> None:
    account = accounts.create("100", limit="1" if whose == "key_limit" else None)
    of = f"?account_id={account.account_id}"
    if whose == "workspace":
        accounts.manage("PUT", f"/workspaces/default/budgets/daily{of}", limit_usd=1)
    elif whose == "member":
        made = accounts.manage("POST", "/users", name="Ada", account_id=account.account_id)
        user = made["data"]["id"]
        account = accounts.another_key(account.account_id, creator_user_id=user)
        accounts.manage("PUT", f"/users/{user}/budgets/daily{of}", limit_usd=1)
    with assert_nothing_kept(server, account):
        reply = send(account, batch_body(*chats(3, max_tokens=400), model="acme/dear"))
    metadata = error_of(reply, 402)["metadata"]
    assert metadata["limit_source"] == f"service_{whose}"
    assert metadata["remedy_hint"]


# Idempotency


def test_the_same_key_and_body_is_the_first_answer_and_no_second_batch(accounts: Accounts) -> None:
    account = accounts.create("1")
    key = {"Idempotency-Key": "once"}
    first = send(account, batch_body(chat()), key)
    ended(account, first.json()["id"])
    again = send(account, batch_body(chat()), key)
    assert (again.status_code, again.json()) == (202, first.json())
    assert listed(account) == [first.json()["id"]]


def test_the_same_key_with_another_body_is_a_409(accounts: Accounts) -> None:
    account = accounts.create("1")
    key = {"Idempotency-Key": "once"}
    first = send(account, batch_body(chat()), key).json()
    assert "idempotency key" in text_of(send(account, batch_body(chat("else")), key), 409)
    assert listed(account) == [first["id"]]


def test_the_same_submit_several_times_at_once_is_one_batch(accounts: Accounts) -> None:
    account = accounts.create("1")
    key = {"Idempotency-Key": "once"}
    with ThreadPoolExecutor(4) as senders:
        replies = list(senders.map(lambda _: send(account, batch_body(chat()), key), range(4)))
    assert {reply.status_code for reply in replies} == {202}
    (batch_id,) = {reply.json()["id"] for reply in replies}
    assert listed(account) == [batch_id]


def test_an_idempotency_key_is_its_workspace_s_own(accounts: Accounts) -> None:
    key = {"Idempotency-Key": "once"}
    replies = [send(accounts.create("1"), batch_body(chat()), key) for _ in range(2)]
    assert len({reply.json()["id"] for reply in replies}) == 2

"""Batches on the running server: their course, their results, and the credits they take."""

import json
from collections.abc import Generator, Mapping
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from tests.acceptance.batch_requests import (
    batch_folders,
    cancel,
    chat,
    chats,
    completed,
    ended,
    errors_of,
    existing,
    get,
    listed,
    observed_states,
    results,
    submit,
    texts_of,
    until,
)
from tests.support.accounts import AccountClient, Accounts
from tests.support.server_process import ServerProcess, start_server

CONFIG = """
limits:
  admission_wait_seconds: 0
  settlement_seconds: 0
batches:
  part_seconds: 0.1
  round_seconds: 3600
providers:
  - {slug: simulated, kind: simulated}
models:
  - id: acme/dear
    context_length: 8192
    endpoints:
      - {provider: simulated, model: echo, pricing: {prompt: "0", completion: "0.001"}}
  - id: acme/dear-and-slow
    context_length: 8192
    endpoints:
      - {provider: simulated, model: slow, pricing: {prompt: "0", completion: "0.001"}}
"""
SLOW = "simulated/slow"


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, database_env: Mapping[str, str]
) -> Generator[ServerProcess]:
    # Its workers look of themselves once in an hour: all that happens sooner was told them.
    with start_server(tmp_path_factory.mktemp("runs"), config=CONFIG, env=database_env) as running:
        yield running


@pytest.fixture(scope="module")
def owner(accounts: Accounts) -> AccountClient:
    """The account whose batches are listed."""
    return accounts.create("1")


@pytest.fixture(scope="module")
def three(owner: AccountClient) -> list[dict[str, Any]]:
    """Make a completed batch, a failed one and a cancelled one, oldest first."""
    done = ended(owner, submit(owner, *chats(3))["id"])
    failed = ended(owner, submit(owner, {"messages": "none"})["id"])
    begun = submit(owner, *chats(60), model=SLOW)["id"]
    cancel(owner, begun)
    return [done, failed, ended(owner, begun)]


# Course


def test_a_batch_is_begun_as_soon_as_it_is_submitted(accounts: Accounts) -> None:
    account = accounts.create("1")
    assert ended(account, submit(account, chat())["id"])["status"] == "completed"


def test_counts_of_a_batch_never_fall_and_add_up_at_the_end(accounts: Accounts) -> None:
    account = accounts.create("1")
    bodies = [*chats(30), *[{"messages": "none"}] * 10]
    looks = observed_states(account, submit(account, *bodies, model=SLOW)["id"])
    counts = [look["request_counts"] for look in looks]
    assert all(count["total"] == 40 for count in counts)
    for name in ("completed", "failed"):
        assert all(after[name] >= before[name] for before, after in pairwise(counts))
    assert counts[-1] == {"total": 40, "completed": 30, "failed": 10}
    assert {look["status"] for look in looks} <= {
        *("validating", "in_progress", "finalizing", "completed")
    }


def test_results_are_those_of_every_request_and_none_is_there_before_the_end(
    accounts: Accounts,
) -> None:
    account = accounts.create("1")
    looks = observed_states(account, submit(account, *chats(12), model=SLOW)["id"])
    assert {look["results"] is None for look in looks[:-1]} == {True}
    assert texts_of(looks[-1]) == {f"c-{at}": f"item {at}" for at in range(12)}


def lines(reply: httpx2.Response) -> list[dict[str, Any]]:
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/jsonl")
    return [json.loads(line) for line in reply.text.splitlines()]


def test_results_can_be_read_while_a_batch_runs(accounts: Accounts) -> None:
    account = accounts.create("1")
    batch_id = submit(account, chat(), chat("a " * 30), model=SLOW)["id"]
    found = completed(account, batch_id)
    assert (found["status"], found["results"]) == ("in_progress", None)
    [first] = lines(results(account, batch_id))
    assert texts_of({"results": [first]}) == {"c-0": "one two three"}
    cancel(account, batch_id)


def test_results_can_be_read_as_lines_after_the_end_too(
    owner: AccountClient, three: list[dict[str, Any]]
) -> None:
    done, failed, cancelled = three
    for batch in (done, cancelled):
        assert lines(results(owner, batch["id"])) == existing(owner, batch["id"])["results"]
    [refused] = lines(results(owner, failed["id"]))
    assert refused["error"]["param"] == "messages"


def test_results_whose_files_are_gone_are_an_error_and_no_reply_that_is_cut(
    server: ServerProcess, accounts: Accounts
) -> None:
    account, before = accounts.create("1"), batch_folders(server)
    batch_id = ended(account, submit(account, chat(), chat())["id"])["id"]
    [folder] = batch_folders(server) - before
    for path in (server.data_dir / "blobs").rglob(f"{folder}/results/*"):
        path.unlink()
    for path in (f"/batches/{batch_id}", f"/batches/{batch_id}/results"):
        reply = account.http.get(path, headers=account.headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (502, 502)


def test_a_request_that_was_answered_can_be_read_as_a_generation(accounts: Accounts) -> None:
    account = accounts.create("1")
    batch = ended(account, submit(account, chat())["id"])
    (item,) = batch["results"]
    generation = account.get("/generation", id=item["response"]["request_id"])
    assert generation["total_cost"] == batch["usage"]["cost"]
    assert generation["tokens_completion"] == 3


def test_a_batch_goes_on_though_its_key_was_deleted(accounts: Accounts) -> None:
    account = accounts.create("1")
    heir = accounts.another_key(account.account_id)
    batch_id = submit(account, *chats(30), model=SLOW)["id"]
    accounts.manage("DELETE", f"/keys/{account.key_hash}")
    assert get(account, batch_id).status_code == 401
    counts = ended(heir, batch_id)["request_counts"]
    assert counts == {"total": 30, "completed": 30, "failed": 0}


# Cancelling and deleting


def test_a_batch_that_is_cancelled_keeps_what_is_finished(accounts: Accounts) -> None:
    account = accounts.create("1")
    batch_id = submit(account, *chats(200), model=SLOW)["id"]
    completed(account, batch_id)
    reply = cancel(account, batch_id)
    assert reply.status_code == 200
    assert reply.json()["status"] in {"cancelling", "cancelled"}
    batch = ended(account, batch_id)
    counts = batch["request_counts"]
    assert batch["status"] == "cancelled"
    assert 0 < counts["completed"] < 200
    assert counts["completed"] + counts["failed"] == counts["total"] == len(batch["results"])
    assert len(texts_of(batch)) == counts["completed"]
    assert {error["type"] for error in errors_of(batch).values()} == {"batch_cancelled"}


def test_a_batch_that_has_ended_cannot_be_cancelled(
    owner: AccountClient, three: list[dict[str, Any]]
) -> None:
    for batch in three:
        assert cancel(owner, batch["id"]).status_code == 409


def test_a_batch_can_be_deleted_once_it_has_ended(
    server: ServerProcess, accounts: Accounts
) -> None:
    account = accounts.create("1")
    batch_id = submit(account, *chats(60), model=SLOW)["id"]
    assert delete(account, batch_id).status_code == 409
    cancel(account, batch_id)
    ended(account, batch_id)
    assert delete(account, batch_id).status_code == 200
    assert get(account, batch_id).status_code == 410
    assert delete(account, batch_id).status_code == 404
    assert listed(account) == []
    assert not list((server.data_dir / "blobs/batches" / batch_id).rglob("*.zst"))


def delete(account: AccountClient, batch_id: str) -> httpx2.Response:
    return account.http.delete(f"/batches/{batch_id}", headers=account.headers)


# Whose they are


@pytest.mark.parametrize("place", ["another account", "another workspace"])
def test_a_batch_of_another_workspace_is_not_there(
    accounts: Accounts, owner: AccountClient, three: list[dict[str, Any]], place: str
) -> None:
    if place == "another account":
        stranger = accounts.create("1")
    else:
        fields = {"name": place, "slug": "another", "account_id": owner.account_id}
        space = accounts.manage("POST", "/workspaces", **fields)["data"]["id"]
        stranger = accounts.another_key(owner.account_id, workspace_id=space)
    batch_id = three[0]["id"]
    replies = [ask(stranger, batch_id) for ask in (get, results, cancel, delete)]
    assert [reply.status_code for reply in replies] == [404, 404, 404, 404]
    assert listed(stranger) == []
    own = submit(stranger, chat("mine"))["id"]
    assert texts_of(ended(stranger, own)) == {"c-0": "mine"}
    assert listed(stranger) == [own]


# Lists


def test_a_list_is_newest_first_without_results(
    owner: AccountClient, three: list[dict[str, Any]]
) -> None:
    page = owner.http.get("/batches", headers=owner.headers).json()
    ids = [batch["id"] for batch in reversed(three)]
    assert [batch["id"] for batch in page["data"]] == ids
    assert (page["first_id"], page["last_id"], page["has_more"]) == (ids[0], ids[-1], False)
    assert {batch["results"] for batch in page["data"]} == {None}


def test_a_list_goes_on_after_a_page_and_ends_with_an_empty_one(
    owner: AccountClient, three: list[dict[str, Any]]
) -> None:
    done, failed, cancelled = (batch["id"] for batch in three)
    assert listed(owner, limit=2) == [cancelled, failed]
    assert listed(owner, limit=2, after=failed) == [done]
    assert listed(owner, after=done) == []


def test_a_list_is_filtered_by_status_and_time(
    owner: AccountClient, three: list[dict[str, Any]]
) -> None:
    done, failed, cancelled = (batch["id"] for batch in three)
    assert listed(owner, status="completed") == [done]
    assert listed(owner, status=["failed", "cancelled"]) == [cancelled, failed]
    assert listed(owner, status=["in_progress", "validating", "expired"]) == []
    assert listed(owner, created_after="2020-01-01") == [cancelled, failed, done]
    assert listed(owner, created_before="2020-01-01T00:00:00Z") == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"status": "finalizing"}, "status"),
        ({"status": "cancelling"}, "status"),
        ({"created_after": "yesterday"}, "created_after"),
        ({"after": "batch_0"}, "after"),
    ],
)
def test_a_list_that_cannot_be_is_a_400_that_names_the_field(
    owner: AccountClient, query: dict[str, Any], says: str
) -> None:
    reply = owner.http.get("/batches", params=query, headers=owner.headers)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"].startswith(says)


# Credits


def test_what_a_batch_may_cost_is_kept_from_other_requests_until_it_has_ended(
    accounts: Accounts,
) -> None:
    account = accounts.create("1")
    limit = {"max_tokens": 100}
    assert account.ask("acme/dear", **limit).status_code == 200
    batch_id = submit(account, *chats(9, **limit), model="acme/dear-and-slow")["id"]
    refused = account.ask("acme/dear", **limit)
    assert refused.status_code == 402
    assert "batches have reserved" in refused.json()["error"]["message"]
    ended(account, batch_id)
    assert account.ask("acme/dear", **limit).status_code == 200


def test_what_a_batch_may_cost_is_kept_from_other_batches_of_its_key(accounts: Accounts) -> None:
    account = accounts.create("10", limit="1")
    batch = {"model": "acme/dear-and-slow"}
    batch_id = submit(account, *chats(9, max_tokens=100), **batch)["id"]
    with pytest.raises(AssertionError, match="service_key_limit"):
        submit(account, chat(max_tokens=200), **batch)
    ended(account, batch_id)
    submit(account, chat(max_tokens=200), **batch)


def test_a_batch_costs_what_its_requests_cost(accounts: Accounts) -> None:
    account = accounts.create("100")
    batch = ended(account, submit(account, *chats(20), model="acme/dear")["id"])
    assert batch["usage"]["cost"] == pytest.approx(20 * 2 * 0.001, rel=1e-9)
    assert account.get("/key")["usage"] == batch["usage"]["cost"]


def test_results_that_are_not_paid_are_withheld_until_there_are_credits(accounts: Accounts) -> None:
    account = accounts.create("1.2")
    batch_id = submit(account, chat("a " * 1_500), model="acme/dear")["id"]
    reply = until(lambda: (found := get(account, batch_id)).status_code == 402 and found)
    batch = reply.json()
    assert (batch["status"], batch["results"]) == ("completed", None)
    assert set(batch["error"]) == {"code", "message"}
    withheld = results(account, batch_id)
    assert (withheld.status_code, withheld.json()) == (402, batch)
    accounts.add_credits(account.account_id, "1")
    assert len(existing(account, batch_id)["results"]) == 1

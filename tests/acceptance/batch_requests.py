"""Requests about batches over HTTP, and checks of what a server has stored of them.

sent = submit(account, *chats(3))               asserts the 202 and returns the batch
found = ended(account, sent["id"])              polls until it has ended
with assert_nothing_kept(server, account): ...  asserts that the block leaves no batch and no file
"""

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support.accounts import AccountClient
from tests.support.server_process import ServerProcess

CHAT = "/v1/chat/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}
DEADLINE_SECONDS = 60.0


def chat(text: str = "one two three", **fields: Any) -> dict[str, Any]:
    """Return the body of a chat."""
    return {"messages": [{"role": "user", "content": text}], **fields}


def chats(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Return bodies of different chats."""
    return [chat(f"item {at}", **fields) for at in range(count)]


def batch_body(*bodies: Any, **fields: Any) -> dict[str, Any]:
    """Return the body that submits a batch."""
    requests = [{"custom_id": f"c-{at}", "body": body} for at, body in enumerate(bodies)]
    return {"endpoint": CHAT, "model": "simulated/echo", "requests": requests, **fields}


def send(
    account: AccountClient, content: bytes | dict[str, Any], headers: dict[str, str] | None = None
) -> httpx2.Response:
    """Send a body to the route that takes batches."""
    given = {"content": content} if isinstance(content, bytes) else {"json": content}
    headers = account.headers | (headers or {})
    return account.http.post("/batches", headers=headers, timeout=60, **given)


def submit(account: AccountClient, *bodies: Any, **fields: Any) -> dict[str, Any]:
    """Submit a batch, assert the 202 and return the batch."""
    reply = send(account, batch_body(*bodies, **fields))
    assert reply.status_code == 202, reply.text
    assert reply.json()["status"] == "validating"
    return reply.json()


def get(account: AccountClient, batch_id: str) -> httpx2.Response:
    """Request a batch by its id."""
    return account.http.get(f"/batches/{batch_id}", headers=account.headers)


def existing(account: AccountClient, batch_id: str) -> dict[str, Any]:
    """Return a batch that exists."""
    reply = get(account, batch_id)
    assert reply.status_code == 200, reply.text
    return reply.json()


def results(account: AccountClient, batch_id: str) -> httpx2.Response:
    """Request the results of a batch so far, as JSON Lines."""
    return account.http.get(f"/batches/{batch_id}/results", headers=account.headers)


def cancel(account: AccountClient, batch_id: str) -> httpx2.Response:
    """Cancel a batch."""
    return account.http.post(f"/batches/{batch_id}/cancel", headers=account.headers)


def listed(account: AccountClient, **query: Any) -> list[str]:
    """Return the ids of the first page."""
    reply = account.http.get("/batches", params=query, headers=account.headers)
    assert reply.status_code == 200, reply.text
    return [each["id"] for each in reply.json()["data"]]


def until(holds: Callable[[], Any]) -> Any:
    """Poll until something is true; return it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := holds()):
        assert time.monotonic() < deadline, "did not come to pass in time"
        time.sleep(0.08)
    return found


def observed_states(account: AccountClient, batch_id: str) -> list[dict[str, Any]]:
    """Poll a batch until it has ended; return each state that was seen."""
    looks: list[dict[str, Any]] = []

    def has_ended() -> bool:
        looks.append(existing(account, batch_id))
        return looks[-1]["status"] in ENDED

    until(has_ended)
    return looks


def ended(account: AccountClient, batch_id: str) -> dict[str, Any]:
    """Return a batch that has ended."""
    return observed_states(account, batch_id)[-1]


def completed(account: AccountClient, batch_id: str, count: int = 1) -> dict[str, Any]:
    """Return a batch once so many of its items are completed."""

    def enough() -> dict[str, Any] | None:
        found = existing(account, batch_id)
        return found if found["request_counts"]["completed"] >= count else None

    return until(enough)


def errors_of(batch: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the errors of its items, by their custom ids."""
    return {item["custom_id"]: item["error"] for item in batch["results"] if item["error"]}


def texts_of(batch: dict[str, Any]) -> dict[str, str]:
    """Return the text of each reply, by the items' custom ids."""
    return {
        item["custom_id"]: item["response"]["body"]["choices"][0]["message"]["content"]
        for item in batch["results"]
        if item["response"]
    }


def batch_folders(server: ServerProcess) -> set[str]:
    """Return the folders that hold any file of a batch."""
    # Folders go while this looks, which `os.walk` passes over.
    folders = os.walk(server.data_dir / "blobs")
    return {Path(folder).parts[-2] for folder, _, files in folders if files}


@contextmanager
def assert_nothing_kept(server: ServerProcess, account: AccountClient) -> Generator[None]:
    """Assert that the block leaves neither a batch of the account nor a file."""
    before = batch_folders(server)
    yield
    until(lambda: batch_folders(server) <= before)
    assert listed(account) == []

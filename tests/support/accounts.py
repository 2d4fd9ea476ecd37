"""Accounts on a running server, and clients with their keys.

accounts = Accounts(server)
account = accounts.create(credits="4", limit="0.5") an account, its credits and a key
account.ask("simulated/echo", max_tokens=5)         a request; `form` names another format
with account.slow_request(): ...                    a stream that runs during the block
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx2

from tests.support.server_process import ServerProcess

QUESTIONS: dict[str, dict[str, Any]] = {
    "/chat/completions": {"messages": [{"role": "user", "content": "one two three"}]},
    "/responses": {"input": "one two three"},
    "/messages": {"messages": [{"role": "user", "content": "one two three"}]},
    "/completions": {"prompt": "one two three"},
}
"""A short question in each format."""
LIMITS = {"/responses": "max_output_tokens"}
LONG_TEXT = " ".join(f"word{number}" for number in range(200))
"""What simulated/slow repeats for most of a minute."""


def body(form: str, model: str, max_tokens: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return the body of a request in a format."""
    limit = {} if max_tokens is None else {LIMITS.get(form, "max_tokens"): max_tokens}
    return {"model": model, **QUESTIONS[form], **limit, **fields}


@dataclass(frozen=True)
class AccountClient:
    """A client with the key of an account."""

    http: httpx2.Client
    key: str
    key_hash: str
    account_id: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def ask(self, model: str, form: str = "/chat/completions", **fields: Any) -> httpx2.Response:
        """Send a request, whole unless `stream` is among the fields."""
        return self.post(form, body(form, model, **fields))

    def post(self, path: str, content: dict[str, Any]) -> httpx2.Response:
        """Send a JSON body with the key."""
        return self.http.post(path, json=content, headers=self.headers)

    @contextmanager
    def slow_request(self, model: str = "simulated/slow", **fields: Any) -> Generator[str]:
        """Stream a long reply during the block and hang up after it; yields the generation's id."""
        said = [{"role": "user", "content": LONG_TEXT}]
        content = {"model": model, "messages": said, "stream": True, **fields}
        with self.http.stream(
            "POST", "/chat/completions", json=content, headers=self.headers
        ) as reply:
            assert reply.status_code == 200, reply.read()
            pieces = reply.iter_bytes()  # whose end would close the connection
            while b"word" not in next(pieces):
                pass
            yield reply.headers["x-generation-id"]

    def get(self, path: str, **query: str) -> Any:
        """Return the data of a route that the key may read."""
        reply = self.http.get(path, params=query, headers=self.headers)
        assert reply.status_code == 200, reply.text
        return reply.json()["data"]


class Accounts:
    """Creates accounts and changes them with the operator's key."""

    def __init__(self, server: ServerProcess) -> None:
        self.http = httpx2.Client(base_url=server.base_url, timeout=20)
        self._headers = {"Authorization": f"Bearer {server.management_key}"}
        self._numbers = count()

    def manage(self, method: str, path: str, **content: Any) -> Any:
        """Send a request with the operator's key; assert that it succeeds."""
        given = json.dumps(content).encode() if content else None
        reply = self.http.request(method, path, content=given, headers=self._headers)
        assert reply.status_code in range(200, 300), reply.text
        return reply.json()

    def create(self, credits: str = "0", *, kind: str = "grant", **fields: Any) -> AccountClient:  # noqa: A002 - the word for it
        """Create an account with a key.

        Args:
            credits: What it is given.
            kind: How: grant or purchase.
            fields: `type` and `free_limits_exempt` of the account; what else, of the key.
        """
        own = {name: fields.pop(name) for name in ("type", "free_limits_exempt") if name in fields}
        name = f"account-{next(self._numbers)}"
        account = self.manage("POST", "/accounts", name=name, **own)["data"]["id"]
        if credits != "0":
            self.add_credits(account, credits, kind)
        return self.another_key(account, **fields)

    def add_credits(self, account: str, amount: str, kind: str = "purchase") -> None:
        """Add credits to an account."""
        self.manage("POST", "/credits", amount=amount, kind=kind, account_id=account)

    def another_key(self, account: str, **fields: Any) -> AccountClient:
        """Create another key of an account."""
        made = self.manage("POST", "/keys", name="key", account_id=account, **fields)
        return AccountClient(self.http, made["key"], made["data"]["hash"], account)

    def key_of(self, intern: str) -> dict[str, Any]:
        """Return an intern's own key from the list of keys."""
        [found] = [
            key for key in self.manage("GET", "/keys")["data"] if key["name"] == f"intern {intern}"
        ]
        return found

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

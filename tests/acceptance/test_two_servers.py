"""Two servers on one PostgreSQL: what is changed on one of them is in force on the other."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.support.accounts import AccountClient, Accounts, body
from tests.support.backdoor import execute
from tests.support.fake_s3 import blobs_at, s3_beside
from tests.support.postgresql_databases import PostgresqlDatabases, plain_url
from tests.support.server_process import DATABASE_URL, ServerProcess, start_server
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = pytest.mark.postgresql
MODEL = "simulated/echo"
OWN_KEY = {"provider": "simulated", "key": "of-the-customer", "is_required": True}
TAKEN = {"kind": "adjustment", "amount": "-4", "note": "a test"}
POLICY = {"allowed_models": ["another/model"]}
Change = tuple[str, str, dict[str, Any], object]
"""Method, path and body of a request to one server, and what the other one answers then: a status,
or whether an own key has served."""
CHANGES: dict[str, list[Change]] = {
    "a disabled key": [
        ("PATCH", "/keys/{key}", {"disabled": True}, 401),
        ("PATCH", "/keys/{key}", {"disabled": False}, 200),
    ],
    "a deleted key": [("DELETE", "/keys/{key}", {}, 401)],
    "a limit of a key": [
        ("PATCH", "/keys/{key}", {"limit": 0}, 402),
        ("PATCH", "/keys/{key}", {"limit": None}, 200),
    ],
    "credits": [
        ("POST", "/credits", TAKEN, 402),
        ("POST", "/credits", {"kind": "purchase", "amount": "4"}, 200),
    ],
    "how an account pays": [
        ("POST", "/credits", TAKEN, 402),
        ("PATCH", "/accounts/{account}", {"type": "invoice"}, 200),
    ],
    **{
        f"a policy of {path.partition('/')[0]}": [
            ("PUT", f"/{path}/policy", POLICY, 403),
            ("PUT", f"/{path}/policy", {"blocked_models": []}, 200),
        ]
        for path in ("accounts/{account}", "workspaces/default", "keys/{key}")
    },
    "an own key": [("POST", "/byok", OWN_KEY, True), ("DELETE", "/byok/{made}", {}, False)],
}


@pytest.fixture(scope="module")
def servers(
    postgresql: PostgresqlDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Generator[list[ServerProcess]]:
    """Two servers on one database, which they made no use of yet."""
    url = postgresql.take()
    with s3_beside() as store, ExitStack() as running:
        env = {f"TOLLHOUSE_BLOBS__{name.upper()}": str(v) for name, v in blobs_at(store).items()}
        env |= {"TOLLHOUSE_VAULT__KEYS": "settings", "TOLLHOUSE_VAULT__KEY": "A" * 43 + "="}
        env |= {DATABASE_URL: plain_url(url)}
        folders = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
        yield [running.enter_context(start_server(each, env=env)) for each in folders]
    postgresql.give_back(url)


class Elsewhere:
    """An account, managed on one server, that asks the other one."""

    def __init__(self, servers: list[ServerProcess]) -> None:
        self.accounts = Accounts(servers[0])
        self.client: AccountClient = self.accounts.create("4")
        self._http = httpx2.Client(base_url=servers[1].base_url, headers=self.client.headers)
        self._made = ""

    def change(self, method: str, path: str, content: dict[str, Any]) -> None:
        client = self.client
        path = path.format(key=client.key_hash, account=client.account_id, made=self._made)
        if not path.startswith(("/keys", "/accounts")):
            if method == "POST":
                content = {**content, "account_id": client.account_id}
            else:
                path += f"?account_id={client.account_id}"
        found = self.accounts.manage(method, path, **content)
        self._made = found.get("data", {}).get("id", "")

    def answers(self, expected: object) -> bool:
        reply = self._http.post("/chat/completions", json=body("/chat/completions", MODEL, 5))
        is_byok = reply.json().get("usage", {}).get("is_byok")
        return (is_byok if isinstance(expected, bool) else reply.status_code) == expected

    def close(self) -> None:
        self._http.close()
        self.accounts.close()


@pytest.fixture
def elsewhere(servers: list[ServerProcess]) -> Generator[Elsewhere]:
    made = Elsewhere(servers)
    assert made.answers(200)
    yield made
    made.close()


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_what_is_changed_on_one_is_in_force_on_the_other(
    elsewhere: Elsewhere, changes: list[Change]
) -> None:
    for method, path, content, expected in changes:
        elsewhere.change(method, path, content)
        wait_until(lambda expected=expected: elsewhere.answers(expected))


def test_so_it_is_where_the_notification_was_lost(
    elsewhere: Elsewhere, servers: list[ServerProcess]
) -> None:
    execute(
        servers[0],
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND query LIKE '%version FROM topics'",
    )
    elsewhere.change("PATCH", "/keys/{key}", {"disabled": True})
    wait_until(lambda: elsewhere.answers(401))


def test_they_hold_no_more_together_than_the_in_flight_budget(servers: list[ServerProcess]) -> None:
    # Half of the balance: as much as 100,000 tokens cost. Each server alone has room for both.
    accounts = Accounts(servers[0])
    client = accounts.create("0.4")
    with httpx2.Client(base_url=servers[1].base_url, timeout=20) as http:
        elsewhere = AccountClient(http, client.key, client.key_hash, client.account_id)
        with client.slow_request(max_tokens=80_000):
            reply = elsewhere.ask(MODEL, max_tokens=40_000)
            assert reply.status_code == 402, reply.text
            metadata = reply.json()["error"]["metadata"]
            assert metadata["reason"] == "in_flight_budget_exhausted"
            assert metadata["limit_source"] == "service_in_flight_budget"
            assert elsewhere.ask(MODEL, max_tokens=10_000).status_code == 200
        wait_until(lambda: elsewhere.ask(MODEL, max_tokens=40_000).status_code == 200)
    accounts.close()

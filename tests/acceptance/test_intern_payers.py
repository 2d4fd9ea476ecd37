"""An intern's spending is limited by the key that started it."""

import json
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.accounts import AccountClient, Accounts
from tests.support.intern_client import InternClient
from tests.support.server_process import ServerProcess, start_server

pytestmark = pytest.mark.sandbox
TINY = "0.000035"
"""Credits: what the prompt of one request may cost, and not of a second one behind it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("i")) as server:
        yield server


class AccountKeys:
    """An intern, and keys of its account."""

    def __init__(self, server: ServerProcess, accounts: Accounts) -> None:
        self.server = server
        self.accounts = accounts

    def key(self, **fields: Any) -> AccountClient:
        return self.accounts.another_key(self.server.announced["account_id"], **fields)

    def interns(self, account: AccountClient) -> InternClient:
        return InternClient(self.server, account.key)

    def asked(self, interns: InternClient, model: str = "simulated/echo") -> dict[str, Any]:
        """Return the gateway's reply to a request of the intern."""
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi there"}]})
        url = "http://gateway.internal/v1/chat/completions"
        return json.loads(interns.script_output("ada", f"curl -sS {url} -d '{body}'"))


@pytest.fixture
def keys(interns: InternClient, accounts: Accounts) -> Generator[AccountKeys]:
    yield AccountKeys(interns.server, accounts)
    interns.delete_all()


def test_a_keys_limit_holds_for_the_intern_that_it_had_run(keys: AccountKeys) -> None:
    account = keys.key(limit=TINY)
    interns = keys.interns(account)
    interns.run()
    assert "choices" in keys.asked(interns)
    error = keys.asked(interns)["error"]
    assert error["code"] == 402
    assert error["metadata"]["reason"] == "weight_exceeds_key_limit"
    assert "the key that answers for this intern" in error["message"]
    assert error["metadata"]["limits"][0]["payer"] is True
    shown = account.get("/key")
    assert shown["usage"] == keys.accounts.key_of("ada")["usage"] > 0
    assert account.ask("simulated/echo").status_code == 402


def test_a_key_that_is_disabled_stops_its_intern_until_another_key_has_it_run(
    keys: AccountKeys,
) -> None:
    account = keys.key()
    interns = keys.interns(account)
    intern = interns.run()
    assert "choices" in keys.asked(interns)
    keys.accounts.manage("PATCH", f"/keys/{account.key_hash}", disabled=True)
    other = InternClient(keys.server)
    assert keys.asked(other)["error"]["code"] == 401
    other.suspend(intern)
    other.run()
    assert "choices" in keys.asked(other)


def test_a_keys_policy_holds_for_the_intern_that_it_had_run(keys: AccountKeys) -> None:
    account = keys.key()
    keys.accounts.manage(
        "PUT", f"/keys/{account.key_hash}/policy", allowed_models=["simulated/echo"]
    )
    interns = keys.interns(account)
    interns.run()
    assert "choices" in keys.asked(interns)
    error = keys.asked(interns, "simulated/tools")["error"]
    assert error["code"] == 403
    assert "The policy of the key that answers for this intern" in error["message"]


def test_a_limit_that_is_set_on_an_interns_key_survives_its_boots(keys: AccountKeys) -> None:
    interns = InternClient(keys.server)
    intern = interns.run()
    before = keys.accounts.key_of("ada")
    keys.accounts.manage("PATCH", f"/keys/{before['hash']}", limit=TINY)
    assert "choices" in keys.asked(interns)
    interns.suspend(intern)
    interns.run()
    error = keys.asked(interns)["error"]
    assert error["metadata"]["reason"] == "weight_exceeds_key_limit"
    assert "are left of the key's limit" in error["message"]
    after = keys.accounts.key_of("ada")
    assert (after["hash"], after["limit"]) == (before["hash"], float(TINY))

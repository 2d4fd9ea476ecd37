"""The cost of a chat with an intern: which key is charged, and who sees it.

The intern's own key never leaves the proxy, so nobody can ask `GET /key` with it.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

import pytest

from tests.acceptance.checked_server import start_checked_server
from tests.acceptance.intern_conversation import Conversation
from tests.support.accounts import AccountClient, Accounts
from tests.support.intern_client import InternClient
from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.sandbox
TURNS = 2
REQUESTS_A_TURN = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_checked_server(tmp_path_factory.mktemp("i")) as server:
        yield server


class SpentChat(NamedTuple):
    """A chat of some turns with an intern, each a command and a report."""

    interns: InternClient
    intern: str
    account: AccountClient
    """The key that started the intern; another key sent the prompts."""
    usages: list[dict[str, Any]]
    """The usage of each turn."""

    def total(self, name: str) -> float:
        return sum(usage[name] for usage in self.usages)


@pytest.fixture(scope="module")
def spent(server: ServerProcess, accounts: Accounts) -> Generator[SpentChat]:
    account = accounts.another_key(server.announced["account_id"])
    intern = InternClient(server, account.key).run()
    interns = InternClient(server)
    conversation = Conversation(interns, intern)
    usages = [conversation.send("run: true").usage for _ in range(TURNS)]
    yield SpentChat(interns, intern, account, [usage for usage in usages if usage is not None])
    interns.delete_all()


def test_each_turn_tells_what_it_cost(spent: SpentChat) -> None:
    assert [usage["cost"] > 0 for usage in spent.usages] == [True] * TURNS


def test_the_key_that_started_the_intern_is_charged(spent: SpentChat) -> None:
    assert spent.account.get("/key")["usage"] == pytest.approx(spent.total("cost"))


def test_the_key_that_sends_the_prompts_is_not_charged(spent: SpentChat) -> None:
    told = spent.interns.request("GET", "/key").json()["data"]
    assert told["usage"] == 0


def test_managers_see_the_usage_of_the_interns_key(spent: SpentChat, accounts: Accounts) -> None:
    own = accounts.key_of("ada")
    assert (own["kind"], own["intern_id"]) == ("intern", spent.intern)
    assert own["usage"] == pytest.approx(spent.total("cost"))
    assert accounts.manage("GET", f"/keys/{own['hash']}")["data"]["usage"] == own["usage"]


def test_the_activity_report_has_the_interns_requests(spent: SpentChat, accounts: Accounts) -> None:
    query = f"api_key_hash={accounts.key_of('ada')['hash']}&group_by=key"
    rows = accounts.manage("GET", f"/activity?{query}")["data"]
    assert {row["model"] for row in rows} == {"simulated/agent"}
    summed = {
        name: sum(row[name] for row in rows)
        for name in ("usage", "requests", "prompt_tokens", "completion_tokens")
    }
    assert summed == {
        "usage": pytest.approx(spent.total("cost")),
        "requests": TURNS * REQUESTS_A_TURN,
        "prompt_tokens": spent.total("prompt_tokens"),
        "completion_tokens": spent.total("completion_tokens"),
    }


def test_a_limit_of_the_interns_key_ends_a_run_with_a_clear_error(
    spent: SpentChat, accounts: Accounts
) -> None:
    own = accounts.key_of("ada")
    accounts.manage("PATCH", f"/keys/{own['hash']}", limit=0)
    turn = Conversation(spent.interns, spent.intern).send("run: true")
    accounts.manage("PATCH", f"/keys/{own['hash']}", limit=None)
    assert (turn.finish, turn.reason) == ("error", "turn_failed")
    assert turn.error is not None
    assert "limit" in turn.error["message"]
    about = turn.error["metadata"]
    assert (about["retryable"], about["limit_source"]) == (False, "service_key_limit")
    assert about["remedy_hint"].startswith("Raise the key's limit")
    assert accounts.key_of("ada")["usage"] == own["usage"]

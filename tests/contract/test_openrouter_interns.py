"""An intern's life with `openrouter` 1.3.30 and `@openrouter/sdk` 1.3.19, in a real sandbox.

The latter knows neither `invoke` nor an intern's daemon.
"""

from typing import Any

import pytest

from tests.support.backdoor import new_own_key
from tests.support.client_process import CLIENTS, run_client
from tests.support.server_process import start_server

pytestmark = [pytest.mark.contract, pytest.mark.sandbox]
PYTHON = pytest.param(
    ("openrouter-1-3-30", CLIENTS / "openrouter" / "check_interns.py"), id="openrouter"
)
NODE = pytest.param(("agents", "check_interns.mjs"), marks=pytest.mark.soak, id="@openrouter/sdk")
with_python = pytest.mark.parametrize("seen", [PYTHON], indirect=True)
with_node = pytest.mark.parametrize("seen", [NODE], indirect=True)
OTHER = "88888888-0000-4000-8000-000000000008"


@pytest.fixture(scope="module", params=[PYTHON, NODE])
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    with start_server(tmp_path_factory.mktemp("interns")) as server:
        workspace = server.announced["workspace_id"]
        env = {
            "BASE_URL": server.base_url,
            "API_KEY": server.api_key,
            "WORKSPACE": workspace,
            "INTERN_KEY": new_own_key(server, workspace, OTHER),
            "LIBRARY": "@openrouter/sdk",
        }
        return run_client(*request.param, env=env)


@pytest.fixture(scope="module")
def life(seen: dict[str, Any]) -> dict[str, Any]:
    return seen["life"]


def lifecycle_error(told: dict[str, Any]) -> tuple[int, str, bool]:
    """Return what the library made of a refusal of the life cycle."""
    assert told["class"] == "InternLifecycleError"
    assert told["told"]["code"] == told["status"]
    metadata = told["told"]["metadata"]
    return told["status"], metadata["reason"], metadata["retryable"]


def test_a_creation_that_is_sent_again_returns_the_same_intern(life: dict[str, Any]) -> None:
    assert life["made"] == life["again"]
    assert (life["made"]["name"], life["made"]["status"]) == ("ada", "queued")


def test_a_new_intern_is_listed(life: dict[str, Any]) -> None:
    assert [each["id"] for each in life["listed"]["data"]] == [life["made"]["id"]]
    assert life["listed"]["has_more"] is False


def test_a_change_is_seen_at_once(life: dict[str, Any]) -> None:
    assert life["updated"]["instructions"] == "be kind"


@with_python
def test_an_intern_that_is_not_running_has_no_daemon(life: dict[str, Any]) -> None:
    assert lifecycle_error(life["too early"]) == (409, "intern_not_running", False)


def test_an_intern_that_never_ran_cannot_be_suspended(life: dict[str, Any]) -> None:
    assert lifecycle_error(life["not suspended"]) == (409, "intern_busy", False)


def test_a_provisioned_intern_runs(life: dict[str, Any]) -> None:
    assert life["provisioned"] == {"provisioning": True}
    assert life["running"]["status"] == "running"
    assert life["running"]["hostname"] == "127.0.0.1"
    assert life["running"]["progress"] is None


def test_a_running_intern_cannot_be_provisioned_again(life: dict[str, Any]) -> None:
    assert lifecycle_error(life["busy"]) == (409, "intern_busy", False)


@with_python
def test_a_daemon_is_reached_with_url_and_token_of_this_boot(
    life: dict[str, Any],
) -> None:
    assert life["daemon"] == {"health": 200, "host": "127.0.0.1"}
    assert (life["alias"], life["another token"]) == (True, True)


@with_node
def test_an_intern_talks_once_it_runs(life: dict[str, Any]) -> None:
    refusal = life["no chat"]
    assert (refusal["class"], refusal["status"]) == ("InternChatErrorResponse", 409)
    assert refusal["told"]["metadata"] == {"reason": "intern_not_ready", "retryable": True}
    assert life["talked"] == {"text": "Hi.\n", "ends": ["stop"], "session": True}


@with_python
def test_an_invoked_intern_works_without_a_watcher(life: dict[str, Any]) -> None:
    invoked = life["invoked"]
    session = invoked["begun"]["session_id"]
    assert invoked["begun"] == {"session_id": session, "status": "started"}
    assert invoked["steered"] == {"session_id": session, "status": "steered"}
    assert invoked["after its end"] == invoked["begun"]
    refusal = invoked["foreign"]
    assert (refusal["class"], refusal["status"]) == ("InternChatErrorResponse", 404)
    assert refusal["told"]["metadata"] == {"reason": "not_found", "retryable": False}


def test_a_suspended_intern_runs_again(life: dict[str, Any]) -> None:
    assert life["suspended"] == {"suspended": True}
    assert life["stopped"]["status"] == "stopped"
    assert life["resumed"] == {"provisioning": True}
    assert life["runs again"]["status"] == "running"


def test_a_deleted_intern_is_gone(life: dict[str, Any]) -> None:
    assert life["deleting"] == {"deleting": True}
    assert lifecycle_error(life["gone"]) == (404, "not_found", False)


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("bad name", 400, "invalid_body"),
        ("taken name", 409, "name_taken"),
        ("unknown", 404, "not_found"),
        ("bad limit", 400, "invalid_body"),
        ("own list", 404, "not_found"),
        ("own other", 404, "not_found"),
        ("other workspace", 404, "not_found"),
    ],
)
def test_a_refusal_is_understood(seen: dict[str, Any], name: str, status: int, reason: str) -> None:
    assert lifecycle_error(seen["refusals"][name]) == (status, reason, False)

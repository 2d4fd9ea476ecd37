"""The budgets of a workspace with `openrouter` and `@openrouter/sdk`, two releases each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.client_process import CLIENTS

if TYPE_CHECKING:
    from tests.contract.conftest import Gateway

pytestmark = pytest.mark.contract


PYTHON = ("openrouter", "openrouter-1-3-30")
NODE = ("@openrouter/sdk", "openrouter-sdk-1-2-129")


@pytest.fixture(
    scope="module", params=[*PYTHON, *(pytest.param(each, marks=pytest.mark.soak) for each in NODE)]
)
def seen(request: pytest.FixtureRequest, gateway: Gateway) -> dict[str, Any]:
    library = request.param
    client, script = library, str(CLIENTS / "openrouter" / "check_budgets.py")
    if library in NODE:
        client, script = "agents", "check_budgets.mjs"
    return gateway.run(client, script, LIBRARY=library)


def test_budgets_are_set_shown_and_removed(seen: dict[str, Any]) -> None:
    monthly, lifetime = seen["monthly"], seen["lifetime"]
    assert (monthly["data"]["limit_usd"], monthly["data"]["reset_interval"]) == (900.5, "monthly")
    assert (lifetime["data"]["limit_usd"], lifetime["data"]["reset_interval"]) == (1000, None)
    assert monthly["include_byok_in_budgets"] is False
    assert seen["got"] == {"data": monthly["data"], "include_byok_in_budgets": True}
    both = [monthly["data"], lifetime["data"]]
    assert seen["listed"] == {"data": both, "include_byok_in_budgets": True}
    assert seen["deleted"] == [{"deleted": True}] * 3
    assert seen["left"] == {"data": [], "include_byok_in_budgets": True}


def test_a_key_shows_the_budgets_of_its_workspace(seen: dict[str, Any]) -> None:
    budgets = seen["key"].get("budgets")
    if budgets is not None:  # the older release does not know them
        assert [(each["scope"], each["budget_id"]) for each in budgets] == [
            ("workspace", seen[name]["data"]["id"]) for name in ("monthly", "lifetime")
        ]
        assert seen["key"]["effective_budget"] in budgets


def test_refusals_are_of_the_librarys_classes(seen: dict[str, Any]) -> None:
    assert seen["refused"] == {
        "none": {"class": "NotFoundResponseError", "status": 404},
        "order": {"class": "BadRequestResponseError", "status": 400},
        "api key": {"class": "UnauthorizedResponseError", "status": 401},
        "no workspace": {"class": "NotFoundResponseError", "status": 404},
    }

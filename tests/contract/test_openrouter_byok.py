"""The life of an own provider key with `openrouter` and `@openrouter/sdk`, two releases each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.client_process import CLIENTS

if TYPE_CHECKING:
    from tests.contract.conftest import Gateway

pytestmark = pytest.mark.contract
TEXT = "own-key-of-the-published-client"
COST = 3 * 0.000_001 + 3 * 0.000_002
PYTHON = ("openrouter", "openrouter-1-3-30")
UNKNOWN = {
    "@openrouter/sdk": {"declared_region"},
    "openrouter-sdk-1-2-129": {"declared_region", "declared_zdr"},
}
"""The releases for Node, with what they neither send nor read."""
NODE = [pytest.param(each, marks=pytest.mark.soak) for each in UNKNOWN]


@pytest.fixture(scope="module", params=[*PYTHON, *NODE])
def seen(request: pytest.FixtureRequest, gateway: Gateway) -> dict[str, Any]:
    library = request.param
    client, script = library, str(CLIENTS / "openrouter" / "check_byok.py")
    if library in UNKNOWN:
        client, script = "agents", "check_byok.mjs"
    found = gateway.run(client, script, PROVIDER=gateway.provider, LIBRARY=library)
    return found | {"unknown": UNKNOWN.get(library, set())}


def test_a_key_is_what_was_said_of_it_and_never_its_text(seen: dict[str, Any]) -> None:
    made = seen["made"]
    assert made == seen["got"]
    assert TEXT not in str(seen)
    assert (made["label"], made["name"], made["is_required"]) == ("own...ent", "mine", True)
    declared = {name: made[name] for name in made if name.startswith("declared_")}
    said = {"declared_region": "europe", "declared_zdr": True}
    assert declared == {name: said[name] for name in said.keys() - seen["unknown"]}
    changed = seen["changed"]
    assert (changed["label"], changed["name"], changed["is_required"]) == ("own...t-2", None, False)
    assert (made["allowed_models"] is None, changed["allowed_models"]) == (False, None)
    assert changed["allowed_api_key_hashes"] == made["allowed_api_key_hashes"]
    assert seen["listed"] == [changed]
    assert seen["disabled"] == changed | {"disabled": True}
    assert seen["deleted"] == {"deleted": True}


def test_its_use_is_counted_apart_and_costs_nothing_here(seen: dict[str, Any]) -> None:
    assert seen["used"] == {"cost": 0, "is_byok": True, "booked": True}
    assert seen["after"]["usage"] == 0
    assert seen["after"]["byok_usage"] == pytest.approx(COST)
    assert seen["unused"]["is_byok"] is False
    assert seen["unused"]["cost"] > 0
    (row,) = seen["activity"]
    assert row["byok_usage_inference"] == pytest.approx(COST)
    assert (row["requests"], row["usage"]) == (2, pytest.approx(seen["unused"]["cost"]))


def test_refusals_are_of_the_librarys_classes(seen: dict[str, Any]) -> None:
    assert seen["refused"] == {
        "gone": {"class": "NotFoundResponseError", "status": 404},
        "contradiction": {"class": "BadRequestResponseError", "status": 400},
        "api key": {"class": "ForbiddenResponseError", "status": 403},
    }

"""What an intern spends, in a real sandbox: the key that had it run answers for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.intern_rooms import Rooms
from tests.acceptance.server_process import ServerProcess, start_server

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.acceptance.payers import Payer, Payers

pytestmark = pytest.mark.sandbox
TINY = "0.000035"
"""Credits: what the prompt of one request may cost, and not of a second one behind it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("i")) as server:
        yield server


class House:
    """An intern, and the keys of its account."""

    def __init__(self, server: ServerProcess, payers: Payers) -> None:
        self.server = server
        self.payers = payers

    def key(self, **fields: Any) -> Payer:
        return self.payers.another_key(self.server.announced["account_id"], **fields)

    def rooms(self, payer: Payer) -> Rooms:
        return Rooms(self.server, payer.key)

    def asked(self, rooms: Rooms, model: str = "simulated/echo") -> dict[str, Any]:
        """Return what the intern is answered when it asks the gateway."""
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi there"}]})
        url = "http://gateway.internal/v1/chat/completions"
        return json.loads(rooms.output("ada", f"curl -sS {url} -d '{body}'"))


@pytest.fixture
def house(rooms: Rooms, payers: Payers) -> House:
    return House(rooms.server, payers)


def test_a_keys_limit_holds_for_the_intern_that_it_had_run(house: House) -> None:
    payer = house.key(limit=TINY)
    rooms = house.rooms(payer)
    rooms.run()
    assert "choices" in house.asked(rooms)
    error = house.asked(rooms)["error"]
    assert error["code"] == 402
    assert error["metadata"]["reason"] == "weight_exceeds_key_limit"
    assert "the key that answers for this intern" in error["message"]
    assert error["metadata"]["limits"][0]["payer"] is True
    shown = payer.get("/key")
    assert shown["usage"] == house.payers.key_of("ada")["usage"] > 0
    assert payer.ask("simulated/echo").status_code == 402


def test_a_key_that_is_disabled_stops_its_intern_until_another_key_has_it_run(
    house: House,
) -> None:
    payer = house.key()
    rooms = house.rooms(payer)
    intern = rooms.run()
    assert "choices" in house.asked(rooms)
    house.payers.manage("PATCH", f"/keys/{payer.key_hash}", disabled=True)
    other = Rooms(house.server)
    assert house.asked(other)["error"]["code"] == 401
    other.suspend(intern)
    other.run()
    assert "choices" in house.asked(other)


def test_a_keys_policy_holds_for_the_intern_that_it_had_run(house: House) -> None:
    payer = house.key()
    house.payers.manage("PUT", f"/keys/{payer.key_hash}/policy", allowed_models=["simulated/echo"])
    rooms = house.rooms(payer)
    rooms.run()
    assert "choices" in house.asked(rooms)
    error = house.asked(rooms, "simulated/tools")["error"]
    assert error["code"] == 403
    assert "The policy of the key that answers for this intern" in error["message"]


def test_a_limit_that_is_set_on_an_interns_key_survives_its_boots(house: House) -> None:
    rooms = Rooms(house.server)
    intern = rooms.run()
    before = house.payers.key_of("ada")
    house.payers.manage("PATCH", f"/keys/{before['hash']}", limit=TINY)
    assert "choices" in house.asked(rooms)
    rooms.suspend(intern)
    rooms.run()
    error = house.asked(rooms)["error"]
    assert error["metadata"]["reason"] == "weight_exceeds_key_limit"
    assert "are left of the key's limit" in error["message"]
    after = house.payers.key_of("ada")
    assert (after["hash"], after["limit"]) == (before["hash"], float(TINY))

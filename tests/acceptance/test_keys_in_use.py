"""A key that is revoked while its request runs: the reply goes on, and is booked."""

from collections.abc import Generator, Mapping
from hashlib import sha256
from typing import Any

import httpx2
import pytest

from tests.support.server_process import start_server

CHAT = {
    "model": "simulated/slow",
    "messages": [{"role": "user", "content": "one two three four five"}],
    "stream": True,
}
COST = 5 * 0.000_001 + 5 * 0.000_002


@pytest.fixture(scope="module")
def manager(
    tmp_path_factory: pytest.TempPathFactory, database_env: Mapping[str, str]
) -> Generator[httpx2.Client]:
    with (
        start_server(tmp_path_factory.mktemp("in-use"), env=database_env) as server,
        httpx2.Client(
            base_url=server.base_url,
            headers={"Authorization": f"Bearer {server.management_key}"},
            timeout=20,
        ) as client,
    ):
        yield client


def used(manager: httpx2.Client) -> float:
    return manager.get("/credits").json()["data"]["total_usage"]


@pytest.mark.parametrize(
    ("method", "body"),
    [("DELETE", None), ("PATCH", {"disabled": True}), ("PATCH", {"limit": 0})],
    ids=["deleted", "disabled", "limited"],
)
def test_a_running_request_is_booked_on_the_key_that_began_it(
    manager: httpx2.Client, method: str, body: dict[str, Any] | None
) -> None:
    before = used(manager)
    key = manager.post("/keys", json={"name": "short-lived", "limit": 1}).json()["key"]
    path = f"/keys/{sha256(key.encode()).hexdigest()}"
    caller = {"Authorization": f"Bearer {key}"}

    with manager.stream("POST", "/chat/completions", json=CHAT, headers=caller) as reply:
        pieces = reply.iter_text()
        said = next(pieces)
        assert manager.request(method, path, json=body).status_code == 200
        said += "".join(pieces)
        generation_id = reply.headers["X-Generation-Id"]

    assert said.rstrip().endswith("data: [DONE]")
    found = manager.get("/generation", params={"id": generation_id}).json()["data"]
    assert found["cost_state"] == "exact"
    assert found["total_cost"] == pytest.approx(COST, rel=1e-12)
    assert used(manager) - before == pytest.approx(COST, rel=1e-9)
    if method == "PATCH":
        data = manager.get(path).json()["data"]
        assert data["usage"] == data["usage_daily"] == found["total_cost"]
    if body == {"limit": 0}:
        own = manager.get("/key", headers=caller).json()["data"]
        assert own["limit_remaining"] == 0
        assert own["effective_budget"]["spend_usd"] == found["total_cost"]
        assert own["effective_budget"]["remaining_usd"] == -found["total_cost"]
    else:
        assert manager.get("/key", headers=caller).status_code == 401

"""`GET /key`: what a key reads about itself."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.component.api.conftest import Acme, Client, shown
from tests.support.builders import generation_record
from tests.support.clock import FakeClock


async def test_shows_the_full_superset_of_a_new_key(
    acme: Acme, connect: Callable[[str], Client]
) -> None:
    body = {"name": "short", "kind": "management", "expires_at": "2026-03-13T00:00:00Z"}
    made = (await acme.management.post("/keys", json=body)).json()
    manager = (await connect(made["key"]).get("/key")).json()["data"]
    assert (manager["is_management_key"], manager["is_provisioning_key"]) == (True, True)
    assert manager["expires_at"] == "2026-03-13T00:00:00.000Z"

    reply = await acme.api.get("/key")

    assert reply.status_code == 200
    facts = {"account": acme.account_id, "workspace": acme.workspace_id}
    assert reply.json() == {"data": shown("own_key", label=acme.api_key.key.label, **facts)}


async def test_a_purchase_ends_the_free_tier_and_nine_credits_raise_the_ceiling(acme: Acme) -> None:
    await acme.operator.post("/credits", json={"amount": 100, "kind": "grant"})
    assert (await acme.api.get("/key")).json()["data"]["is_free_tier"] is True
    for amount, ceiling in [("8.999999999", 50), ("0.000000001", 1000), ("1", 1000)]:
        await acme.operator.post("/credits", json={"amount": amount})

        data = (await acme.api.get("/key")).json()["data"]

        assert data["is_free_tier"] is False
        assert data["free_model_daily_requests"]["limit"] == ceiling


async def test_counts_the_accounts_free_requests_of_today(
    acme: Acme, other: Acme, book: Callable[..., Any], clock: FakeClock
) -> None:
    midnight = clock.now().replace(hour=0, minute=0)
    for number, (account_id, free_limited, at) in enumerate(
        [
            (acme.account_id, True, midnight),
            (acme.account_id, True, clock.now()),
            (acme.account_id, False, clock.now()),
            (acme.account_id, True, midnight - timedelta(milliseconds=1)),
            (other.account_id, True, clock.now()),
        ]
    ):
        await book(
            generation_record(
                id=f"gen-{number}",
                account_id=account_id,
                free_limited=free_limited,
                created_at=at,
                cost_nano=0,
            )
        )

    data = (await acme.management.get("/key")).json()["data"]

    assert data["free_model_daily_requests"] == {"used": 2, "limit": 50, "remaining": 48}

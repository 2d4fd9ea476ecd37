"""`GET /generation`: what is known of one reply, and who may read it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.component.api.conftest import Acme, message, shown
from tests.support.builders import generation_record
from tests.support.clock import START
from tests.support.seams.accounting import Attempt, Attribution, Charge, CostState, Usage

ID = "gen-1773311400-0000000000000000000a"


async def test_shows_every_field(acme: Acme, book: Callable[..., Any]) -> None:
    charge = Charge(
        state=CostState.EXACT,
        usage=Usage(
            input_tokens=100,
            cache_read_tokens=20,
            cache_write_tokens=3,
            cache_write_1h_tokens=4,
            output_tokens=50,
            reasoning_tokens=6,
        ),
        cost_nano=1_250_000,
        provider_cost_nano=1_500_000,
        cost=None,
    )
    await book(
        generation_record(
            id=ID,
            account_id=acme.account_id,
            workspace_id=acme.workspace_id,
            key_hash=acme.api_key.key.hash,
            charge=charge,
            images=2,
            streamed=True,
            attempts=(Attempt("other", None, 30), Attempt("acme", 200, 90)),
            attribution=Attribution(
                http_referer="https://app.example",
                app_title="App",
                user_agent="client/1",
                external_user="u-1",
                session_id="s-1",
                categories="chat",
                trace='{"trace_id":"t-1"}',
                metadata='{"team":"x"}',
            ),
            created_at=START + timedelta(milliseconds=7),
        )
    )

    reply = await acme.api.get("/generation", params={"id": ID})

    assert reply.status_code == 200
    assert reply.json() == {"data": shown("generation", id=ID, workspace=acme.workspace_id)}


async def test_shows_a_reply_that_nobody_knows_the_cost_of(
    acme: Acme, book: Callable[..., Any]
) -> None:
    charge = Charge(CostState.UNKNOWN, Usage(), cost_nano=0, provider_cost_nano=None, cost=None)
    await book(
        generation_record(
            id=ID, account_id=acme.account_id, workspace_id=acme.workspace_id, charge=charge
        )
    )

    data = (await acme.api.get("/generation", params={"id": ID})).json()["data"]

    assert (data["cost_state"], data["total_cost"], data["upstream_inference_cost"]) == (
        "unknown",
        0.0,
        None,
    )
    assert data["origin"] == ""


@pytest.mark.parametrize(
    ("facts", "readers"),
    [
        ({}, {"api", "management", "operator"}),
        ({"workspace_id": "elsewhere"}, {"management", "operator"}),
        ({"key_hash": "{intern}"}, {"api", "management", "operator", "intern"}),
        (
            {"workspace_id": "elsewhere", "key_hash": "{intern}"},
            {"management", "operator", "intern"},
        ),
        ({"account_id": "{other}", "key_hash": "{intern}"}, set[str]()),
    ],
    ids=[
        "of the workspace",
        "of another",
        "of the intern",
        "of it elsewhere",
        "of another account",
    ],
)
async def test_who_may_read_a_reply(
    acme: Acme, other: Acme, book: Callable[..., Any], facts: dict[str, str], readers: set[str]
) -> None:
    names = {"intern": acme.intern_key.key.hash, "other": other.account_id}
    given = {"account_id": acme.account_id, "workspace_id": acme.workspace_id, "key_hash": "b" * 64}
    await book(
        generation_record(
            id=ID, **given | {name: value.format(**names) for name, value in facts.items()}
        )
    )
    for who in ("api", "management", "operator", "intern"):
        reply = await getattr(acme, who).get("/generation", params={"id": ID})
        if who in readers:
            assert reply.status_code == 200
        else:
            assert message(reply, 404) == "No such generation."

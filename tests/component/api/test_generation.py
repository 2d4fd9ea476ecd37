"""`GET /generation`: what is known of one reply, and who may read it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.component.api.conftest import Acme, message
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
    assert reply.json() == {
        "data": {
            "id": ID,
            "model": "acme/large",
            "created_at": "2026-03-12T10:30:00.007Z",
            "total_cost": 0.00125,
            "usage": 0.00125,
            "cost_state": "exact",
            "is_byok": False,
            "origin": "https://app.example",
            "data_region": "global",
            "api_type": "completions",
            "provider_name": "acme",
            "streamed": True,
            "cancelled": False,
            "finish_reason": "stop",
            "native_finish_reason": "stop",
            "latency": 120,
            "moderation_latency": None,
            "generation_time": 340,
            "tokens_prompt": 127,
            "tokens_completion": 50,
            "native_tokens_prompt": 127,
            "native_tokens_completion": 50,
            "native_tokens_reasoning": 6,
            "native_tokens_cached": 20,
            "native_tokens_completion_images": None,
            "num_media_prompt": 2,
            "num_media_completion": None,
            "num_input_audio_prompt": None,
            "num_search_results": None,
            "num_fetches": None,
            "cache_discount": None,
            "upstream_id": "chatcmpl-1",
            "upstream_inference_cost": 0.0015,
            "app_id": None,
            "external_user": "u-1",
            "http_referer": "https://app.example",
            "app_title": "App",
            "categories": "chat",
            "trace": {"trace_id": "t-1"},
            "metadata": {"team": "x"},
            "user_agent": "client/1",
            "preset_id": None,
            "router": None,
            "service_tier": None,
            "web_search_engine": None,
            "workspace_id": acme.workspace_id,
            "provider_responses": [
                {"status": None, "provider_name": "other", "latency": 30, "is_byok": False},
                {"status": 200, "provider_name": "acme", "latency": 90, "is_byok": False},
            ],
            "request_id": None,
            "session_id": "s-1",
            "response_cache_source_id": None,
        }
    }


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
    acme: Acme,
    other: Acme,
    book: Callable[..., Any],
    facts: dict[str, str],
    readers: set[str],
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

"""A generation begins when its account lets it, and holds what it may cost until its end."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from tests.support.clock import START
from tests.unit.inference.fakes import (
    FakeAdmission,
    FakeProvider,
    PipelineFixture,
    failed,
    received,
    steps,
    whole_reply,
)
from tests.unit.inference.generation.pipeline_fixtures import UNREACHABLE
from tollhouse.kernel.errors import (
    PaymentRequired,
    RateLimited,
    RateWindow,
    TollhouseError,
    Unavailable,
    status_of,
)

NO_CREDITS = PaymentRequired("No credits.", metadata={"reason": "insufficient_credits"})
LIMITED = RateLimited("Too often.", window=RateWindow(20, 0, START + timedelta(seconds=60)))


def fixture(*providers: FakeProvider, **fields: Any) -> PipelineFixture:
    return PipelineFixture(providers or [FakeProvider(whole_reply())], **fields)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("refusal", "status"),
    [(NO_CREDITS, 402), (LIMITED, 429), (Unavailable("The gateway cannot keep charges now."), 503)],
)
async def test_what_is_refused_reaches_nobody_and_books_nothing(
    refusal: TollhouseError, status: int, *, stream: bool
) -> None:
    w = fixture(admission=FakeAdmission(refused=refusal))
    assert await failed(w.begin(stream=stream)) is refusal
    await steps()
    assert (w.providers[0].calls, w.settler.records, w.in_flight) == ([], [], 0)
    assert not w.admission.holding
    assert w.finished(status) == 1


async def test_an_item_of_a_batch_claims_nothing_since_its_batch_did() -> None:
    w = fixture(admission=FakeAdmission(refused=NO_CREDITS))
    await received(w.begin(in_batch=True))
    assert (w.admission.requests, len(w.settler.booked)) == ([], 1)


async def test_a_reply_is_admitted_under_the_id_that_it_is_booked_by() -> None:
    w = fixture()
    reply = json.loads(await received(w.begin()))
    [request] = w.admission.requests
    assert request.generation_id == reply["id"] == w.settler.booked[0].id


async def test_it_holds_until_it_is_booked_and_not_after_the_client_has_its_reply() -> None:
    ready = asyncio.Event()
    w = fixture()
    w.settler.ready = ready
    exchange = w.begin()
    await steps()
    assert len(w.settler.records) == 1
    assert w.admission.holding
    ready.set()
    await received(exchange)
    assert not w.admission.holding


@pytest.mark.parametrize("error", [UNREACHABLE, ValueError("a bug")])
async def test_one_that_fails_gives_back_what_it_held(error: BaseException) -> None:
    w = fixture(FakeProvider(error))
    await failed(w.begin())
    assert not w.admission.holding


async def test_one_whose_charge_cannot_be_kept_gives_back_what_it_held() -> None:
    w = fixture()
    w.settler.broken = OSError()
    assert status_of(await failed(w.begin())) == 503
    assert not w.admission.holding


async def test_one_whose_client_goes_away_gives_back_what_it_held() -> None:
    w = fixture(FakeProvider(whole_reply(), accepts=asyncio.Event()))
    exchange = w.begin()
    await steps()
    assert w.admission.holding
    exchange.client_left()
    await steps()
    assert not w.admission.holding


async def test_a_client_that_goes_away_while_it_waits_to_begin_leaves() -> None:
    class Waiting(FakeAdmission):
        def try_admit(self, request: Any) -> None:
            """It has to wait."""

        async def admit(self, request: Any) -> bool:
            await asyncio.Event().wait()
            return await super().admit(request)

    w = fixture(admission=Waiting())
    exchange = w.begin()
    await steps()
    exchange.client_left()
    await steps()
    assert (w.in_flight, w.providers[0].calls, w.settler.records) == (0, [], [])


async def test_a_fallback_is_not_admitted_again() -> None:
    w = fixture(FakeProvider(UNREACHABLE), FakeProvider(whole_reply()))
    await received(w.begin())
    assert len(w.admission.requests) == 1

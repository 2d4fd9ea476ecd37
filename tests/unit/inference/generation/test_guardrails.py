"""A generation asks its caller's guardrails before any provider."""

import asyncio
from typing import Any

import pytest

from tests.support.seams.identity import AccessPolicy
from tests.support.seams.inference import GuardrailVerdict
from tests.support.stream_checks.chat import check_stream
from tests.unit.inference.fakes import (
    FakeProvider,
    PipelineFixture,
    failed,
    received,
    steps,
    whole_reply,
)
from tests.unit.inference.generation.pipeline_fixtures import UNREACHABLE
from tests.unit.inference.guardrails.fakes import FAILED, FakeGuardrail
from tollhouse.kernel.errors import status_of

NAMES_A = (AccessPolicy("workspace", guardrails=("a",)),)


def fixture(guardrail: FakeGuardrail, *providers: FakeProvider, **fields: Any) -> PipelineFixture:
    plain: dict[str, Any] = {"guardrails": {"a": guardrail}, "policies": NAMES_A}
    return PipelineFixture(providers or [FakeProvider(whole_reply())], **(plain | fields))


@pytest.mark.parametrize(
    ("verdict", "status"),
    [(GuardrailVerdict("refused", ("x",)), 403), (FAILED, 503), (ValueError(), 500)],
)
async def test_what_it_does_not_let_pass_reaches_nobody_and_costs_nothing(
    verdict: GuardrailVerdict | Exception, status: int
) -> None:
    w = fixture(FakeGuardrail(verdict))
    assert status_of(await failed(w.begin())) == status
    await steps()
    assert (w.providers[0].calls, w.settler.records, w.in_flight) == ([], [], 0)
    assert w.finished(status) == 1


async def test_it_is_asked_once_however_many_endpoints_are_tried() -> None:
    guardrail = FakeGuardrail()
    w = fixture(guardrail, FakeProvider(UNREACHABLE), FakeProvider(whole_reply()))
    await received(w.begin())
    assert len(guardrail.questions) == 1


async def test_it_is_not_asked_for_a_request_that_nobody_may_serve() -> None:
    guardrail = FakeGuardrail()
    w = fixture(guardrail, policies=(*NAMES_A, AccessPolicy("key", allowed_models=())))
    assert status_of(await failed(w.begin())) == 403
    assert guardrail.questions == []


async def test_a_client_that_leaves_meanwhile_ends_the_question_and_reaches_nobody() -> None:
    guardrail = FakeGuardrail(ready=asyncio.Event())
    w = fixture(guardrail, FakeProvider(whole_reply(), on_disconnect="drain"))
    exchange = w.begin()
    await steps()
    exchange.client_left()
    await steps()
    assert (guardrail.cancelled, w.in_flight) == (1, 0)
    assert (w.providers[0].calls, w.settler.records) == ([], [])


async def test_a_gateway_that_stops_meanwhile_ends_the_question() -> None:
    guardrail = FakeGuardrail(ready=asyncio.Event())
    w = fixture(guardrail)
    exchange = w.begin()
    await steps()
    w.pipeline.interrupt_all()
    assert status_of(await failed(exchange)) == 503
    assert (guardrail.cancelled, w.providers[0].calls) == (1, [])


async def test_a_stream_that_was_kept_alive_meanwhile_ends_legally() -> None:
    guardrail = FakeGuardrail(GuardrailVerdict("refused"), ready=(ready := asyncio.Event()))
    w = fixture(guardrail)
    exchange = w.begin(stream=True)
    exchange.keep_alive(0.001, b": wait\n\n")
    await exchange.read()
    ready.set()
    seen = check_stream((await received(exchange)).replace(b": wait\n\n", b""))
    assert seen.last["error"]["metadata"]["patterns"] == ["a"]

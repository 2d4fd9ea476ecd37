"""What a dry run shares with a real request, and what it leaves alone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support.seams.accounting import AdmissionPreview, AdmissionRequest, Admitted
from tests.support.seams.identity import AccessPolicy
from tests.support.seams.inference import DryRun, RequestEstimate, policy_filter
from tests.unit.inference.fakes import (
    MODEL,
    FakeProvider,
    PipelineFixture,
    parsed_request,
    whole_reply,
)
from tollhouse.kernel.errors import Forbidden, TollhouseError, Unavailable


class Guard:
    """A guardrail that must not be asked."""

    on_failure = "refuse"

    async def ask(self, asked: bytes) -> Any:
        raise AssertionError(asked)


@dataclass
class FakeForecast:
    """Says what the test wants; remembers the requests."""

    error: TollhouseError | None = None
    requests: Sequence[AdmissionRequest] = ()

    async def preview(self, request: AdmissionRequest) -> AdmissionPreview:
        self.requests = [*self.requests, request]
        return AdmissionPreview((), (), (), 0, 0, Admitted(may_use_free=False), error=self.error)


async def estimated(
    w: PipelineFixture, forecast: FakeForecast | None = None, model: str = MODEL, **fields: Any
) -> RequestEstimate:
    body = {"model": model, "stream": False, "messages": [{"role": "user", "content": "hi"}]}
    asked = parsed_request(json.dumps(body | fields).encode())
    asked.subject = replace(asked.subject, policies=w.policies)
    services = replace(w.services, admission=forecast or FakeForecast())
    dry_run = DryRun(w.catalog, services)
    flagged: Forbidden | None = None
    try:
        policy_filter.require_unflagged(w.policies, asked.body)
    except Forbidden as error:
        flagged = error
    return await dry_run.estimate(asked, flagged)


async def test_guardrails_are_named_and_nobody_is_asked() -> None:
    guard: Any = Guard()
    policies = (AccessPolicy("key", guardrails=("privacy",)),)
    w = PipelineFixture(
        [FakeProvider(whole_reply())], guardrails={"privacy": guard}, policies=policies
    )
    assert (await estimated(w)).guardrails == ["privacy"]
    assert (w.providers[0].calls, w.admission.requests, w.settler.records) == ([], [], [])


async def test_what_admission_says_is_the_refusal() -> None:
    error = Unavailable("The disk is full.")
    told = await estimated(PipelineFixture([FakeProvider(whole_reply())]), FakeForecast(error))
    assert told.refusal is error
    assert len(told.candidates) == 1


async def test_the_first_refusal_is_the_one_that_is_told() -> None:
    policies = (AccessPolicy("key", blocked_models=("acme/*",), patterns=("hi",)),)
    told = await estimated(PipelineFixture([FakeProvider(whole_reply())], policies=policies))
    assert told.refusal is not None
    assert told.refusal.metadata["patterns"] == ["hi"]

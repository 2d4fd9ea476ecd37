import asyncio
from dataclasses import replace

import pytest

from tests.support.seams.identity import AccessPolicy
from tests.support.seams.inference import Guardrails, GuardrailVerdict, parse_request, question
from tests.unit.inference.fakes import SUBJECT, steps
from tests.unit.inference.guardrails.fakes import FAILED, FakeGuardrail
from tollhouse.kernel.errors import Forbidden, Unavailable
from tollhouse.observability.metrics import Metrics

BODY = b'{"model": "m", "messages": [{"role": "user", "content": "a prompt"}]}'
REQUEST = parse_request(BODY)
REFUSED = GuardrailVerdict("refused", ("x",))


class Gate:
    """Guardrails by slug, asked for a key whose policy names some of them."""

    def __init__(self, **guardrails: FakeGuardrail) -> None:
        self.metrics = Metrics()
        self.guardrails = Guardrails(guardrails, self.metrics)

    async def check(self, *names: str) -> None:
        policies = tuple(AccessPolicy("key", guardrails=(name,)) for name in names)
        subject = replace(SUBJECT, policies=policies)

        async def asks() -> bytes:
            return question(subject, REQUEST, "/chat/completions", "gen-1", BODY)

        await self.guardrails.check(subject, asks, "gen-1")

    def counted(self, guardrail: str, verdict: str) -> float | None:
        labels = {"guardrail": guardrail, "verdict": verdict}
        name = "tollhouse_guardrail_verdicts_total"
        return self.metrics.registry.get_sample_value(name, labels)


async def test_without_a_name_nobody_is_asked() -> None:
    a = FakeGuardrail(REFUSED)
    await Gate(a=a).check()
    assert a.questions == []


async def test_all_are_asked_at_once() -> None:
    ready = asyncio.Event()
    a, b = FakeGuardrail(ready=ready), FakeGuardrail(REFUSED, ready=ready)
    gate = Gate(a=a, b=b)
    checking = asyncio.ensure_future(gate.check("a", "b"))
    await steps()
    assert len(a.questions) == len(b.questions) == 1
    ready.set()
    with pytest.raises(Forbidden):
        await checking
    assert (gate.counted("a", "allowed"), gate.counted("b", "refused")) == (1, 1)


@pytest.mark.parametrize("on_failure", ["refuse", "allow"])
async def test_a_failure_is_logged_without_what_was_asked(
    on_failure: str, logged: list[dict[str, object]]
) -> None:
    gate = Gate(a=FakeGuardrail(FAILED, on_failure))  # type: ignore[arg-type]
    if on_failure == "allow":
        await gate.check("a")
    else:
        with pytest.raises(Unavailable):
            await gate.check("a")
    assert logged == [
        {
            "event": "guardrail_failed",
            "log_level": "warning",
            "guardrail": "a",
            "reason": "HeadTimeout",
            "let_pass": on_failure == "allow",
            "generation": "gen-1",
        }
    ]
    assert gate.counted("a", "failed") == 1


async def test_whoever_gives_up_ends_every_question() -> None:
    a, b = FakeGuardrail(ready=asyncio.Event()), FakeGuardrail(ready=asyncio.Event())
    before = asyncio.all_tasks()
    checking = asyncio.ensure_future(Gate(a=a, b=b).check("a", "b"))
    await steps()
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    assert (a.cancelled, b.cancelled) == (1, 1)
    assert asyncio.all_tasks() == before

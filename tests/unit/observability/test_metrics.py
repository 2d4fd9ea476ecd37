import asyncio
from collections.abc import Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from tollhouse.observability import invariants as subject
from tollhouse.observability.invariants import MOST_LOGGED, Invariants
from tollhouse.observability.metrics import Metrics


def lines(metrics: Metrics) -> list[str]:
    return metrics.render().decode().splitlines()


def test_generations_are_counted_by_status() -> None:
    metrics = Metrics()
    for status in (200, 200, 502):
        metrics.count_generation(status)
    rendered = lines(metrics)
    assert 'tollhouse_generations_total{status="200"} 2.0' in rendered
    assert 'tollhouse_generations_total{status="502"} 1.0' in rendered


def test_every_metric_is_described() -> None:
    metrics = Metrics()
    metrics.count_generation(200)
    metrics.count_refusal(400)
    metrics.count_verdict("privacy", "allowed")
    rendered = lines(metrics)
    names = {line.split()[2] for line in rendered if line.startswith("# TYPE")}
    assert names
    for name in names:
        [described] = [line for line in rendered if line.startswith(f"# HELP {name} ")]
        assert len(described.split()) > 3


@pytest.mark.parametrize("count", [1, 100])
def test_the_output_does_not_grow_with_the_requests(count: int) -> None:
    metrics = Metrics()
    for _ in range(count):
        metrics.count_generation(200)
        metrics.count_refusal(401)
    assert len([line for line in lines(metrics) if "status=" in line and "_total" in line]) == 2


# The scheduler of invariants: it looks, says what it saw, and ends


FACTS = {"what": "account_totals.used_nano", "whose": "a"}


class Looked:
    """A check that answers what it was given, one after the other, and the last for ever."""

    def __init__(self, *answers: Sequence[Mapping[str, object]] | Exception) -> None:
        self.answers = list(answers)
        self.times = 0
        self.often = asyncio.Event()

    async def __call__(self) -> Sequence[Mapping[str, object]]:
        self.times += 1
        if self.times == len(self.answers):
            self.often.set()
        answer = self.answers[min(self.times, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def count(metrics: Metrics, outcome: str) -> float | None:
    labels = {"invariant": "ledger", "outcome": outcome}
    return metrics.registry.get_sample_value("tollhouse_invariant_checks_total", labels)


def broken(metrics: Metrics) -> float | None:
    labels = {"invariant": "ledger"}
    return metrics.registry.get_sample_value("tollhouse_invariant_broken", labels)


async def test_what_is_broken_is_logged_and_counted_and_stays() -> None:
    metrics, check = Metrics(), Looked([], [FACTS, FACTS], OSError("away"), [])
    invariants = Invariants({"ledger": check}, metrics, 0.001)
    with capture_logs() as logs:
        invariants.start()
        await asyncio.wait_for(check.often.wait(), 10)
        await invariants.stop()
    assert broken(metrics) == 2
    assert count(metrics, "broken") == count(metrics, "failed") == 1
    assert (count(metrics, "kept") or 0) >= 2
    events = [(each["event"], each["log_level"]) for each in logs]
    assert events == [("invariant_broken", "error")] * 2 + [("invariant_not_checked", "error")]
    assert FACTS.items() <= logs[0].items()


async def test_a_round_does_not_flood_the_log() -> None:
    metrics, check = Metrics(), Looked([FACTS] * 50)
    invariants = Invariants({"ledger": check}, metrics, 0.001)
    with capture_logs() as logs:
        invariants.start()
        await asyncio.wait_for(check.often.wait(), 10)
        await invariants.stop()
    assert len(logs) % MOST_LOGGED == 0
    assert broken(metrics) == 50


async def test_a_check_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "STOP_SECONDS", 0.01)
    began, ended = asyncio.Event(), asyncio.Event()

    async def stuck() -> Sequence[Mapping[str, object]]:
        began.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.set()
        return []

    invariants = Invariants({"ledger": stuck}, Metrics(), 0.001)
    invariants.start()
    await asyncio.wait_for(began.wait(), 10)
    await asyncio.wait_for(invariants.stop(), 10)
    assert ended.is_set()

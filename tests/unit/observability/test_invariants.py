"""The scheduler of invariants: it looks, says what it saw, and ends."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from tests.support.waiting import take_turns
from tollhouse.observability import invariants as subject
from tollhouse.observability.invariants import MOST_LOGGED, Invariants
from tollhouse.observability.metrics import Metrics

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


async def test_nothing_is_looked_at_where_the_pause_is_0() -> None:
    check = Looked([])
    invariants = Invariants({"ledger": check}, Metrics(), 0)
    invariants.start()
    await take_turns()
    await invariants.stop()
    assert check.times == 0


async def test_it_ends_at_once_while_it_waits() -> None:
    check = Looked([])
    invariants = Invariants({"ledger": check}, Metrics(), 3_600)
    invariants.start()
    invariants.start()
    await asyncio.wait_for(invariants.stop(), 2)
    await invariants.stop()
    assert check.times == 0


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

"""Waiting for a batch: pauses, a server that stays away, and how often a line tells of it."""

from itertools import islice
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tollhouse.cli.batches.status import GIVE_UP_SECONDS, pauses, poll_until_ended
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.progress import QUIET_SECONDS, LineProgress, progress_line

AWAY = CommandFailed("nobody is there", retryable=True)


def batch(status: str, completed: int = 0, failed: int = 0) -> dict[str, Any]:
    counts = {"total": 10, "completed": completed, "failed": failed}
    return {"id": "batch_1", "status": status, "request_counts": counts}


class Said:
    """A meter that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def show(self, batch: Any) -> None:
        del batch

    def say(self, text: str) -> None:
        self.said.append(text)


def test_pauses_grow_from_half_a_second_to_five() -> None:
    found = list(islice(pauses(), 20))
    assert (found[0], found[-1]) == (0.5, 5.0)
    assert found == sorted(found)


async def test_a_server_that_stays_away_is_given_up(clock: FakeClock) -> None:
    begin, meter = clock.monotonic(), Said()

    async def look() -> Any:
        raise AWAY

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    with pytest.raises(CommandFailed, match="nobody is there"):
        await poll_until_ended(look, meter, clock, sleep)
    assert GIVE_UP_SECONDS <= clock.monotonic() - begin <= GIVE_UP_SECONDS + 10
    assert meter.said == ["nobody is there. Trying again for 5 minutes."]


async def test_a_refusal_ends_it_at_once(clock: FakeClock) -> None:
    meter = Said()

    async def look() -> Any:
        raise CommandFailed("no such batch")

    async def sleep(seconds: float) -> None:
        raise AssertionError(f"waits {seconds} s")

    with pytest.raises(CommandFailed, match="no such batch"):
        await poll_until_ended(look, meter, clock, sleep)
    assert meter.said == []


def test_lines_tell_of_changes_only_and_not_too_often(clock: FakeClock) -> None:
    said: list[str] = []
    lines = LineProgress(said.append, clock)
    lines.show(batch("validating"))
    lines.show(batch("validating"))
    lines.show(batch("in_progress", 1))
    lines.show(batch("in_progress", 2))
    clock.advance(QUIET_SECONDS)
    lines.show(batch("in_progress", 3, 1))
    clock.advance(QUIET_SECONDS)
    lines.show(batch("in_progress", 3, 1))
    lines.show(batch("completed", 9, 1))
    assert said == [
        "batch_1 validating: 0 completed, 0 failed of 10",
        "batch_1 in_progress: 1 completed, 0 failed of 10",
        "batch_1 in_progress: 3 completed, 1 failed of 10",
        progress_line(batch("completed", 9, 1)),
    ]

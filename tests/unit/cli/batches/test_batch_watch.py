"""Waiting for a batch: pauses, a server that is away, lines, exit codes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from tollhouse.cli.batches.status import (
    GIVE_UP_SECONDS,
    batch_exit_code,
    batch_report,
    pauses,
    poll_until_ended,
)
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.output import OutputStyle, render
from tollhouse.cli.progress import QUIET_SECONDS, LineProgress, progress_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.clock import FakeClock

AWAY = CommandFailed("nobody is there", retryable=True)


def batch(status: str, completed: int = 0, failed: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "id": "batch_1",
        "object": "batch",
        "endpoint": "/v1/messages",
        "model": "acme/large",
        "status": status,
        "created_at": 0,
        "expires_at": 86_400,
        "finalized_at": None,
        "error": None,
        "provider": None,
        "usage": None,
        "results": None,
        "request_counts": {"total": 10, "completed": completed, "failed": failed},
        **more,
    }


class Said:
    """A meter that remembers."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.said: list[str] = []

    def show(self, batch: Any) -> None:
        self.shown.append(batch["status"])

    def say(self, text: str) -> None:
        self.said.append(text)


async def watched(
    seen: Iterable[dict[str, Any] | CommandFailed], clock: FakeClock, meter: Said
) -> dict[str, Any]:
    left = iter(seen)

    async def look() -> dict[str, Any]:
        found = next(left)
        if isinstance(found, CommandFailed):
            raise found
        return found

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    return await poll_until_ended(look, meter, clock, sleep)


def test_pauses_grow_from_half_a_second_to_five() -> None:
    found = list(islice(pauses(), 20))
    assert (found[0], found[-1]) == (0.5, 5.0)
    assert found == sorted(found)


async def test_a_batch_is_watched_to_its_end(clock: FakeClock) -> None:
    meter = Said()
    states = ["validating", "in_progress", "in_progress", "finalizing", "completed"]
    end = await watched(map(batch, states), clock, meter)
    assert end["status"] == "completed"
    assert meter.shown == states
    assert meter.said == []


async def test_a_server_may_be_away_for_a_while(clock: FakeClock) -> None:
    meter = Said()
    seen = [batch("validating"), *[AWAY] * 20, batch("in_progress"), AWAY, batch("completed")]
    assert (await watched(seen, clock, meter))["status"] == "completed"
    assert (
        meter.said
        == [
            "nobody is there. Trying again for 5 minutes.",
            "The server is back.",
        ]
        * 2
    )


async def test_a_server_that_stays_away_is_given_up(clock: FakeClock) -> None:
    begin = clock.monotonic()
    with pytest.raises(CommandFailed, match="nobody is there"):
        await watched([batch("validating"), *[AWAY] * 1_000], clock, Said())
    assert GIVE_UP_SECONDS <= clock.monotonic() - begin <= GIVE_UP_SECONDS + 10


async def test_a_refusal_ends_it_at_once(clock: FakeClock) -> None:
    meter = Said()
    with pytest.raises(CommandFailed, match="No such batch"):
        await watched([CommandFailed("No such batch.")], clock, meter)
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


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (batch("completed", 10), 0),
        (batch("completed", 9, 1), 3),
        (batch("completed", 0, 10), 3),
        (batch("failed", 0, 10), 4),
        (batch("expired", 10), 4),
        (batch("cancelled", 3, 7), 4),
    ],
)
def test_the_exit_code_says_how_it_ended(seen: dict[str, Any], code: int) -> None:
    assert batch_exit_code(seen) == code


def test_a_batch_is_shown_without_its_insides() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11, "cost": 0.000_25}
    seen = batch("completed", 9, 1, finalized_at=60, provider="acme", usage=usage)
    lines = render(batch_report(seen), OutputStyle()).splitlines()
    assert {"completed\t9", "failed\t1", "total\t10", "cost\t0.00025"} <= set(lines)
    assert {"ended\t1970-01-01T00:01:00Z", "input tokens\t5", "error\t-"} <= set(lines)


@pytest.mark.parametrize(
    ("seen", "hint"),
    [
        (batch("validating"), "batch show batch_1 --watch"),
        (batch("completed"), "batch results batch_1 -o results.jsonl"),
        (batch("failed", error={"message": "All are wrong."}), None),
    ],
)
def test_people_are_told_what_to_do_next(seen: dict[str, Any], hint: str | None) -> None:
    text = render(batch_report(seen), OutputStyle(terminal=True))
    assert ("tollhouse" in text) is (hint is not None)
    assert (hint or "All are wrong.") in text

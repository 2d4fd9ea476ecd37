"""Waits for a batch to end, through a server that is away for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from tollhouse.cli.batches.views import ENDED
from tollhouse.cli.failures import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tollhouse.cli.batches.meters import Meter
    from tollhouse.kernel.clock import Clock

GIVE_UP_SECONDS: Final = 300.0
"""How long a server may be away."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
_GROWTH: Final = 1.3


def pauses() -> Iterator[float]:
    """Yield the seconds between two looks, without end: 0.5 at first, 5 in the long run."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)


async def until_ended(
    look: Callable[[], Awaitable[dict[str, Any]]],
    meter: Meter,
    clock: Clock,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> dict[str, Any]:
    """Return a batch once it has ended.

    Args:
        look: Returns the batch as it stands.
        meter: Shows how far it came.
        clock: How long the server is away.
        sleep: Waits so many seconds.

    Raises:
        CommandFailed: The server refused to show it, or was away for too long.
    """
    waits = pauses()
    away_since: float | None = None
    while True:
        try:
            batch = await look()
        except CommandFailed as error:
            away_since = _away_since(away_since, error, clock.monotonic(), meter)
        else:
            if away_since is not None:
                meter.say("The server is back.")
            away_since = None
            meter.show(batch)
            if batch["status"] in ENDED:
                return batch
        await sleep(next(waits))


def _away_since(before: float | None, error: CommandFailed, now: float, meter: Meter) -> float:
    """Return since when the server is away.

    Raises:
        CommandFailed: It is not, or has been for too long.
    """
    if not error.passes:
        raise error
    if before is None:
        meter.say(f"{error}. Trying again for {GIVE_UP_SECONDS / 60:.0f} minutes.")
        return now
    if now - before >= GIVE_UP_SECONDS:
        raise error
    return before

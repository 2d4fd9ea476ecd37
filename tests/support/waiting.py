"""Waiting for what a test expects, with a deadline.

Each wait has its own deadline, also after the test's timeout has passed.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

_T = TypeVar("_T")
WAIT_SECONDS: Final = 60.0
"""Seconds until a test gives up: far more than any wait takes."""
_PAUSE: Final = 0.01


def wait_until(
    ask: Callable[[], _T], *, seconds: float = WAIT_SECONDS, pause: float = _PAUSE
) -> _T:
    """Call a function until it returns a true value; return that.

    Args:
        ask: Called again and again.
        seconds: Seconds until it gives up.
        pause: Seconds between two calls.

    Raises:
        AssertionError: The value was never true.
    """
    ends = time.monotonic() + seconds
    while not (found := ask()):
        _check_time(ends, found)
        time.sleep(pause)
    return found


async def until(
    ask: Callable[[], _T], *, seconds: float = WAIT_SECONDS, pause: float = _PAUSE
) -> _T:
    """Do as `wait_until` without blocking the event loop."""
    ends = time.monotonic() + seconds
    while not (found := ask()):
        _check_time(ends, found)
        await asyncio.sleep(pause)
    return found


async def until_still(
    ask: Callable[[], _T], *, looks: int = 20, seconds: float = WAIT_SECONDS, pause: float = 0.025
) -> _T:
    """Look until a value is true and has been the same so many times in a row; return it.

    For what stops without a sign: a writer that nobody reads from, say.

    Raises:
        AssertionError: It never was.
    """
    ends = time.monotonic() + seconds
    found, same = ask(), 0
    while not found or same < looks:
        _check_time(ends, found)
        await asyncio.sleep(pause)
        before, found = found, ask()
        same = same + 1 if found == before else 0
    return found


async def wait_for_event(event: asyncio.Event) -> None:
    """Wait for an event.

    Raises:
        TimeoutError: It was not set in time.
    """
    async with asyncio.timeout(WAIT_SECONDS):
        await event.wait()


async def take_turns(count: int = 100) -> None:
    """Give the event loop so many turns: what is ready, and what it leads to, has happened then.

    It does not wait for another process or thread. What a socket of this process was sent counts as
    ready: the loop looks in each turn.
    """
    for _ in range(count):
        await asyncio.sleep(0)


def _check_time(ends: float, found: object) -> None:
    if time.monotonic() > ends:
        message = f"the last answer was {found!r}"
        raise AssertionError(message)

"""Waiting for what a test expects: until it is so, but never for ever.

Each wait has an end of its own, that of a test too whose timer has struck already.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
WAIT_SECONDS: Final = 60.0
"""Seconds until a test gives up: far more than anything takes that is waited for."""
_PAUSE: Final = 0.01


def wait_until(
    ask: Callable[[], _T], *, seconds: float = WAIT_SECONDS, pause: float = _PAUSE
) -> _T:
    """Ask until the answer is a true one; return it.

    Args:
        ask: What is asked, again and again.
        seconds: When to give up.
        pause: Seconds from one time to the next.

    Raises:
        AssertionError: It has not become so.
    """
    ends = time.monotonic() + seconds
    while not (found := ask()):
        _check_time(ends, found)
        time.sleep(pause)
    return found


async def until(
    ask: Callable[[], _T], *, seconds: float = WAIT_SECONDS, pause: float = _PAUSE
) -> _T:
    """Do as `wait_until`, and let the loop go on meanwhile."""
    ends = time.monotonic() + seconds
    while not (found := ask()):
        _check_time(ends, found)
        await asyncio.sleep(pause)
    return found


async def wait_for_event(event: asyncio.Event) -> None:
    """Wait for what is to happen.

    Raises:
        TimeoutError: It does not.
    """
    async with asyncio.timeout(WAIT_SECONDS):
        await event.wait()


def _check_time(ends: float, found: object) -> None:
    if time.monotonic() > ends:
        message = f"the last answer was {found!r}"
        raise AssertionError(message)

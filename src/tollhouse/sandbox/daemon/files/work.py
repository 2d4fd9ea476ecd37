"""Work on files beside the event loop: a disk may be slow, and terminals go on meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def beside(work: Callable[[], T]) -> T:
    """Do something in a thread; return what it returns.

    A task that is cancelled waits for the thread, which uses descriptors that the task closes next.
    """
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise

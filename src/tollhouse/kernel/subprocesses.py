"""Programs that run as children of this one: how ours are called, and a start that loses none."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Awaitable, Callable


def own_module(name: str) -> tuple[str, ...]:
    """Return the command of one of our modules; never one from the folder that we started in."""
    return (sys.executable, "-P", "-m", name)


async def kill(process: Process) -> None:
    """Kill a process that nobody listens to, if it is there, and wait until it is gone."""
    with suppress(ProcessLookupError):
        process.kill()
    await process.communicate()  # asyncio has not seen its end before that of its pipes


async def start(
    *command: str,
    end: Callable[[Process], Awaitable[object]] = kill,
    **options: Any,  # noqa: ANN401 - asyncio's
) -> Process:
    """Start a program, with options of `asyncio.create_subprocess_exec`.

    Cancelled, it first starts, then ends it with `end`: nobody else knows of the process, and
    uvloop forgets one whose start is cancelled.

    Raises:
        OSError: It cannot be started.
    """
    starting = asyncio.create_task(asyncio.create_subprocess_exec(*command, **options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.shield(_undo(starting, end))
        raise


async def _undo(
    starting: asyncio.Task[Process], end: Callable[[Process], Awaitable[object]]
) -> None:
    with suppress(OSError):  # it could not be started
        await end(await starting)

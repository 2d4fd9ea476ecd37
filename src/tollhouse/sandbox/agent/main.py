"""The agent's process, which the daemon starts.

standard input    lines of JSON from the daemon; their end is the agent's
standard output   lines of JSON to the daemon
standard error    the daemon's log
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
from typing import TYPE_CHECKING, Final, cast

from tollhouse.sandbox.agent.orders import Input, Order, Setup
from tollhouse.sandbox.agent.pipes import Pipes, open_pipes

if TYPE_CHECKING:
    from tollhouse.sandbox.agent.runs import Runs

_PR_SET_DUMPABLE: Final = 4


def main() -> int:
    """Serve until the daemon closes its end; return the exit code."""
    # No command of a manual run can take this process over, whose network it has not: proc(5).
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    reads, writes = _own(0, os.O_RDONLY), _own(1, os.O_WRONLY)
    try:
        asyncio.run(_serve(reads, writes))
    except (OSError, KeyboardInterrupt):
        return 1  # the daemon is gone
    return 0


def load_runs() -> type[Runs]:
    """Import what runs need: most of a start, while somebody waits for the first word.

    Nothing of what modules make is garbage, so nobody looks for any meanwhile. `openai` would
    import aiohttp, where it finds it, for a client that the agent does not use: 10 MB. Both
    together take a third of the time.
    """
    cast("dict[str, object]", sys.modules)["aiohttp"] = None
    gc.disable()
    from tollhouse.sandbox.agent.runs import Runs  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    return Runs


def _own(number: int, how: int) -> int:
    """Return a standard descriptor as one that no program inherits, and nothing prints to."""
    ours = os.dup(number)
    if how == os.O_WRONLY:
        os.dup2(2, number)
    else:
        nothing = os.open(os.devnull, how)
        os.dup2(nothing, number)
        os.close(nothing)
    return ours


async def _serve(reads: int, writes: int) -> None:
    runs_type = load_runs()
    pipes = await open_pipes(reads, writes)
    first = await pipes.read()
    if first is None:
        return
    runs = runs_type(Setup.read(first), pipes.send)
    try:
        await _obey(pipes, runs)
    finally:
        await runs.close()


async def _obey(pipes: Pipes, runs: Runs) -> None:
    while (line := await pipes.read()) is not None:
        match line["type"]:
            case "run":
                runs.begin(Order.read(line))
            case "steer":
                runs.steer(Input.read(line["input"]), line["until"])
            case "cancel":
                runs.cancel()
            case _:
                sys.stderr.write("error tollhouse.sandbox.agent: an unknown order\n")

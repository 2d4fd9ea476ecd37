"""The agent's process, which the daemon starts.

standard input    lines of JSON from the daemon; their end is the agent's
standard output   lines of JSON to the daemon
standard error    the daemon's log
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from tollhouse.sandbox.agent.protocol import AgentSetup, RunCommand, UserInput

if TYPE_CHECKING:
    from tollhouse.sandbox.agent.runner import AgentRunner

LONGEST_LINE: Final = 256 * 1024 * 1024
"""Bytes. A run brings the whole conversation."""
_PR_SET_DUMPABLE: Final = 4


def main() -> int:
    """Serve until the daemon closes its end; return the exit code."""
    # No command of a manual run can take this process over, whose network it has not: proc(5).
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    reads, writes = _take_over(0, nothing), _take_over(1, 2)
    os.close(nothing)
    try:
        asyncio.run(_serve(reads, writes))
    except (OSError, KeyboardInterrupt):
        return 1  # the daemon is gone
    return 0


def load_runner() -> type[AgentRunner]:
    """Import the agent library: most of a start, while somebody waits for the first word.

    The garbage collector is off meanwhile, and `openai` is kept from importing aiohttp, for a
    client that the agent does not use: 10 MB. Both together take a third of the time.
    """
    cast("dict[str, object]", sys.modules)["aiohttp"] = None
    gc.disable()
    from tollhouse.sandbox.agent.runner import AgentRunner  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    return AgentRunner


def _take_over(number: int, instead: int) -> int:
    """Return a standard descriptor as one that no program inherits; `instead` takes its place."""
    ours = os.dup(number)
    os.dup2(instead, number)
    return ours


async def _serve(reads: int, writes: int) -> None:
    runner_type = load_runner()
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reads, "rb", buffering=0)
    )
    first = await _read(reader)
    if first is None:
        return
    runner = runner_type(AgentSetup(**first), partial(_send, writes))
    try:
        while (line := await _read(reader)) is not None:
            match line["type"]:
                case "run":
                    runner.start(RunCommand.read(line))
                case "steer":
                    runner.steer(UserInput(**line["input"]), line["until"])
                case "cancel":
                    runner.cancel()
                case _:
                    sys.stderr.write("error tollhouse.sandbox.agent: an unknown message\n")
    finally:
        await runner.close()


async def _read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the next line; None once there are no more."""
    try:
        return json.loads(await reader.readuntil(b"\n"))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _send(writes: int, kind: str, **fields: object) -> None:
    """Write a line; it waits while the daemon does not read, and fails once it is gone."""
    line = json.dumps({"type": kind, **fields}, separators=(",", ":")).encode() + b"\n"
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(writes, rest) :]

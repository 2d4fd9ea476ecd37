"""The agent's process, without an agent: only its pipes."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

from tests.support.waiting import until
from tollhouse.sandbox.daemon.sessions.agent import AgentProcess, AgentSupervisor

NOBODY = 2**30
"""More than the number of any process."""


class Pipes:
    """Starts nothing, and has the other ends of the pipes."""

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []
        self.running: dict[int, asyncio.Event] = {}

    def start_piped(self, *_: object, errors: bool) -> tuple[int, int, int]:  # noqa: ARG002 - nothing is started
        (their_input, our_output), (our_input, their_output) = os.pipe(), os.pipe()
        os.set_blocking(their_input, False)
        pid = NOBODY + len(self.started)
        self.started.append((their_input, their_output))
        self.running[pid] = asyncio.Event()
        return pid, our_input, our_output

    async def ended(self, pid: int) -> int:
        await self.running[pid].wait()
        del self.running[pid]
        return 0

    def end_all(self) -> None:
        for end in self.running.values():
            end.set()

    def is_hung_up(self, number: int) -> bool:
        """Tell whether nobody can write any more what a process would read."""
        try:
            return os.read(self.started[number][0], 1) == b""
        except BlockingIOError:
            return False

    def close(self) -> None:
        for end in (end for pair in self.started for end in pair):
            os.close(end)


async def test_an_agent_that_ended_before_it_was_talked_to_leaves_no_pipe_open() -> None:
    pipes = Pipes()
    children: Any = pipes
    agents = AgentSupervisor(partial(AgentProcess, children, {}, {}), idle_seconds=60)
    agents.prepare()
    pipes.end_all()
    await until(lambda: not pipes.running)
    agents.prepare()
    await until(lambda: pipes.is_hung_up(0))
    assert (len(pipes.started), pipes.is_hung_up(1)) == (2, False)
    pipes.end_all()
    await agents.close()
    assert pipes.is_hung_up(1)
    pipes.close()

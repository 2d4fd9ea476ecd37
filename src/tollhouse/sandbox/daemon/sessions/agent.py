"""The agent's process: started when a run needs it, ended when none did for a while."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tollhouse
from tollhouse.sandbox.daemon.processes import kill_session, signal_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.sandbox.daemon.processes import Children

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes. An agent that says more at once has gone mad."""
_END_SECONDS: Final = 10.0
_FOLDER: Final = str(Path(tollhouse.__file__).resolve().parent.parent)
_START: Final = "from tollhouse.sandbox.agent.main import main; sys.exit(main())"
# Not with `-m`: with `-I` Python finds what is installed, and no checkout.
_COMMAND: Final = (
    sys.executable,
    "-I",
    "-c",
    f"import sys; sys.path.insert(0, {_FOLDER!r}); {_START}",
)


class AgentGone(Exception):
    """The agent has ended, or says what it may not."""


class AgentProcess:
    """An agent that runs."""

    def __init__(
        self, children: Children, environment: Mapping[str, str], setup: Mapping[str, Any]
    ) -> None:
        """Start it.

        Args:
            children: Starts it.
            environment: Its variables, and those of the programs that it starts.
            setup: What it is told first.

        Raises:
            OSError: It cannot be started.
        """
        self.pid, *self._pipes = children.start_piped(
            sys.executable, list(_COMMAND), environment, errors=False
        )
        self._children = children
        self._setup = setup
        self._reader = asyncio.StreamReader(limit=LONGEST_LINE)
        self._reading: asyncio.ReadTransport | None = None
        self._writing: asyncio.WriteTransport | None = None
        self.ended = asyncio.create_task(self._wait())

    async def open(self) -> None:
        """Open the pipes, and tell it what holds for it, where that has not been done."""
        if not self._pipes:
            return
        pipes, self._pipes = self._pipes, []
        loop = asyncio.get_running_loop()
        reads = os.fdopen(pipes[0], "rb", buffering=0)
        writes = os.fdopen(pipes[1], "wb", buffering=0)
        self._reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), reads
        )
        self._writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, writes)
        self.send(self._setup)

    def send(self, line: Mapping[str, Any]) -> None:
        """Tell it something; one that is gone hears nothing."""
        if self._writing is not None and not self._writing.is_closing():
            self._writing.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    async def read(self) -> dict[str, Any]:
        """Return what it says next.

        Raises:
            AgentGone: Nothing more.
        """
        try:
            line = json.loads(await self._reader.readuntil(b"\n"))
        except (
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            OSError,
            ValueError,
        ) as error:
            raise AgentGone from error
        if not isinstance(line, dict):
            raise AgentGone
        return line  # pyright: ignore[reportUnknownVariableType] - checked where it is used

    def kill(self) -> None:
        """Kill it, with what it has started in its session."""
        kill_session(self.pid)
        signal_group(self.pid, signal.SIGKILL)

    async def end(self) -> None:
        """End it politely: what it left in the background runs on. By force, if that takes long."""
        self._close()
        await asyncio.wait({self.ended}, timeout=_END_SECONDS)
        if not self.ended.done():
            self.kill()
            await self.ended

    async def _wait(self) -> None:
        await self._children.ended(self.pid)
        self._children.forget(self.pid)

    def _close(self) -> None:
        pipes, self._pipes = self._pipes, []
        for transport in (self._writing, self._reading):
            if transport is not None:
                transport.close()
        for pipe in pipes:
            os.close(pipe)


class Agents:
    """Starts the agent; there is one at a time, or none."""

    def __init__(
        self,
        children: Children,
        environment: Mapping[str, str],
        setup: Mapping[str, Any],
        idle_seconds: float,
    ) -> None:
        """Take what it is started with.

        Args:
            children: Starts it.
            environment: See `AgentProcess`.
            setup: The same.
            idle_seconds: So long after a run it is ended.
        """
        self._children = children
        self._environment = environment
        self._setup = setup
        self._idle_seconds = idle_seconds
        self._agent: AgentProcess | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def prepare(self) -> None:
        """Start the agent, where it does not run: a run is about to begin.

        Raises:
            OSError: It cannot be started.
        """
        self.take()
        self.give_back()

    def take(self) -> AgentProcess:
        """Return the agent for a run, started where it does not run; `open` it.

        Raises:
            OSError: It cannot be started.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._agent is not None and self._agent.ended.done():
            self._let_go()
        if self._agent is None:
            self._agent = AgentProcess(self._children, self._environment, self._setup)
        return self._agent

    def give_back(self) -> None:
        """Say that the run has ended; a while later the agent is."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_seconds, self._let_go)

    def drop(self) -> None:
        """Kill the agent: it does not do as it is told."""
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.kill()
            self._end_later(agent)

    async def close(self) -> None:
        """Kill it, and wait for it."""
        self.drop()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _let_go(self) -> None:
        """End the agent, which is idle, or has ended: its pipes are there still."""
        agent, self._agent = self._agent, None
        if agent is not None:
            self._end_later(agent)

    def _end_later(self, agent: AgentProcess) -> None:
        task = asyncio.create_task(agent.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

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
from tollhouse.sandbox.daemon.processes import ChildProcesses, kill_session, signal_group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes. An agent that says more at once has gone mad."""
_END_SECONDS: Final = 10.0
_FOLDER: Final = str(Path(tollhouse.__file__).resolve().parent.parent)
_CODE: Final = (
    f"import sys; sys.path.insert(0, {_FOLDER!r});"
    " from tollhouse.sandbox.agent.main import main; sys.exit(main())"
)
# Not with `-m`: with `-I` Python finds what is installed, and no checkout.
_COMMAND: Final = (sys.executable, "-I", "-c", _CODE)


class AgentGone(Exception):
    """The agent has ended, or says what it may not."""


class AgentProcess:
    """An agent that runs; it is an `OSError` that none can be started.

    It, and the programs that it starts, have the variables of `environment`; `setup` is the first
    message to it.
    """

    def __init__(
        self, children: ChildProcesses, environment: Mapping[str, str], setup: Mapping[str, Any]
    ) -> None:
        self.pid, *self._pipes = children.start_piped(
            sys.executable, list(_COMMAND), environment, errors=False
        )
        self._setup = setup
        self._reader = asyncio.StreamReader(limit=LONGEST_LINE)
        self._reading: asyncio.ReadTransport | None = None
        self._writing: asyncio.WriteTransport | None = None
        self.ended = asyncio.create_task(children.ended(self.pid))

    async def open(self) -> None:
        """Open the pipes, and send the setup, where that has not been done."""
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
        """Send it a message, unless it is gone."""
        if self._writing is not None and not self._writing.is_closing():
            self._writing.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    async def read(self) -> dict[str, Any]:
        """Return its next message; raise `AgentGone` if there is none."""
        try:
            line = json.loads(await self._reader.readuntil(b"\n"))
        except (EOFError, asyncio.LimitOverrunError, OSError, ValueError) as error:
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
        pipes, self._pipes = self._pipes, []
        for transport in (self._writing, self._reading):
            if transport is not None:
                transport.close()
        for pipe in pipes:
            os.close(pipe)
        await asyncio.wait({self.ended}, timeout=_END_SECONDS)
        if not self.ended.done():
            self.kill()
            await self.ended


class AgentSupervisor:
    """Starts the agent, and ends it `idle_seconds` after a run; there is one at a time, or none."""

    def __init__(self, start: Callable[[], AgentProcess], idle_seconds: float) -> None:
        self._start = start
        self._idle_seconds = idle_seconds
        self._agent: AgentProcess | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def prepare(self) -> None:
        """Start the agent, where it does not run: a run is about to begin."""
        self.take()
        self.give_back()

    def take(self) -> AgentProcess:
        """Return the agent for a run, started where it does not run; `open` it."""
        self._stop_timer()
        if self._agent is not None and self._agent.ended.done():
            self._let_go()
        if self._agent is None:
            self._agent = self._start()
        return self._agent

    def give_back(self) -> None:
        """Take the agent back after a run; it is ended unless another run takes it in time."""
        self._stop_timer()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_seconds, self._let_go)

    def drop(self) -> None:
        """Kill the agent: it does not do as it is told."""
        if self._agent is not None:
            self._agent.kill()
        self._let_go()

    async def close(self) -> None:
        """Kill it, and wait for it."""
        self.drop()
        self._stop_timer()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _let_go(self) -> None:
        """End the agent, which is idle, or has ended: its pipes are there still."""
        agent, self._agent = self._agent, None
        if agent is not None:
            task = asyncio.create_task(agent.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

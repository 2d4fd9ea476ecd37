"""Runs a test's function inside a sandbox and returns its result.

A fake daemon reads its settings as the daemon does, runs the source of the function that they
hold, and writes its result into the workspace; so it does with each `call` there. The function
sees the modules that `PRELUDE` imports, and nothing else of its test.
"""

import asyncio
import contextlib
import inspect
import json
import os
import socket
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until
from tollhouse.interns.runtimes.base import Launch, Runtime, Sandbox, SandboxLimits

PRELUDE = """
import contextlib, ctypes, errno, fcntl, json, os, resource, select, signal, socket, subprocess
import sys, threading, time
from pathlib import Path
from typing import Any
"""
_DAEMON = (
    PRELUDE
    + """
told = json.loads(sys.stdin.readline())

def run(call):
    scope = dict(globals())
    exec(call["script"], scope)
    answer = scope[call["function"]](*call["arguments"])
    Path(".answer").write_text(json.dumps(answer))
    Path(".answer").rename("answer")

run(told)
while not select.select([sys.stdin], [], [], 0.005)[0]:
    if Path("call").exists():
        call = json.loads(Path("call").read_text())
        Path("call").unlink()
        run(call)
"""
)
DAEMON_COMMAND = (sys.executable, "-I", "-c", _DAEMON)
LIMITS = SandboxLimits(
    memory_bytes=256 * 1024 * 1024,
    processes=64,
    cpus=1.0,
    disk_bytes=64 * 1024 * 1024,
    open_files=256,
    files=1_000_000,
)
_FIRST_USER = 1_000_000 + os.getpid() * 100
_SECONDS = 60


def script_of(function: Callable[..., object], arguments: Sequence[object]) -> dict[str, object]:
    script = textwrap.dedent(inspect.getsource(function))
    return {"script": script, "function": function.__name__, "arguments": arguments}


def nothing() -> None:
    pass


@dataclass
class SandboxedCall:
    """A sandbox that runs one function."""

    sandbox: Sandbox
    launch: Launch

    @property
    def workspace(self) -> Path:
        return self.launch.workspace

    async def result(self) -> Any:
        ended = asyncio.ensure_future(self.sandbox.wait())
        async with asyncio.timeout(_SECONDS):
            while not (self.workspace / "answer").exists():
                assert not ended.done(), ended.result()
                await asyncio.sleep(0.01)
        ended.cancel()
        return json.loads((self.workspace / "answer").read_text())

    def ask(self, function: Callable[..., object], *arguments: object) -> Any:
        """Run one more function there, and return its result; the event loop may stand still."""
        answer = self.workspace / "answer"
        answer.unlink()
        (self.workspace / ".call").write_text(json.dumps(script_of(function, arguments)))
        (self.workspace / ".call").rename(self.workspace / "call")
        wait_until(answer.exists, pause=0.002)
        return json.loads(answer.read_text())


@dataclass
class SandboxRunner:
    """Starts sandboxes of one runtime for a test, and ends them after it."""

    runtime: Runtime
    folder: Path
    label: str
    limits: SandboxLimits = LIMITS
    _started: list[SandboxedCall] = field(default_factory=list)
    _listeners: list[socket.socket] = field(default_factory=list)
    _numbers: Any = field(default_factory=count)

    def launch(self, function: Callable[..., object], *arguments: object, **limits: Any) -> Launch:
        number = next(self._numbers)
        place = self.folder / f"s{number}"
        (place / "workspace").mkdir(parents=True, mode=0o700)
        (place / "egress").mkdir(mode=0o700)
        (place / "egress" / "ca.pem").write_text("certificate")
        listener = socket.create_server(("127.0.0.1", 0))
        self._listeners.append(listener)
        return Launch(
            name=f"{self.label}-{number}",
            user=_FIRST_USER + number,
            workspace=place / "workspace",
            egress=place / "egress",
            listener=listener,
            settings=script_of(function, arguments),
            limits=replace(self.limits, **limits),
        )

    async def start(self, launch: Launch) -> SandboxedCall:
        started = SandboxedCall(await self.runtime.start(launch), launch)
        self._started.append(started)
        return started

    async def run(
        self, function: Callable[..., object], *arguments: object, **limits: Any
    ) -> SandboxedCall:
        return await self.start(self.launch(function, *arguments, **limits))

    async def call(self, function: Callable[..., object], *arguments: object, **limits: Any) -> Any:
        return await (await self.run(function, *arguments, **limits)).result()

    async def end(self) -> None:
        for each in self._started:
            with contextlib.suppress(Exception):
                await each.sandbox.stop(0)
        for listener in self._listeners:
            listener.close()

"""How the agent starts, and what is handed into a run that ends before its model hears of it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from tollhouse.sandbox.agent.protocol import AgentSetup, RunCommand, UserInput
from tollhouse.sandbox.agent.run import AgentRun
from tollhouse.sandbox.agent.runner import AgentRunner
from tollhouse.sandbox.agent.tools.context import ToolContext
from tollhouse.sandbox.agent.tools.mcp_servers import McpServers

FIRST = UserInput(1, "Begin.")
LATE = UserInput(2, "And be quick.")
COMMAND = RunCommand(manual=False, messages=(), inputs=(FIRST,), answers=(), verdicts={}, spent={})


class BrokenOffRun:
    """A run of a model that breaks off in the middle of its answer."""

    def __init__(self, workspace: Path) -> None:
        self.said: list[dict[str, Any]] = []
        self.amid: Callable[[], object] = int
        """Called while the model speaks."""
        self.after: Callable[[], object] = int
        """Called when the library has left the run."""
        context = ToolContext(
            workspace,
            dict(os.environ),
            manual=False,
            verdicts={},
            servers=McpServers(workspace, {}),
        )
        self._agent: Any = Agent(FunctionModel(stream_function=self._speak), deps_type=ToolContext)
        this: Any = self
        self.run = AgentRun(this, COMMAND, context, self._say)

    @asynccontextmanager
    async def iter(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        try:
            async with self._agent.iter(*args, **options) as run:
                yield run
        finally:
            self.after()

    async def _speak(self, *_: object) -> AsyncIterator[str]:
        yield "I think"
        self.amid()

    def _say(self, kind: str, **fields: Any) -> None:
        self.said.append({"type": kind, **fields})

    @property
    def entered(self) -> list[int]:
        return [number for line in self.said for number in line.get("entered", ())]


async def test_what_the_model_has_not_heard_of_is_not_in_the_conversation(tmp_path: Path) -> None:
    broken = BrokenOffRun(tmp_path)
    broken.amid = lambda: broken.run.steer(LATE)
    await broken.run.execute()
    assert broken.said[-1]["outcome"] == "failed"
    assert broken.entered == [1]


async def test_what_comes_at_the_very_end_is_not_taken(tmp_path: Path) -> None:
    broken = BrokenOffRun(tmp_path)
    taken: list[bool] = []
    broken.after = lambda: taken.append(broken.run.steer(LATE))
    await broken.run.execute()
    assert taken == [False]
    assert broken.said[-1]["error"]["retryable"] is True  # the model's failure, and no bug


@pytest.mark.parametrize(("seconds", "taken"), [(60, True), (-1, False)])
async def test_what_comes_too_late_is_not_taken(
    tmp_path: Path, *, seconds: float, taken: bool
) -> None:
    said: list[dict[str, Any]] = []
    setup = AgentSetup("a/b", "", "http://127.0.0.1:9/v1", str(tmp_path), 60, "intern-1")
    runner = AgentRunner(setup, lambda kind, **fields: said.append({"type": kind, **fields}))
    runner.start(COMMAND)
    runner.steer(LATE, asyncio.get_running_loop().time() + seconds)
    assert said == [{"type": "steered", "input": LATE.id, "taken": taken}]
    await asyncio.sleep(0)
    await runner.close()


# How the agent's process starts


LOAD = """
import gc, json, sys
from tollhouse.sandbox.agent.main import load_runner
late = "pydantic_ai" not in sys.modules
load_runner()
unused = sorted(name for name in sys.modules if name.startswith("aiohttp."))
print(json.dumps({"late": late, "unused": unused, "collects": gc.isenabled()}))
"""


def test_its_library_is_loaded_without_what_no_run_uses() -> None:
    ran = subprocess.run([sys.executable, "-c", LOAD], check=True, capture_output=True, text=True)
    assert json.loads(ran.stdout) == {"late": True, "unused": [], "collects": True}

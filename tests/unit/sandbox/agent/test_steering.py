"""What is handed into a run that ends before its model hears of it."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from tollhouse.sandbox.agent.conduct import Conduct
from tollhouse.sandbox.agent.orders import Input, Order, Setup
from tollhouse.sandbox.agent.permits import Permits
from tollhouse.sandbox.agent.runs import Runs
from tollhouse.sandbox.agent.tools.servers import Servers
from tollhouse.sandbox.agent.tools.work import Work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

FIRST = Input(1, "Begin.")
LATE = Input(2, "And be quick.")
ORDER = Order(manual=False, messages=(), inputs=(FIRST,), answers=(), verdicts={}, spent={})


class Conducted:
    """A run of a model that breaks off in the middle of its answer."""

    def __init__(self, workspace: Path) -> None:
        self.said: list[dict[str, Any]] = []
        self.amid: Callable[[], object] = int
        """Called while the model speaks."""
        self.after: Callable[[], object] = int
        """Called when the library has left the run."""
        work = Work(
            workspace, dict(os.environ), Permits(manual=False, verdicts={}), Servers(workspace, {})
        )
        self._agent: Any = Agent(FunctionModel(stream_function=self._speak), deps_type=Work)
        this: Any = self
        self.conduct = Conduct(this, ORDER, work, self._say)

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
    conducted = Conducted(tmp_path)
    conducted.amid = lambda: conducted.conduct.steer(LATE)
    await conducted.conduct.conduct()
    assert conducted.said[-1]["outcome"] == "failed"
    assert conducted.entered == [1]


async def test_what_comes_at_the_very_end_is_not_taken(tmp_path: Path) -> None:
    conducted = Conducted(tmp_path)
    taken: list[bool] = []
    conducted.after = lambda: taken.append(conducted.conduct.steer(LATE))
    await conducted.conduct.conduct()
    assert taken == [False]
    assert conducted.said[-1]["error"]["retryable"] is True  # the model's failure, and no bug


@pytest.mark.parametrize(("seconds", "taken"), [(60, True), (-1, False)])
async def test_what_comes_too_late_is_not_taken(
    tmp_path: Path, *, seconds: float, taken: bool
) -> None:
    said: list[dict[str, Any]] = []
    setup = Setup("a/b", "", "http://127.0.0.1:9/v1", str(tmp_path), 60, "intern-1")
    runs = Runs(setup, lambda kind, **fields: said.append({"type": kind, **fields}))
    runs.begin(ORDER)
    runs.steer(LATE, asyncio.get_running_loop().time() + seconds)
    assert said == [{"type": "steered", "input": LATE.number, "taken": taken}]
    await asyncio.sleep(0)
    await runs.close()

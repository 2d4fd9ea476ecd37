"""What is handed into a run that ends before its model hears of it."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from tollhouse.interns.agent.conduct import Conduct
from tollhouse.interns.agent.orders import Input, Order
from tollhouse.interns.agent.permits import Permits
from tollhouse.interns.agent.tools.servers import Servers
from tollhouse.interns.agent.tools.work import Work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

FIRST = Input(1, "Begin.")
LATE = Input(2, "And be quick.")


class Conducted:
    """A run of a model that breaks off in the middle of its answer."""

    def __init__(self, workspace: Path) -> None:
        self.said: list[dict[str, Any]] = []
        self.amid: Callable[[], object] = int
        """Called while the model speaks."""
        self.after: Callable[[], object] = int
        """Called when the library has left the run."""
        order = Order(
            "r", manual=False, messages=(), inputs=(FIRST,), answers=(), verdicts={}, spent={}
        )
        work = Work(
            workspace, dict(os.environ), Permits(manual=False, verdicts={}), Servers(workspace, {})
        )
        self._agent: Any = Agent(FunctionModel(stream_function=self._speak), deps_type=Work)
        this: Any = self
        self.conduct = Conduct(this, order, work, self._say)

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

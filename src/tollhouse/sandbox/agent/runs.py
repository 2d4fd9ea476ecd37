"""One run at a time, as the daemon orders them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openrouter import OpenRouterModel, OpenRouterModelSettings
from pydantic_ai.providers.openrouter import OpenRouterProvider
from pydantic_ai.tools import DeferredToolRequests

from tollhouse.sandbox.agent.conduct import Conduct
from tollhouse.sandbox.agent.instructions import instructions
from tollhouse.sandbox.agent.permits import Permits
from tollhouse.sandbox.agent.secrets import SecretsNote
from tollhouse.sandbox.agent.tools.servers import ServerFailed, Servers
from tollhouse.sandbox.agent.tools.toolset import toolset
from tollhouse.sandbox.agent.tools.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.sandbox.agent.orders import Input, Order, Setup

LONGEST_REQUEST_SECONDS: Final = 1800
"""Of a model that is never silent for long, and never ends."""
_ANY_KEY: Final = "put-in-by-the-proxy"
_RETRIES: Final = 1
"""Of a request that found the gateway away, or busy; a client is told of what is left."""
_CORRECTIONS: Final = 5
"""How often in a row a model may call a tool wrongly."""


class Runs:
    """Starts runs, and reaches the one that runs."""

    def __init__(self, setup: Setup, say: Callable[..., None]) -> None:
        """Take what holds for all of them.

        Args:
            setup: What the daemon told first.
            say: See `Conduct`.
        """
        self._setup = setup
        self._say = say
        self._client = client = AsyncOpenAI(
            base_url=setup.base_url, api_key=_ANY_KEY, max_retries=_RETRIES
        )
        settings = OpenRouterModelSettings(
            timeout=setup.model_seconds, request_timeout=LONGEST_REQUEST_SECONDS
        )
        self._model = OpenRouterModel(
            setup.model, provider=OpenRouterProvider(openai_client=client), settings=settings
        )
        self._environment = dict(os.environ)
        self._workspace = Path(setup.workspace)
        self._servers = Servers(self._workspace, self._environment)
        self._conduct: Conduct | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, order: Order) -> None:
        """Begin a run; the one before has ended."""
        self._conduct = self._prepared(order)
        self._task = asyncio.get_running_loop().create_task(self._conduct.conduct())
        self._task.add_done_callback(_check)

    def steer(self, given: Input, until: float) -> None:
        """Hand something into the run that runs, and say whether that came in time.

        Args:
            given: What was said.
            until: On the machine's monotonic clock: whoever said it is told then that it came to
                nothing.
        """
        in_time = asyncio.get_running_loop().time() < until
        taken = in_time and self._conduct is not None and self._conduct.steer(given)
        self._say("steered", input=given.number, taken=taken)

    def cancel(self) -> None:
        """End the run that runs, with all that it has started."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End everything."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._servers.close()

    def _prepared(self, order: Order) -> Conduct:
        try:
            servers = list(self._servers.configured())
        except ServerFailed:  # whoever asks for one is told why
            servers = ["(.mcp.json cannot be read)"]
        told = instructions(
            self._setup.workspace, self._setup.instructions, manual=order.manual, servers=servers
        )
        agent = Agent(
            self._model,
            output_type=[str, DeferredToolRequests],
            instructions=[told, SecretsNote(self._client, self._setup.intern_id).text],
            deps_type=Work,
            toolsets=[toolset(with_servers=bool(servers))],
            retries={"tools": _CORRECTIONS, "output": _CORRECTIONS},
        )
        permits = Permits(order.manual, order.verdicts)
        work = Work(self._workspace, self._environment, permits, self._servers)
        return Conduct(agent, order, work, self._say)


def _check(task: asyncio.Task[None]) -> None:
    """End the process where a run has not told its end: the daemon has to know of it."""
    if task.cancelled() or task.exception() is not None:
        os._exit(1)

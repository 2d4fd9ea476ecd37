"""Starts the agent's runs, one at a time, and writes the instructions of their models."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import openai
from openai import AsyncOpenAI
from pydantic import BaseModel, ValidationError
from pydantic_ai import Agent
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.models.openrouter import OpenRouterModel, OpenRouterModelSettings
from pydantic_ai.providers.openrouter import OpenRouterProvider
from pydantic_ai.tools import DeferredToolRequests

from tollhouse.sandbox.agent.run import AgentRun
from tollhouse.sandbox.agent.tools.context import ToolContext
from tollhouse.sandbox.agent.tools.mcp_servers import McpServers
from tollhouse.sandbox.agent.tools.toolset import toolset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tollhouse.sandbox.agent.protocol import AgentSetup, RunCommand, UserInput

LONGEST_REQUEST_SECONDS: Final = 1800
"""Bound of a request whose model is never silent for long, and never ends."""
_SECRETS_SECONDS: Final = 10.0
_ANY_KEY: Final = "put-in-by-the-proxy"
_RETRIES: Final = 1
"""Of a request that found the gateway away, or busy; a client is told of what is left."""
_CORRECTIONS: Final = 5
"""How often in a row a model may call a tool wrongly."""
_OURS = """\
You are an intern: an agent with a computer of its own, a sandbox. Work in {workspace}; what is \
there is kept, and nothing else is. You reach the outside through a proxy that your environment \
names; programs that heed it need nothing more. Secrets are put in by that proxy: write \
{{{{secret:name}}}} where a request to one of its hosts needs one, in a header, say. You never see \
its value, and need not. Do the work with your tools rather than describe it, and say at the end \
what you did. Ask the user where you cannot find out what is wanted."""
_MANUAL = """\
The user is asked before you reach out: for http_request, for MCP servers, and for the shell with \
network=true. Without that the shell has no network."""


def instructions(workspace: str, own: str, *, manual: bool, servers: Iterable[str]) -> str:
    """Return the instructions of a run; `own` are those of the intern's owner."""
    parts = [_OURS.format(workspace=workspace)]
    if manual:
        parts.append(_MANUAL)
    if names := ", ".join(servers):
        parts.append(f"There are MCP servers: {names}. Look at their tools first.")
    if own.strip():
        parts.append(own)
    return "\n\n".join(parts)


class _Secret(BaseModel):
    name: str
    hosts: list[str] | None


class _Page(BaseModel):
    data: list[_Secret]
    has_more: bool


class SecretsNote:
    """The part of a run's instructions that names the intern's secrets, asked once in each run."""

    def __init__(self, client: AsyncOpenAI, intern_id: str) -> None:
        self._client = client.with_options(timeout=_SECRETS_SECONDS)
        self._path = f"/vault/interns/{intern_id}/effective-secrets"
        self._text: str | None = None

    async def text(self) -> str:
        """Return it; empty if the gateway does not answer."""
        if self._text is None:
            self._text = await self._fetch()
        return self._text

    async def _fetch(self) -> str:
        try:
            answer = await self._client.get(self._path, cast_to=str)
            page = _Page.model_validate_json(answer)
        except (openai.OpenAIError, ValidationError):
            return ""  # a model that is not told of secrets can still do its work
        lines = [
            f"- {{{{secret:{secret.name}}}}} for "
            f"{'any host' if secret.hosts is None else ', '.join(secret.hosts)}"
            for secret in page.data
        ]
        if not lines:
            return "You have no secrets at present."
        if page.has_more:
            lines.append("- and others")
        return "\n".join(("Your secrets, and the hosts that receive them:", *lines))


class AgentRunner:
    """Starts runs, and reaches the one that works; `say` sends the daemon a message."""

    def __init__(self, setup: AgentSetup, say: Callable[..., None]) -> None:
        self._setup = setup
        self._say = say
        self._client = AsyncOpenAI(base_url=setup.base_url, api_key=_ANY_KEY, max_retries=_RETRIES)
        self._model = OpenRouterModel(
            setup.model,
            provider=OpenRouterProvider(openai_client=self._client),
            settings=OpenRouterModelSettings(
                timeout=setup.model_seconds, request_timeout=LONGEST_REQUEST_SECONDS
            ),
        )
        self._environment = dict(os.environ)
        self._workspace = Path(setup.workspace)
        self._servers = McpServers(self._workspace, self._environment)
        self._run: AgentRun | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, command: RunCommand) -> None:
        """Start a run; the one before has ended."""
        try:
            servers = list(self._servers.configured())
        except ToolFailed:  # whoever asks for one is told why
            servers = ["(.mcp.json cannot be read)"]
        told = instructions(
            self._setup.workspace, self._setup.instructions, manual=command.manual, servers=servers
        )
        agent = Agent(
            self._model,
            output_type=[str, DeferredToolRequests],
            instructions=[told, SecretsNote(self._client, self._setup.intern_id).text],
            deps_type=ToolContext,
            toolsets=[toolset(with_servers=bool(servers))],
            retries={"tools": _CORRECTIONS, "output": _CORRECTIONS},
        )
        context = ToolContext(
            self._workspace, self._environment, command.manual, command.verdicts, self._servers
        )
        self._run = AgentRun(agent, command, context, self._say)
        self._task = asyncio.create_task(self._run.execute())
        self._task.add_done_callback(_exit_on_crash)

    def steer(self, given: UserInput, until: float) -> None:
        """Hand an input to the run that works, and say whether that came in time.

        From `until` on, by the machine's monotonic clock, the user is told that it failed.
        """
        in_time = asyncio.get_running_loop().time() < until
        taken = in_time and self._run is not None and self._run.steer(given)
        self._say("steered", input=given.id, taken=taken)

    def cancel(self) -> None:
        """End the run that works, with all that it has started."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End everything."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._servers.close()


def _exit_on_crash(task: asyncio.Task[None]) -> None:
    """End the process if a run has ended without telling the daemon, which has to know."""
    if task.cancelled() or task.exception() is not None:
        os._exit(1)

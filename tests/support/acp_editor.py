"""An editor: a client of the Agent Client Protocol, made with its own library."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from acp import PROTOCOL_VERSION, connect_to_agent, spawn_agent_process, text_block
from acp.schema import (
    AcceptElicitationResponse,
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    ClientCapabilities,
    DeclineElicitationResponse,
    DeniedOutcome,
    RequestPermissionResponse,
    ToolCallProgress,
    ToolCallStart,
)

from tests.support.fake_chat_gateway import KEY, FakeChatGateway
from tests.support.forked import forking_program
from tests.support.server_process import clean_environment
from tests.support.waiting import until, wait_for_event
from tollhouse.cli.client import connect
from tollhouse.cli.interns.acp import serve_client
from tollhouse.cli.target import RemoteServer
from tollhouse.kernel.secret import Secret

SECONDS = 30


class Editor:
    """A client that records the session's updates and answers permissions as scripted."""

    def __init__(self) -> None:
        self.agent: Any = None
        self.process: Any = None
        self.initialized: Any = None
        self.session_id = ""
        self.modes: Any = None
        self.decides: list[str | None] = []
        """Options to choose; None to cancel."""
        self.fills_in: list[dict[str, Any] | None] = []
        """Contents of forms; None to decline."""
        self.asked = list[Any]()
        self.forms = list[Any]()
        self.updates = list[Any]()
        self.pending = asyncio.Event()
        """Set while a question waits for an answer."""
        self.undecided = False

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        assert session_id == self.session_id
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> RequestPermissionResponse:
        assert session_id == self.session_id
        self.asked.append((tool_call, options))
        if self.undecided:
            self.pending.set()
            await asyncio.Event().wait()
        option = self.decides.pop(0)
        if option is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = AllowedOutcome(outcome="selected", option_id=option)
        return RequestPermissionResponse(outcome=chosen)

    async def create_elicitation(
        self, message: str, mode: Any, **_: Any
    ) -> AcceptElicitationResponse | DeclineElicitationResponse:
        self.forms.append((message, mode.requested_schema))
        content = self.fills_in.pop(0)
        if content is None:
            return DeclineElicitationResponse(action="decline")
        return AcceptElicitationResponse(action="accept", content=content)

    async def introduce(self, capabilities: ClientCapabilities) -> None:
        self.initialized = await self.agent.initialize(
            protocol_version=PROTOCOL_VERSION, client_capabilities=capabilities
        )

    async def new_session(self) -> None:
        """Start a session."""
        made = await self.agent.new_session(cwd="/nowhere", mcp_servers=[])
        self.session_id, self.modes = made.session_id, made.modes

    async def prompt(self, *blocks: Any) -> Any:
        """Send a prompt of texts or content blocks."""
        prompt = [text_block(each) if isinstance(each, str) else each for each in blocks]
        asked = self.agent.prompt(session_id=self.session_id, prompt=prompt)
        return await asyncio.wait_for(asked, SECONDS)

    async def wait_for_text(self) -> str:
        """Wait until the agent says a text; return all that it has said."""
        return await until(lambda: self.text)

    async def wait_for_question(self) -> None:
        """Wait until a question is shown that the script does not answer."""
        await wait_for_event(self.pending)

    @property
    def text(self) -> str:
        return self._of(AgentMessageChunk)

    @property
    def thoughts(self) -> str:
        return self._of(AgentThoughtChunk)

    @property
    def calls(self) -> list[tuple[str, str | None]]:
        """Each tool call's states, in order."""
        shown = [e for e in self.updates if isinstance(e, ToolCallStart | ToolCallProgress)]
        return [(each.tool_call_id, each.status) for each in shown]

    def _of(self, kind: type) -> str:
        return "".join(each.content.text for each in self.updates if isinstance(each, kind))


@asynccontextmanager
async def editor_over_command(environment: dict[str, str], *args: str) -> AsyncIterator[Editor]:
    """Run the command, and yield an editor that is connected to it."""
    editor = Editor()
    started = spawn_agent_process(
        editor,  # type: ignore[arg-type]
        str(forking_program()),
        *("intern", "acp", "ada", *args),
        env=clean_environment(environment),
        use_unstable_protocol=True,
    )
    async with started as (agent, process):
        editor.agent, editor.process = agent, process
        await editor.introduce(ClientCapabilities())
        yield editor


@asynccontextmanager
async def editor_in_process(
    gateway: FakeChatGateway, capabilities: ClientCapabilities | None = None
) -> AsyncIterator[Editor]:
    """An editor and the agent in this process: to start a program takes a second."""
    editor = Editor()
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    from_editor, to_editor = await asyncio.open_connection(sock=theirs)
    async with connect(RemoteServer(gateway.url, Secret(KEY))) as server:
        serving = asyncio.ensure_future(
            serve_client(server, "ada", from_editor, to_editor, manual=False)
        )
        editor.agent = connect_to_agent(
            editor,  # type: ignore[arg-type]
            writer,
            reader,
            use_unstable_protocol=True,
        )
        await editor.introduce(capabilities or ClientCapabilities())
        try:
            yield editor
        finally:
            writer.close()
            await asyncio.wait_for(serving, SECONDS)
            to_editor.close()
            await editor.agent.close()

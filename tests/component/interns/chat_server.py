"""A chat server on a port, in this process, with an intern whose daemon is a fake."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2
from fastapi import FastAPI

from tests.component.interns.fake_daemon import FakeDaemon
from tests.component.interns.machine import Machine
from tests.support.chat_grammar import ParsedChat, check_recorded, check_stream
from tests.support.chat_tee import ChatTee
from tests.support.seams.api import RequestGate, Routes, control_app, make_server
from tests.support.seams.identity import Authenticator
from tollhouse.interns import endpoints
from tollhouse.interns.chat.invocations import Invocations
from tollhouse.interns.chat.service import ChatRateLimiter, ChatService
from tollhouse.interns.chat.transcript import ChatTimeouts
from tollhouse.interns.types import Intern
from tollhouse.observability.metrics import Metrics
from tollhouse.settings.sections import ServerSettings

PROMPT = {"stream": True, "messages": [{"role": "user", "content": "Hello"}]}
CHATS_PER_MINUTE = 50
"""Chats that an account may begin in a minute."""

INVOKE_SECONDS = 3_600.0


class LateBound:
    """Forwards to an object that each test sets."""

    def __init__(self) -> None:
        self.target: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


@cache
def control_plane() -> tuple[FastAPI, list[LateBound]]:
    """Return one control plane for all tests: its routes take longer to build than a test."""
    anything: Any = [LateBound() for _ in range(5)]
    return control_app(endpoints.router(*anything)), anything


@dataclass
class ChatServer:
    """A running server, and a client of one intern."""

    machine: Machine
    intern: Intern
    metrics: Metrics
    invocations: Invocations
    origin: str
    http: httpx2.AsyncClient

    @property
    def daemon(self) -> FakeDaemon:
        return self.machine.runtime.daemon

    @property
    def path(self) -> str:
        return f"/v1/interns/{self.intern.id}/chat/completions"

    async def send(self, body: Any = None, **more: Any) -> httpx2.Response:
        return await self.http.post(self.path, json={**PROMPT, **(body or {}), **more})

    async def stream(self, body: Any = None, **more: Any) -> ParsedChat:
        """Send a prompt, check the stream and return its content."""
        reply = await self.send(body, **more)
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"].startswith("text/event-stream")
        return check_stream(reply.content)

    async def answer_question(self, session: str, interaction: str, content: str) -> ParsedChat:
        return await self.stream(answer(session, interaction, content))

    async def open(self, body: Any = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.origin.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(self.request(body))
        await writer.drain()
        return reader, writer

    def request(self, body: Any = None) -> bytes:
        sent = json.dumps({**PROMPT, **(body or {})}).encode()
        lines = (
            f"POST {self.path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: {self.http.headers['authorization']}",
            f"Content-Length: {len(sent)}",
        )
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode() + sent

    def chat_count(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        found = self.metrics.registry.get_sample_value("tollhouse_intern_chats_total", labels)
        return found or 0.0

    def open_streams(self) -> float:
        found = self.metrics.registry.get_sample_value("tollhouse_intern_chat_streams")
        assert found is not None
        return found


def answer(session: str, interaction: str, content: str) -> dict[str, Any]:
    """Return the body that answers a question, as clients send it."""
    function = {"name": "openrouter.provide_input", "arguments": "{}"}
    call = {"id": interaction, "type": "function", "function": function}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": interaction, "content": content},
    ]
    return {"session_id": session, "messages": messages}


@asynccontextmanager
async def serve_chat(
    machine: Machine, paces: ChatTimeouts, chats: int = CHATS_PER_MINUTE
) -> AsyncIterator[ChatServer]:
    """Serve the interns of a machine, run one, and check every chat stream at the end."""
    interns = machine.interns
    metrics, server_settings = Metrics(), ServerSettings()
    chat = ChatService(
        interns.context,
        machine.service,
        machine.sandboxes,
        ChatRateLimiter(chats),
        metrics,
        paces,
    )
    invocations = Invocations(chat, interns.context.vaults, seconds=INVOKE_SECONDS)
    control, bound = control_plane()
    targets = (machine.service, chat, invocations, None, interns.database)
    for each, target in zip(bound, targets, strict=True):
        each.target = target
    system: Any = None  # nothing is asked for outside of the API
    front = RequestGate(
        Routes({}, control, system),
        Authenticator(interns.database, interns.clock),
        server_settings,
        interns.clock,
        metrics,
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # The system holds little of what a caller does not read: it is soon known not to.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        tee = ChatTee(front)
        server = make_server(tee, limit_per_address=1_000, shutdown_seconds=1)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await server.listening.wait()
            host, port = listener.getsockname()
            origin = f"http://{host}:{port}"
            key = {"Authorization": f"Bearer {interns.vault.tenant.key_text}"}
            async with httpx2.AsyncClient(base_url=origin, headers=key, timeout=30) as http:
                intern = await machine.running_intern()
                yield ChatServer(machine, intern, metrics, invocations, origin, http)
        finally:
            await invocations.stop()
            server.stop()
            await serving
    for passed in tee.streams:
        check_recorded(passed)

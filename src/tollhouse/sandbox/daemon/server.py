"""uvicorn on the descriptor that was handed in, until standard input ends or a signal comes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvicorn

from tollhouse.sandbox.daemon.app import App
from tollhouse.sandbox.daemon.clock import Clock
from tollhouse.sandbox.daemon.environment import program_environment
from tollhouse.sandbox.daemon.files.endpoints import Files
from tollhouse.sandbox.daemon.forwarder import MOST_CONNECTIONS, forwarding
from tollhouse.sandbox.daemon.processes import Children
from tollhouse.sandbox.daemon.sessions.agent import Agents
from tollhouse.sandbox.daemon.sessions.endpoints import Conversations
from tollhouse.sandbox.daemon.sessions.feed import Feed
from tollhouse.sandbox.daemon.sessions.log import Log
from tollhouse.sandbox.daemon.sessions.runs import Runs, Terms
from tollhouse.sandbox.daemon.settings import INTERACTION_SECONDS
from tollhouse.sandbox.daemon.terminal.endpoint import LARGEST_MESSAGE
from tollhouse.sandbox.daemon.terminal.sessions import Sessions
from tollhouse.sandbox.daemon.tokens import Guard

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tollhouse.sandbox.daemon.settings import Settings

GRACE_SECONDS: Final = 2.0
"""What runs has so long to end by itself."""
PING_SECONDS: Final = 30.0
"""Between two pings of a WebSocket."""
PONG_SECONDS: Final = 60.0
"""For the answer to one, which may have to wait behind output on a slow line."""
_THREADS: Final = 4
_KEEP_ALIVE_SECONDS: Final = 75
_DRAIN_SECONDS: Final = 1


async def serve(settings: Settings, stdin: int) -> None:
    """Serve until standard input ends, or SIGTERM or SIGINT comes; then end all that runs.

    The process stands in the workspace then, which is where programs start.

    Args:
        settings: What the daemon was told.
        stdin: Descriptor; its end is the daemon's.

    Raises:
        OSError: A setting does not fit the machine: no such folder, no socket, a port is taken.
    """
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS))
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_reader(stdin, _watch, stdin, ended)

    os.umask(0o022)
    os.chdir(settings.workspace)
    listener = socket.socket(fileno=settings.listener)
    listener.set_inheritable(False)
    workspace = Files(settings.workspace, settings.largest_file_bytes)
    children = Children()
    children.begin()
    environment = program_environment(settings)
    terminals = Sessions(children, environment)
    log = Log(Path(settings.workspace, ".intern"), Clock())
    talk = _conversations(settings, children, environment, log)
    app = Guard(App(settings, terminals, workspace, talk), settings.token_sha256)
    server = _Server(_config(app), ended, terminals, talk)
    try:
        async with AsyncExitStack() as stack:
            if settings.egress_socket is not None:
                forwarder = forwarding(
                    settings.egress_socket, settings.egress_port, most=MOST_CONNECTIONS
                )
                await stack.enter_async_context(forwarder)
            await server.serve([listener])
    finally:
        await children.end_all(GRACE_SECONDS)
        log.close()


class _Server(uvicorn.Server):
    """Ends with an event. What it inherits would wake up ten times a second to ask for the end."""

    def __init__(
        self, config: uvicorn.Config, ended: asyncio.Event, terminals: Sessions, talk: Conversations
    ) -> None:
        super().__init__(config)
        self._ended = ended
        self._terminals = terminals
        self._conversations = talk

    async def main_loop(self) -> None:
        await self._ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._conversations.close()
        await self._terminals.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _config(app: Guard) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",  # uvloop is faster, and 2 MB larger
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=LARGEST_MESSAGE,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PONG_SECONDS,
        ws_per_message_deflate=False,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        workers=1,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )


def _conversations(
    settings: Settings, children: Children, environment: Mapping[str, str], log: Log
) -> Conversations:
    feed, agent = Feed(), settings.agent
    agents = None
    if agent is not None:
        setup = {
            "model": agent.model,
            "instructions": agent.instructions,
            "base_url": agent.base_url,
            "workspace": settings.workspace,
            "model_seconds": agent.model_seconds,
            "intern_id": settings.intern_id,
        }
        agents = Agents(children, environment, setup, agent.idle_seconds)
    terms = Terms(
        model="" if agent is None else agent.model,
        interaction_seconds=INTERACTION_SECONDS if agent is None else agent.interaction_seconds,
    )
    runs = Runs(log, feed, agents, Clock(), terms)
    runs.restore()
    return Conversations(log, feed, runs)


def _watch(stdin: int, ended: asyncio.Event) -> None:
    try:
        data = os.read(stdin, 4096)
    except OSError:
        data = b""
    if not data:
        asyncio.get_running_loop().remove_reader(stdin)
        ended.set()

"""Serves the daemon's API on a descriptor, until standard input ends or a signal comes.

Each request needs the token: RFC 6750, sections 2.1 and 3.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from tollhouse.sandbox.daemon.files import METHODS, FileEndpoints
from tollhouse.sandbox.daemon.forwarder import MOST_CONNECTIONS, forwarding
from tollhouse.sandbox.daemon.http import RequestError, disk_is_full, error_from_os, error_response
from tollhouse.sandbox.daemon.processes import ChildProcesses
from tollhouse.sandbox.daemon.sessions.agent import AgentProcess, AgentSupervisor
from tollhouse.sandbox.daemon.sessions.endpoints import SessionEndpoints
from tollhouse.sandbox.daemon.sessions.log import SessionLog
from tollhouse.sandbox.daemon.sessions.runs import RunScheduler
from tollhouse.sandbox.daemon.settings import INTERACTION_SECONDS, DaemonSettings
from tollhouse.sandbox.daemon.terminals import LARGEST_MESSAGE, Terminals, serve_terminal

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

VERSION: Final = 1
"""Of the protocol; see `docs/reference/daemon-api.md`."""
GRACE_SECONDS: Final = 2.0
"""Between asking programs to end and killing them."""
PING_SECONDS: Final = 30.0
"""Between two pings of a WebSocket."""
PONG_SECONDS: Final = 60.0
"""For the answer to a ping, which may have to wait behind output on a slow line."""
_READ: Final = ("GET", "HEAD")
_THREADS: Final = 4
_KEEP_ALIVE_SECONDS: Final = 75
_DRAIN_SECONDS: Final = 1
_SHELLS: Final = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
# Of the daemon's own environment: languages and places only.
_PASSED_ON: Final = frozenset(("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"))
_log = logging.getLogger(__name__)


async def serve(settings: DaemonSettings, stdin: int) -> None:
    """Serve until standard input ends, or SIGTERM or SIGINT comes; then end all that runs.

    The process stands in the workspace then, which is where programs start. It is an `OSError` that
    a setting does not fit the machine: no such folder, no socket, a port is taken.
    """
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS))
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_reader(stdin, _watch_stdin, stdin, ended)

    os.umask(0o022)
    os.chdir(settings.workspace)
    listener = socket.socket(fileno=settings.listener)
    listener.set_inheritable(False)
    files = FileEndpoints(settings.workspace, settings.largest_file_bytes)
    children = ChildProcesses()
    environment = program_environment(settings)
    terminals = Terminals(children, environment)
    log = SessionLog(Path(settings.workspace, ".intern"))
    sessions = _session_endpoints(settings, children, environment, log)
    app = DaemonApp(settings, terminals, files, sessions)
    server = _Server(app, ended)
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


def program_environment(settings: DaemonSettings) -> dict[str, str]:
    """Return all variables of a program; its home is the workspace if the daemon has none."""
    names = [name for name in os.environ if name in _PASSED_ON or name.startswith("LC_")]
    return {
        "HOME": settings.workspace,
        **{name: os.environ[name] for name in names},
        "TOLLHOUSE_INTERN_ID": settings.intern_id,
        "TOLLHOUSE_INTERN_NAME": settings.intern_name,
        **settings.environment,
        "SHELL": next((path for path in _SHELLS if os.access(path, os.X_OK)), _SHELLS[-1]),
    }


class _Server(uvicorn.Server):
    """Ends with an event; the original wakes up ten times a second to check for the end."""

    def __init__(self, app: DaemonApp, ended: asyncio.Event) -> None:
        config = uvicorn.Config(
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
        super().__init__(config)
        self._app = app
        self._ended = ended

    async def main_loop(self) -> None:
        await self._ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _session_endpoints(
    settings: DaemonSettings,
    children: ChildProcesses,
    environment: Mapping[str, str],
    log: SessionLog,
) -> SessionEndpoints:
    agent = settings.agent
    if agent is None:
        runs = RunScheduler(log, None, "", INTERACTION_SECONDS)
    else:
        setup = {
            "model": agent.model,
            "instructions": agent.instructions,
            "base_url": agent.base_url,
            "workspace": settings.workspace,
            "model_seconds": agent.model_seconds,
            "intern_id": settings.intern_id,
        }
        start = partial(AgentProcess, children, environment, setup)
        agents = AgentSupervisor(start, agent.idle_seconds)
        runs = RunScheduler(log, agents, agent.model, agent.interaction_seconds)
    runs.restore()
    return SessionEndpoints(log, runs)


def _watch_stdin(stdin: int, ended: asyncio.Event) -> None:
    with suppress(OSError):
        if os.read(stdin, 4096):
            return
    asyncio.get_running_loop().remove_reader(stdin)
    ended.set()


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the token of a request; None if it has none, or more than one."""
    found = [value for name, value in headers if name.lower() == b"authorization"]
    if len(found) != 1:
        return None
    scheme, _, token = found[0].partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def token_matches(token: bytes, token_sha256: str) -> bool:
    """Tell whether a token has this digest, in constant time."""
    return hmac.compare_digest(hashlib.sha256(token).hexdigest(), token_sha256)


def _require_token(headers: Iterable[tuple[bytes, bytes]], token_sha256: str) -> None:
    token = bearer_token(headers)
    if token is None:
        raise RequestError(401, "A bearer token is needed.", {"WWW-Authenticate": "Bearer"})
    if not token_matches(token, token_sha256):
        scheme = 'Bearer error="invalid_token"'
        raise RequestError(401, "The token is wrong.", {"WWW-Authenticate": scheme})


@dataclass(frozen=True, slots=True)
class DaemonApp:
    """The daemon's API: checks the token of each request and WebSocket, and routes it."""

    settings: DaemonSettings
    terminals: Terminals
    files: FileEndpoints
    sessions: SessionEndpoints

    async def close(self) -> None:
        """Disconnect all clients, and end the run that works."""
        await self.sessions.close()
        await self.terminals.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket."""
        try:
            _require_token(scope["headers"], self.settings.token_sha256)
            if scope["type"] == "websocket":
                await _serve_socket(WebSocket(scope, receive, send), self.terminals)
                return
            response = await self._serve(Request(scope, receive))
        except (ClientDisconnect, WebSocketDisconnect):
            return  # nobody is there to be told
        except RequestError as refused:
            response = error_response(refused)
        except OSError as error:
            response = error_response(error_from_os(error))
        except Exception:  # noqa: BLE001 - the edge: nothing may end the daemon
            _log.exception("a request failed")
            response = error_response(RequestError(500, "The daemon has a bug."))
        await response(scope, receive, send)

    async def _serve(self, request: Request) -> ASGIApp:
        raw: bytes = request.scope["raw_path"]
        path: str = request.scope["path"]
        if (below := _below(raw, b"/files")) is not None:
            _require_method(request, *METHODS)
            return await self.files.serve(request, below)
        if (below := _below(raw, b"/sessions")) is not None:
            return await self.sessions.serve(request, below)
        if path == "/healthz":
            _require_method(request, *_READ)
            settings = self.settings
            health = {
                "status": "ok",
                "version": VERSION,
                "intern": {"id": settings.intern_id, "name": settings.intern_name},
                "disk_full": disk_is_full(),
                "limits_enforced": list(settings.limits_enforced),
            }
            return JSONResponse(health)
        if path == "/terminals":
            _require_method(request, *_READ)
            return JSONResponse({"data": self.terminals.listed()})
        if path.startswith("/terminals/"):
            _require_method(request, "DELETE")
            self.terminals.remove(path.removeprefix("/terminals/"))
            return Response(status_code=204)
        if path == "/terminal":
            raise RequestError(426, "This is a WebSocket.", {"Upgrade": "websocket"})
        raise RequestError(404, "There is nothing here.")


async def _serve_socket(socket: WebSocket, terminals: Terminals) -> None:
    if socket.scope["path"] != "/terminal":
        raise RequestError(404, "There is no WebSocket here.")
    try:
        await serve_terminal(socket, terminals)
    except WebSocketDisconnect:
        raise
    except Exception:
        if socket.application_state is not WebSocketState.CONNECTED:
            raise
        _log.exception("a terminal failed")
        await socket.close(1011, "the daemon has a bug")


def _below(path: bytes, prefix: bytes) -> bytes | None:
    """Return what follows a prefix of a path; None if the path is elsewhere."""
    rest = path.removeprefix(prefix)
    return rest if path.startswith(prefix) and (not rest or rest.startswith(b"/")) else None


def _require_method(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise RequestError(405, "The method is not known here.", {"Allow": ", ".join(methods)})

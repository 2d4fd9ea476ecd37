"""Which request goes where. Tokens were checked before."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from tollhouse.sandbox.daemon.disk import is_full
from tollhouse.sandbox.daemon.errors import Refused, refusal_of, rendered
from tollhouse.sandbox.daemon.files import endpoints as files
from tollhouse.sandbox.daemon.sessions import endpoints as conversations
from tollhouse.sandbox.daemon.terminal.endpoint import (
    remove_terminal,
    serve_list,
    serve_terminal,
)

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from tollhouse.sandbox.daemon.files.endpoints import Files
    from tollhouse.sandbox.daemon.sessions.endpoints import Conversations
    from tollhouse.sandbox.daemon.settings import Settings
    from tollhouse.sandbox.daemon.terminal.sessions import Sessions

VERSION: Final = 1
"""Of the protocol; see `docs/reference/daemon-api.md`."""
_READ: Final = ("GET", "HEAD")
_log = logging.getLogger(__name__)


class App:
    """The daemon's API."""

    def __init__(
        self, settings: Settings, terminals: Sessions, workspace: Files, talk: Conversations
    ) -> None:
        """Take what it serves."""
        self._settings = settings
        self._terminals = terminals
        self._files = workspace
        self._conversations = talk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket."""
        try:
            if scope["type"] == "websocket":
                await _serve_socket(WebSocket(scope, receive, send), self._terminals)
                return
            response = await self._serve(Request(scope, receive))
        except (ClientDisconnect, WebSocketDisconnect):
            return  # nobody is there to be told
        except Refused as refused:
            response = rendered(refused)
        except OSError as error:
            response = rendered(refusal_of(error))
        except Exception:  # noqa: BLE001 - the edge: nothing may end the daemon
            _log.exception("a request failed")
            response = rendered(Refused(500, "The daemon has a bug."))
        await response(scope, receive, send)

    async def _serve(self, request: Request) -> Response:
        raw: bytes = request.scope["raw_path"]
        path: str = request.scope["path"]
        if raw == files.PREFIX or raw.startswith(files.PREFIX + b"/"):
            _check(request, *files.METHODS)
            return await self._files.serve(request)
        prefix = conversations.PREFIX
        if raw == prefix or raw.startswith(prefix + b"/"):
            return await self._conversations.serve(request)
        if path == "/healthz":
            _check(request, *_READ)
            return self._health()
        if path == "/terminals":
            _check(request, *_READ)
            return serve_list(self._terminals)
        if path.startswith("/terminals/"):
            _check(request, "DELETE")
            return remove_terminal(self._terminals, path.removeprefix("/terminals/"))
        if path == "/terminal":
            raise Refused(426, "This is a WebSocket.", {"Upgrade": "websocket"})
        raise Refused(404, "There is nothing here.")

    def _health(self) -> Response:
        settings = self._settings
        intern = {"id": settings.intern_id, "name": settings.intern_name}
        told = {
            "status": "ok",
            "version": VERSION,
            "intern": intern,
            "disk_full": is_full(),
            "limits_enforced": list(settings.limits_enforced),
        }
        return JSONResponse(told)


async def _serve_socket(socket: WebSocket, sessions: Sessions) -> None:
    if socket.scope["path"] != "/terminal":
        raise Refused(404, "There is no WebSocket here.")
    try:
        await serve_terminal(socket, sessions)
    except WebSocketDisconnect:
        raise
    except Exception:
        if socket.application_state is not WebSocketState.CONNECTED:
            raise
        _log.exception("a terminal failed")
        await socket.close(1011, "the daemon has a bug")


def _check(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise Refused(405, "The method is not known here.", {"Allow": ", ".join(methods)})

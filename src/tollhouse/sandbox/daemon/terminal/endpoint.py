"""`/terminal`: a client's connection to a terminal, and `/terminals`: what there are."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, Response

from tollhouse.sandbox.daemon.errors import Refused
from tollhouse.sandbox.daemon.terminal.messages import (
    BadMessage,
    HangUp,
    Size,
    read_control,
    read_query,
    valid_session,
)
from tollhouse.sandbox.daemon.terminal.session import MOST_INPUT, Farewell

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from tollhouse.sandbox.daemon.terminal.session import Session, View
    from tollhouse.sandbox.daemon.terminal.sessions import Sessions

LARGEST_MESSAGE: Final = 256 * 1024
"""Bytes that a client may send as one message."""
BAD_MESSAGE: Final = 4400
"""Code of a connection whose client said what cannot be understood."""
ACKNOWLEDGED: Final = 32 * 1024
"""Bytes of input that a program takes between two acknowledgements."""
_CLOSE_SECONDS: Final = 5.0
_TOO_MUCH: Final = Farewell(4413, f"more than {MOST_INPUT} bytes of input wait for the program")
_EXITED: Final = Farewell(1000, "the program ended")
_GONE: Final = Farewell(1000, "")


async def serve_terminal(socket: WebSocket, sessions: Sessions) -> None:
    """Serve a client until it leaves, has to leave, or the program ends.

    Raises:
        Refused: It gets no terminal; nothing was accepted.
        OSError: The same, in the system's words.
    """
    wanted = read_query(socket.query_params)
    session, is_new = sessions.find(wanted)
    await socket.accept()
    with sessions.attached(session, wanted.position) as view:
        attached = {
            "type": "attached",
            "session": session.name,
            "created": is_new,
            "position": view.position,
            "input": session.received,
        }
        await socket.send_text(json.dumps(attached))
        farewell = await _converse(socket, session, view)
        if farewell is not _GONE:
            # A client that reads nothing cannot be told. Pings find out that it is gone.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await socket.close(farewell.code, farewell.reason)


def serve_list(sessions: Sessions) -> Response:
    """Return all terminals."""
    return JSONResponse({"data": sessions.listed()})


def remove_terminal(sessions: Sessions, name: str) -> Response:
    """Hang a terminal up.

    Raises:
        Refused: There is none.
    """
    if not valid_session(name):
        raise Refused(404, "There is no terminal of this name.")
    sessions.remove(name)
    return Response(status_code=204)


async def _converse(socket: WebSocket, session: Session, view: View) -> Farewell:
    tasks = [
        asyncio.ensure_future(_send_output(socket, session, view)),
        asyncio.ensure_future(_take_input(socket, session, view)),
    ]
    try:
        done, _ = await asyncio.wait([*tasks, view.farewell], return_when=asyncio.FIRST_COMPLETED)
        # Where several are done at once, what the daemon decided counts.
        return next(task for task in (view.farewell, *tasks) if task in done).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_output(socket: WebSocket, session: Session, view: View) -> Farewell:
    while True:
        if session.taken - view.acknowledged >= ACKNOWLEDGED:
            view.acknowledged = session.taken
            await socket.send_text(json.dumps({"type": "input", "position": session.taken}))
        if data := session.printed(view):
            await socket.send_bytes(data)
        elif session.exit_code is not None:
            break
        else:
            await session.news()
    await socket.send_text(json.dumps({"type": "exit", "code": session.exit_code}))
    session.told = True
    return _EXITED


async def _take_input(socket: WebSocket, session: Session, view: View) -> Farewell:
    while (message := await socket.receive())["type"] == "websocket.receive":
        if session.view is not view:
            # The one that came in its place was told what had come by then: it sends the rest anew.
            break
        if (data := message.get("bytes")) is not None:
            if not session.type(data):
                return _TOO_MUCH
            continue
        try:
            control = read_control(message.get("text") or "")
        except BadMessage as error:
            return Farewell(BAD_MESSAGE, str(error))
        if isinstance(control, Size):
            session.resize(control)
        elif isinstance(control, HangUp):
            session.hang_up()
        elif session.tty:
            return Farewell(BAD_MESSAGE, "a terminal's input has no end: type Ctrl-D")
        else:
            session.end_input()
    return _GONE

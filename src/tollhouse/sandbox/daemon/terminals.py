"""All terminals, by name, and `/terminal`: a client's connection to one."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard, cast

from tollhouse.sandbox.daemon.http import RequestError, read_flag
from tollhouse.sandbox.daemon.terminal import (
    MOST_INPUT,
    Attachment,
    CloseReason,
    Terminal,
    TerminalSize,
    start_shell,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from starlette.websockets import WebSocket

    from tollhouse.sandbox.daemon.processes import ChildProcesses

LARGEST_MESSAGE: Final = 256 * 1024
"""Bytes that a client may send as one message."""
BAD_MESSAGE: Final = 4400
"""Code of a connection whose client said what cannot be understood."""
ACKNOWLEDGED: Final = 32 * 1024
"""Bytes of input that a program takes between two acknowledgements."""
_CLOSE_SECONDS: Final = 5.0
_TOO_MUCH: Final = CloseReason(4413, f"more than {MOST_INPUT} bytes of input wait for the program")
_EXITED: Final = CloseReason(1000, "the program ended")
_DISCONNECTED: Final = CloseReason(1000, "")
MOST_TERMINALS: Final = 16
"""Terminals that run at a time."""
IDLE_SECONDS: Final = 24 * 3600.0
"""Without a client, before a terminal is hung up."""
KEPT_SECONDS: Final = 600.0
"""An ended terminal's output and exit code, for whoever was away."""
_LOOKS: Final = 100
_LOOK_SECONDS: Final = 0.01
TAKEN_OVER: Final = 4409
"""Code of a connection in whose place another one has come."""
_REPLACED: Final = CloseReason(TAKEN_OVER, "another client attached to the terminal")
_DAEMON_ENDS: Final = CloseReason(1001, "the intern ends")
_REMOVED: Final = CloseReason(1001, "the terminal was removed")
LONGEST_TEXT: Final = 4096
"""Characters of a control message."""
LARGEST_SIDE: Final = 4096
"""Rows or columns."""
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TERM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}")
_POSITION: Final = re.compile(r"[0-9]{1,18}")


class InvalidMessage(Exception):
    """A client sent what cannot be understood. The text is for the client."""


@dataclass(frozen=True, slots=True)
class TerminalRequest:
    """The terminal that a client requests."""

    session: str
    size: TerminalSize | None
    """None if the client does not say."""
    term: str
    tty: bool
    """Whether it has a terminal; otherwise two pipes, for a script."""
    create: bool
    """Whether it is started if there is none."""
    position: int
    """Where the output begins; see `Scrollback`."""


def read_query(query: Mapping[str, str]) -> TerminalRequest:
    """Read the query of `/terminal`."""
    session = query.get("session", "main")
    if not _SESSION.fullmatch(session):
        raise RequestError(400, "session has to be 1 to 64 letters, digits, '.', '_' and '-'.")
    term = query.get("term", "xterm-256color")
    if not _TERM.fullmatch(term):
        raise RequestError(400, "term has to be the name of a kind of terminal.")
    position = query.get("from", "0")
    if not _POSITION.fullmatch(position):
        raise RequestError(400, "from has to be a number of bytes.")
    return TerminalRequest(
        session,
        _size(query),
        term,
        tty=read_flag(query.get("tty"), "tty", default=True),
        create=read_flag(query.get("create"), "create", default=True),
        position=int(position),
    )


def read_control(text: str) -> TerminalSize | Literal["eof", "hangup"]:
    """Read a control message: a new size, the end of the input, or the wish to end the terminal."""
    if len(text) > LONGEST_TEXT:
        raise InvalidMessage("a control message is too long")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidMessage("a control message is no JSON") from None
    if not isinstance(message, dict):
        raise InvalidMessage("a control message is no JSON object")
    fields = cast("dict[str, Any]", message)
    match fields.get("type"):
        case "resize":
            rows, columns = fields.get("rows"), fields.get("cols")
            if not _is_side(rows) or not _is_side(columns):
                raise InvalidMessage(f"rows and cols have to be numbers from 1 to {LARGEST_SIDE}")
            return TerminalSize(rows, columns)
        case "eof" | "hangup" as kind:
            return kind
        case _:
            raise InvalidMessage("the type of a control message is unknown")


def _is_side(value: object) -> TypeGuard[int]:
    return type(value) is int and 1 <= value <= LARGEST_SIDE


def _size(query: Mapping[str, str]) -> TerminalSize | None:
    sides: dict[str, int] = {}
    for name, side in (("rows", "rows"), ("cols", "columns")):
        if (text := query.get(name)) is not None:
            number = int(text) if _POSITION.fullmatch(text) else 0
            if not _is_side(number):
                raise RequestError(400, f"{name} has to be a number from 1 to {LARGEST_SIDE}.")
            sides[side] = number
    return TerminalSize(**sides) if sides else None


class Terminals:
    """All terminals, by name; bounded in number and in time."""

    def __init__(self, children: ChildProcesses, environment: Mapping[str, str]) -> None:
        self._children = children
        self._environment = environment
        self._terminals: dict[str, Terminal] = {}
        self._timers: dict[Terminal, asyncio.TimerHandle] = {}

    def find(self, wanted: TerminalRequest) -> tuple[Terminal, bool]:
        """Return the terminal that a client requests, and whether it is new.

        One that has ended is found until a client has received its exit code, and with
        `create=false` until it is forgotten.
        """
        terminal = self._terminals.get(wanted.session)
        if terminal is not None and not (terminal.exit_reported and wanted.create):
            if terminal.tty != wanted.tty:
                raise RequestError(409, "The terminal of this name is of the other kind: see tty.")
            if wanted.size is not None and terminal.exit_code is None:
                terminal.resize(wanted.size)
            return terminal, False
        if not wanted.create:
            raise RequestError(404, "There is no terminal of this name.")
        return self._start(wanted), True

    def listed(self) -> list[dict[str, object]]:
        """Return the list of terminals, as clients see it."""
        return [
            {
                "session": terminal.name,
                "tty": terminal.tty,
                "attached": terminal.attachment is not None,
                "exit_code": terminal.exit_code,
            }
            for terminal in self._terminals.values()
        ]

    @contextmanager
    def attached(self, terminal: Terminal, position: int) -> Generator[Attachment]:
        """Attach a client for as long as the block runs; without one, the idle time begins."""
        if terminal.exit_code is None:
            self._stop_timer(terminal)
        attachment = terminal.attach(position, _REPLACED)
        try:
            yield attachment
        finally:
            terminal.detach(attachment)
            if terminal.exit_code is None and terminal.attachment is None:
                self._set_timer(terminal, IDLE_SECONDS, terminal.hang_up)

    def remove(self, name: str) -> None:
        """Hang up a terminal, and forget it."""
        terminal = self._terminals.pop(name, None)
        if terminal is None:
            raise RequestError(404, "There is no terminal of this name.")
        self._dismiss(terminal, _REMOVED)
        terminal.hang_up()

    async def close(self) -> None:
        """Dismiss all clients: the daemon ends, and ends the programs itself."""
        for terminal in self._terminals.values():
            self._dismiss(terminal, _DAEMON_ENDS)
        for _ in range(_LOOKS):
            if not any(terminal.attachment for terminal in self._terminals.values()):
                break
            await asyncio.sleep(_LOOK_SECONDS)

    def _start(self, wanted: TerminalRequest) -> Terminal:
        running = sum(terminal.exit_code is None for terminal in self._terminals.values())
        if running >= MOST_TERMINALS:
            raise RequestError(429, f"There are {MOST_TERMINALS} terminals already; end one first.")
        environment = {**self._environment, "TERM": wanted.term if wanted.tty else "dumb"}
        size = wanted.size or TerminalSize()
        shell = start_shell(self._children, environment, size, tty=wanted.tty)
        terminal = Terminal(wanted.session, shell, self._children, tty=wanted.tty)
        self._terminals[wanted.session] = terminal
        # Its client may leave before it is attached.
        self._set_timer(terminal, IDLE_SECONDS, terminal.hang_up)
        terminal.ending.add_done_callback(lambda _: self._ended(terminal))
        return terminal

    def _ended(self, terminal: Terminal) -> None:
        if self._terminals.get(terminal.name) is not terminal:
            return
        self._set_timer(terminal, KEPT_SECONDS, lambda: self._forget(terminal))
        ended = [found for found in self._terminals.values() if found.exit_code is not None]
        if len(ended) > MOST_TERMINALS:
            self._forget(ended[0])

    def _forget(self, terminal: Terminal) -> None:
        self._stop_timer(terminal)
        if self._terminals.get(terminal.name) is terminal:
            del self._terminals[terminal.name]

    def _set_timer(self, terminal: Terminal, seconds: float, then: Callable[[], None]) -> None:
        self._stop_timer(terminal)
        self._timers[terminal] = asyncio.get_running_loop().call_later(seconds, then)

    def _stop_timer(self, terminal: Terminal) -> None:
        if timer := self._timers.pop(terminal, None):
            timer.cancel()

    def _dismiss(self, terminal: Terminal, reason: CloseReason) -> None:
        self._stop_timer(terminal)
        if terminal.attachment is not None:
            terminal.attachment.dismiss(reason)


async def serve_terminal(socket: WebSocket, terminals: Terminals) -> None:
    """Serve a client until it leaves, is dismissed, or the program ends.

    The WebSocket is accepted only if there is a terminal for it.
    """
    wanted = read_query(socket.query_params)
    terminal, is_new = terminals.find(wanted)
    await socket.accept()
    with terminals.attached(terminal, wanted.position) as attachment:
        attached = {
            "type": "attached",
            "session": terminal.name,
            "created": is_new,
            "position": attachment.position,
            "input": terminal.received,
        }
        await socket.send_text(json.dumps(attached))
        reason = await _converse(socket, terminal, attachment)
        if reason is not _DISCONNECTED:
            # A client that reads nothing cannot be told. Pings find out that it is gone.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await socket.close(reason.code, reason.reason)


async def _converse(socket: WebSocket, terminal: Terminal, attachment: Attachment) -> CloseReason:
    tasks = [
        asyncio.ensure_future(transfer(socket, terminal, attachment))
        for transfer in (_send_output, _take_input)
    ]
    try:
        done, _ = await asyncio.wait(
            [*tasks, attachment.close_reason], return_when=asyncio.FIRST_COMPLETED
        )
        # Where several are done at once, what the daemon decided counts.
        return next(task for task in (attachment.close_reason, *tasks) if task in done).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_output(
    socket: WebSocket, terminal: Terminal, attachment: Attachment
) -> CloseReason:
    while True:
        if terminal.taken - attachment.acknowledged >= ACKNOWLEDGED:
            attachment.acknowledged = terminal.taken
            await socket.send_text(json.dumps({"type": "input", "position": terminal.taken}))
        if data := terminal.next_output(attachment):
            await socket.send_bytes(data)
        elif terminal.exit_code is not None:
            break
        else:
            await terminal.wait_for_news()
    await socket.send_text(json.dumps({"type": "exit", "code": terminal.exit_code}))
    terminal.exit_reported = True
    return _EXITED


async def _take_input(socket: WebSocket, terminal: Terminal, attachment: Attachment) -> CloseReason:
    while (message := await socket.receive())["type"] == "websocket.receive":
        if terminal.attachment is not attachment:
            # The client in its place was told what had arrived by then, and sends the rest again.
            break
        if (data := message.get("bytes")) is not None:
            if not terminal.type_input(data):
                return _TOO_MUCH
            continue
        try:
            control = read_control(message.get("text") or "")
        except InvalidMessage as error:
            return CloseReason(BAD_MESSAGE, str(error))
        if isinstance(control, TerminalSize):
            terminal.resize(control)
        elif control == "hangup":
            terminal.hang_up()
        elif terminal.tty:
            return CloseReason(BAD_MESSAGE, "a terminal's input has no end: type Ctrl-D")
        else:
            terminal.end_input()
    return _DISCONNECTED

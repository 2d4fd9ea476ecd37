"""A shell of an intern on this terminal; or, where standard input is none, a script for one.

The connection may drop: the shell runs on, and this reconnects, without a byte lost or sent twice,
for as long as the daemon keeps what was printed meanwhile.
"""

import asyncio
import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.http11 import Response

from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns.daemon import (
    DaemonCredentials,
    RenewAccess,
    daemon_refusal,
    parse_number,
    unexpected_answer,
)
from tollhouse.cli.interns.terminal_io import DetachKeys, InputBuffer, LocalTerminal
from tollhouse.cli.values import one_line, parse_object
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.ids import RandomIds

_BY_SIGNAL: Final = 128
_ENDED: Final = 1001
_BROKEN_RULES: Final = frozenset((1002, 1007, 1009))
"""Codes with which this end closes: what came is no WebSocket, no text, or too large."""
_REFUSALS: Final = range(4400, 4500)
"""Codes after which the same would happen again."""
_NOT_FOUND: Final = 404
_PING_SECONDS: Final = 20.0
_PONG_SECONDS: Final = 60.0
_OPEN_SECONDS: Final = 15.0
_CLOSE_SECONDS: Final = 2.0
_MESSAGE: Final = 32 * 1024
_LARGEST: Final = 1 << 20
"""Bytes of a message; a daemon's have 256 KiB at most."""
_LARGEST_CODE: Final = 255


class ConnectionDropped(Exception):
    """There is no connection any more, or none came about."""

    def __init__(self, text: str, *, was_attached: bool = False) -> None:
        super().__init__(text)
        self.was_attached = was_attached


class _Direct(connect):
    # Follows no redirect: the token is for one host.

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


class _Strict(ClientConnection):
    # Ends at once where rules are broken: who breaks them need not close either.

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.protocol.parser_exc is not None:
            self.transport.abort()


class TerminalConnection:
    """The state of a terminal that outlives its connections: the next one goes on from it."""

    def __init__(self, local: LocalTerminal, session: str) -> None:
        self.local = local
        self.has_begun = False
        self._session = session
        self._position = 0
        self._keys = DetachKeys()
        self._input = InputBuffer()
        self._input_ended = False
        self._is_attached = False
        self._changed = asyncio.Event()
        self._resized = False

    def resized(self) -> None:
        """The terminal here has another size."""
        self._resized = True
        self._changed.set()

    async def run(self, access: DaemonCredentials) -> int:
        """Serve the terminal over one connection, and return the exit code of its shell.

        ConnectionDropped where it dropped or none came about; CommandFailed where it was refused,
        or ended in a way that another connection does not mend.
        """
        connecting = _Direct(
            self._address(access),
            additional_headers=access.headers,
            create_connection=_Strict,
            user_agent_header="tollhouse-cli",
            compression=None,
            proxy=None if access.is_near else True,
            open_timeout=_OPEN_SECONDS,
            close_timeout=_CLOSE_SECONDS,
            ping_interval=_PING_SECONDS,
            ping_timeout=_PONG_SECONDS,
            max_size=_LARGEST,
        )
        try:
            connection = await connecting
        except InvalidStatus as refused:
            raise self._refused(refused.response) from None
        except (OSError, TimeoutError, WebSocketException, EOFError) as error:
            raise ConnectionDropped(
                f"the intern cannot be reached ({one_line(str(error)) or type(error).__name__})"
            ) from None
        try:
            return await self._exchange(connection)
        finally:
            await connection.close()

    def _address(self, access: DaemonCredentials) -> str:
        query: dict[str, object] = {
            "session": self._session,
            "from": self._position,
            "tty": str(self.local.is_terminal).lower(),
            "create": str(not self.has_begun).lower(),
        }
        size = self.local.size() if self.local.is_terminal else None
        if size is not None:
            query["rows"], query["cols"] = size
        if self.local.is_terminal and (term := os.environ.get("TERM")):
            query["term"] = term
        # `http` becomes `ws`, and `https` becomes `wss`.
        return f"ws{access.origin.removeprefix('http')}/terminal?{urlencode(query)}"

    def _refused(self, response: Response) -> Exception:
        status = response.status_code
        failed = daemon_refusal(status, bytes(response.body or b""))
        if status == _NOT_FOUND and self.has_begun:
            return CommandFailed("the terminal ended while there was no connection")
        return ConnectionDropped(str(failed)) if failed.retryable else failed

    async def read_input(self) -> None:
        """Take what is typed here, also between connections, until the person leaves the shell."""
        while True:
            while self._input.room < _MESSAGE:
                await self._wait()
            data = await self.local.read()
            if not data and not self.local.is_terminal:
                self._input_ended = True
                self._changed.set()
                await asyncio.Event().wait()  # the end of a script is not that of its output
            typed, leaves = self._keys.typed(data) if self.local.is_terminal else (data, False)
            if leaves or not data:  # or the terminal is gone
                return
            self._input.add(typed)
            self._changed.set()

    async def _exchange(self, connection: ClientConnection) -> int:
        self._is_attached = False
        receiving = asyncio.ensure_future(self._receive(connection))
        sending = asyncio.ensure_future(self._send(connection))
        try:
            return await receiving
        except asyncio.CancelledError:
            await self._hang_up(connection)
            raise
        finally:
            for task in (receiving, sending):
                task.cancel()
            await asyncio.gather(receiving, sending, return_exceptions=True)

    async def _receive(self, connection: ClientConnection) -> int:
        try:
            while True:
                message = await connection.recv()
                if isinstance(message, str):
                    if (exited := self._take_message(message)) is not None:
                        return exited
                elif not await self.local.write(message):
                    await self._hang_up(connection)
                    return _BY_SIGNAL + signal.SIGPIPE
                else:
                    self._position += len(message)
        except ConnectionClosed as closed:
            if closed.sent and not closed.rcvd_then_sent and closed.sent.code in _BROKEN_RULES:
                raise unexpected_answer() from None
            code = closed.rcvd.code if closed.rcvd else None
            reason = closed.rcvd.reason if closed.rcvd else ""
        if code in _REFUSALS or code == _ENDED:
            raise CommandFailed(one_line(reason) or "the intern has closed the terminal")
        raise ConnectionDropped(
            "the connection to the intern dropped", was_attached=self._is_attached
        )

    def _take_message(self, text: str) -> int | None:
        """Take a control message; return how the shell has ended, where it says so."""
        told = parse_object(text)
        position = told.get("position")
        match told.get("type"):
            case "attached":
                self._attached(parse_number(position), parse_number(told.get("input")))
            case "input":
                self._input.taken(parse_number(position))
            case "exit":
                return parse_number(told.get("code"), _LARGEST_CODE)
            case str():
                pass  # a newer daemon says more
            case _:
                raise unexpected_answer()
        self._changed.set()
        return None

    def _attached(self, position: int, taken: int) -> None:
        if self.has_begun and position > self._position:
            self.local.say("some of the output is lost: there was too much of it")
        self._position = position
        self._input.attached(taken)
        self._resized = self.local.is_terminal
        self.has_begun = self._is_attached = True

    async def _send(self, connection: ClientConnection) -> None:
        """Send what is to be sent, for as long as the connection is there."""
        eof_sent = False
        with suppress(ConnectionClosed):
            while True:
                if not self._is_attached:
                    await self._wait()
                elif self._resized and (size := self.local.size()):
                    self._resized = False
                    rows, columns = size
                    resize = {"type": "resize", "rows": rows, "cols": columns}
                    await connection.send(json.dumps(resize))
                elif data := self._input.next(_MESSAGE):
                    await connection.send(data)
                elif self._input_ended and not eof_sent:
                    eof_sent = True
                    await connection.send(json.dumps({"type": "eof"}))
                else:
                    await self._wait()

    async def _hang_up(self, connection: ClientConnection) -> None:
        """Have a script end whose output nobody will see; a terminal's shell runs on."""
        if self.local.is_terminal:
            return
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await connection.send(json.dumps({"type": "hangup"}))

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


@dataclass(frozen=True, slots=True)
class RetryPauses:
    """How long to wait before the next attempt."""

    first_seconds: float = 0.5
    longest_seconds: float = 10.0
    give_up_seconds: float = 600.0
    """Without a connection. The shell runs on."""


async def attach(
    access: DaemonCredentials,
    *,
    name: str = "the intern",
    session: str | None = None,
    renew: RenewAccess | None = None,
    pauses: RetryPauses | None = None,
) -> int:
    """Attach to a terminal of an intern until its shell ends, or Ctrl-] q is typed.

    Where standard input is no terminal it is a script: a shell without a terminal reads it,
    standard output gets what it prints on either output and nothing else, and it ends with this.
    The session is `main` unless named; for a script, one of its own. `renew` is asked for the
    access once more after a connection has failed; without it the first one is tried again.

    Returns the shell's exit code, or 128 and the signal's number where one has ended it or this
    process; 0 where it was left by Ctrl-] q. CommandFailed where it was refused, another client has
    taken the terminal, the intern has ended, or nobody could be reached for `give_up_seconds`.
    """
    local = LocalTerminal()
    if session is None:
        session = "main" if local.is_terminal else f"script-{RandomIds().uuid()}"
    terminal = TerminalConnection(local, session)
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(_BY_SIGNAL + number)

    with local.ended_by(end), local.raw(terminal.resized):
        local.say(f"attached to {name}: Ctrl-] q leaves, and the shell runs on")
        connected = asyncio.ensure_future(
            _stay_connected(terminal, access, renew, pauses or RetryPauses())
        )
        typing = asyncio.ensure_future(terminal.read_input())
        try:
            await asyncio.wait([connected, typing, ended], return_when=asyncio.FIRST_COMPLETED)
            # The shell's end counts where several come at once.
            outcome = next(one for one in (connected, typing, ended) if one.done()).result()
        finally:
            for task in (connected, typing):
                task.cancel()
            await asyncio.gather(connected, typing, return_exceptions=True)
    if outcome is None:
        local.say("detached: the same command comes back")
        return 0
    return outcome


async def _stay_connected(
    terminal: TerminalConnection,
    access: DaemonCredentials,
    renew: RenewAccess | None,
    pauses: RetryPauses,
) -> int:
    """Reconnect until the shell ends; return its exit code."""
    clock = SystemClock()
    wait, since = pauses.first_seconds, clock.monotonic()
    while True:
        try:
            return await terminal.run(access)
        except ConnectionDropped as dropped:
            if dropped.was_attached:
                wait, since = pauses.first_seconds, clock.monotonic()
                terminal.local.say("the connection dropped; trying again")
            elif not terminal.has_begun or clock.monotonic() - since > pauses.give_up_seconds:
                raise CommandFailed(str(dropped), retryable=True) from None
        await asyncio.sleep(wait)
        wait = min(wait * 2, pauses.longest_seconds)
        if renew is not None:
            try:
                access = await renew()
            except CommandFailed as failed:
                if not failed.retryable:  # where it may work later, the access stays what it was
                    raise

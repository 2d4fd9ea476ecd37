"""The daemon as a host starts it: a process of its own, on a unix socket that it inherits.

It is a fork that has imported everything, unless a `command` is given (`COMMAND` for a cold start).

    with DaemonProcess(folder) as daemon:
        daemon.end()             # closes its standard input; returns the exit code

Its processes are found by a mark in their environment. Its log goes to a file; a token in the log
fails any test.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Response

from tests.support.forked import ForkedDaemon
from tests.support.seams.identity import DAEMON_PREFIX

COMMAND = (sys.executable, "-P", "-m", "tollhouse.sandbox.daemon")
SECONDS = 30.0
_MARK = "DAEMON_UNDER_TEST"


class DaemonProcess:
    """A running daemon, its token and its workspace."""

    def __init__(
        self, folder: Path, command: Sequence[str] | None = None, **settings: object
    ) -> None:
        self.token = f"{DAEMON_PREFIX}{secrets.token_urlsafe(24)}"
        self.mark = secrets.token_hex(16)
        self.workspace = folder / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self.log = folder / "daemon.log"
        line = {
            "token_sha256": hashlib.sha256(self.token.encode()).hexdigest(),
            "workspace": str(self.workspace),
            "egress_socket": None,
            "environment": {_MARK: self.mark, "PS1": "ready> "},
            "intern": {"id": "1d", "name": "ada"},
            **settings,
        }
        with self._listener(folder) as listener, self.log.open("wb") as log:
            start = ForkedDaemon if command is None else subprocess.Popen[bytes]
            self.process = start(
                list(command or COMMAND),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", _MARK: self.mark},
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps({"listener": listener.fileno(), **line}).encode())
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()

    def _listener(self, folder: Path) -> socket.socket:
        self.path = str(folder / "daemon.sock")
        listener = socket.socket(socket.AF_UNIX)
        Path(self.path).unlink(missing_ok=True)  # of a daemon of before
        listener.bind(self.path)
        listener.listen(64)
        return listener

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def client(self, **options: Any) -> httpx2.AsyncClient:
        options = {"headers": self.authorization, "timeout": SECONDS, **options}
        transport = httpx2.AsyncHTTPTransport(uds=self.path)
        return httpx2.AsyncClient(transport=transport, base_url="http://daemon", **options)

    @asynccontextmanager
    async def terminal(self, **query: object) -> AsyncIterator[Terminal]:
        async with self.connect(**query) as connection:
            yield Terminal(connection)

    async def ran(self, typed: str, **query: object) -> Terminal:
        """Type something into a terminal; return that once its program has ended."""
        async with self.terminal(**query) as terminal:
            await terminal.type(typed)
            assert await terminal.end() == (1000, "the program ended")
        return terminal

    async def refusal(self, *, headers: dict[str, str] | None = None, **query: object) -> Response:
        with pytest.raises(InvalidStatus) as refused:
            await self.connect(headers=headers, **query)
        return refused.value.response

    def connect(self, *, headers: dict[str, str] | None = None, **query: object) -> unix_connect:
        return unix_connect(
            self.path,
            # Without marks around what is typed, which other kinds of terminals get.
            f"ws://daemon/terminal?{urlencode({'term': 'dumb', **query})}",
            additional_headers=self.authorization if headers is None else headers,
            compression=None,
            open_timeout=SECONDS,
            ping_interval=None,
            max_size=None,
        )

    def processes(self) -> list[int]:
        """Return the ids of the daemon's processes, its own included."""
        found = list[int]()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def end(self) -> int:
        """End its standard input; return its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ended = self.process.returncode is not None  # the test has seen to it
        try:
            code = self.end()
        finally:
            self.process.kill()
            self.process.wait()
        text = self.log.read_text(errors="replace")
        assert self.token not in text
        assert "Traceback" not in text
        assert "exception" not in text.lower(), text
        assert ended or code == 0, (code, text)


class Terminal:
    """A client's connection, and all that it has read."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.controls: list[dict[str, Any]] = []
        self.output = bytearray()

    async def attached(self) -> dict[str, Any]:
        while not self.controls:
            await self.read_message()
        return self.controls[0]

    async def read_until(self, text: bytes) -> None:
        while text not in self.output:
            await self.read_message()

    async def type(self, text: str, until: bytes = b"") -> None:
        await self.connection.send(text.encode())
        await self.read_until(until)

    async def say(self, **message: object) -> None:
        await self.connection.send(json.dumps(message))

    async def end(self) -> tuple[int | None, str]:
        """Read until the daemon closes; return its code and reason."""
        with suppress(ConnectionClosed):
            while True:
                await self.read_message()
        return self.connection.close_code, self.connection.close_reason or ""

    @property
    def exit_code(self) -> int | None:
        codes = [message["code"] for message in self.controls if message["type"] == "exit"]
        return codes[0] if codes else None

    async def read_message(self) -> None:
        async with asyncio.timeout(SECONDS):
            self._take(await self.connection.recv())

    def _take(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            self.output += message
        else:
            self.controls.append(json.loads(message))


def text_of(response: httpx2.Response | Response) -> str:
    """Check the envelope of an error and return its message."""
    content = response.content if isinstance(response, httpx2.Response) else response.body
    body = json.loads(content or b"")
    assert body == {"error": {"code": response.status_code, "message": body["error"]["message"]}}
    return body["error"]["message"]

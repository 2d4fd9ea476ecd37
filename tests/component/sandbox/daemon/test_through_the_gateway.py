"""A daemon on the gateway's port, as another machine reaches it."""

import asyncio
import hashlib
import io
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, unix_serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Response

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.support.clock import FakeClock
from tests.support.seams.api import RequestGate, Routes, make_server, respond, takes_websocket
from tests.support.seams.identity import DAEMON_PREFIX
from tests.support.waiting import take_turns, until, until_still
from tollhouse.interns.sandboxes import PortForwarder
from tollhouse.kernel.errors import Unauthenticated
from tollhouse.observability.logging import configure_logging
from tollhouse.observability.metrics import Metrics
from tollhouse.settings.sections import ServerSettings

TAKEN = f"{DAEMON_PREFIX}taken"
"""The token of a daemon that an agent has taken over."""


class _Nobody:
    async def authenticate(self, key: str) -> object:
        del key
        raise Unauthenticated("Invalid API key.")


async def _system(scope: Any, headers: object, send: Any) -> None:
    del scope, headers
    await respond(send, 200, [], b"the API")


@dataclass(frozen=True)
class Served:
    port: int
    doors: PortForwarder
    held: Any
    """How many connections each address holds."""

    def client(self, token: str) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", headers=headers)

    def terminal(self, token: str, query: str = "session=one&tty=false", **given: Any) -> connect:
        return connect(
            f"ws://127.0.0.1:{self.port}/terminal?{query}",
            additional_headers={"Authorization": f"Bearer {token}"},
            proxy=None,
            **given,
        )

    async def refusal(self, token: str, *query: str, **given: Any) -> Response:
        with pytest.raises(InvalidStatus) as refused:
            await self.terminal(token, *query, **given)
        return refused.value.response


@asynccontextmanager
async def _served(
    path: Any, token: str, connections: int = 100, **settings: Any
) -> AsyncIterator[Served]:
    doors = PortForwarder()
    await doors.open("ada-1", path, hashlib.sha256(token.encode()).hexdigest())
    system: Any = _system
    routes = Routes({}, system, system, doors)
    nobody: Any = _Nobody()
    front = RequestGate(routes, nobody, ServerSettings(**settings), FakeClock(), Metrics())
    server = make_server(
        front,
        limit_per_address=connections,
        shutdown_seconds=1,
        takes_websocket=takes_websocket,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await server.listening.wait()
    try:
        yield Served(listener.getsockname()[1], doors, server.held)
    finally:
        server.stop()
        await serving
        await doors.stop()


@pytest.fixture
async def served(daemon: DaemonProcess) -> AsyncIterator[Served]:
    async with _served(daemon.path, daemon.token) as served:
        yield served


@pytest.fixture
async def client(served: Served, daemon: DaemonProcess) -> AsyncIterator[httpx2.AsyncClient]:
    async with served.client(daemon.token) as client:
        yield client


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    out = io.StringIO()
    configure_logging("info", "json", out)
    yield out
    configure_logging("info", "json")


async def test_a_large_file_goes_up_and_comes_down(client: httpx2.AsyncClient) -> None:
    content = bytes(range(256)) * 40_000
    put = await client.put("/files/large", content=content)
    assert put.is_success, put.text
    assert (await client.get("/files/large")).content == content
    part = await client.get("/files/large", headers={"Range": "bytes=256-511"})
    assert (part.status_code, part.content) == (206, bytes(range(256)))
    assert part.headers["Content-Range"] == f"bytes 256-511/{len(content)}"
    head = await client.head("/files/large")
    assert (head.headers["Content-Length"], head.content) == (str(len(content)), b"")


@pytest.mark.parametrize("given", [None, "Bearer sk-or-v1-key", "Basic YTpi", "th-daemon-"])
async def test_the_token_of_each_request_decides(
    client: httpx2.AsyncClient, given: str | None
) -> None:
    token = client.headers.pop("Authorization")
    for _ in range(2):
        told = await client.get("/healthz", headers={"Authorization": token})
        assert told.json()["intern"]["name"] == "ada"
        headers = {} if given is None else {"Authorization": given}
        assert (await client.get("/healthz", headers=headers)).text == "the API"


@pytest.mark.parametrize("host", ["gateway.test", "ada-1.interns.test:8080"])
async def test_a_token_is_taken_under_each_host_name(client: httpx2.AsyncClient, host: str) -> None:
    assert (await client.get("/healthz", headers={"Host": host})).json()["status"] == "ok"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_token_that_is_no_longer_valid_is_refused(
    client: httpx2.AsyncClient, scheme: str
) -> None:
    given = {"Authorization": f"{scheme} {DAEMON_PREFIX}other"}
    for path in ("/healthz", "/files/a", "/v1/models", "/v1/chat/completions"):
        refused = await client.get(path, headers=given)
        assert refused.status_code == 401
        assert refused.json()["error"]["message"] == "Invalid or missing token of the daemon"


async def test_a_second_token_is_refused(served: Served, daemon: DaemonProcess) -> None:
    token = ("Authorization", f"Bearer {daemon.token}")
    other = ("Authorization", "Bearer sk-or-v1-key")
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{served.port}") as client:
        refused = await client.get("/healthz", headers=[token, other])
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "The header Authorization was sent more than once."


async def test_requests_count_for_the_rate_of_their_address(daemon: DaemonProcess) -> None:
    token = daemon.token
    async with (
        _served(daemon.path, token, max_requests_per_address_per_minute=1) as served,
        served.client(token) as client,
    ):
        statuses = [(await client.get("/healthz")).status_code for _ in range(2)]
    assert statuses == [200, 429]


async def test_a_request_is_logged_without_what_it_names(
    client: httpx2.AsyncClient, log: io.StringIO
) -> None:
    assert (await client.get("/files/private-name")).status_code == 404
    await until(lambda: log.getvalue().endswith("\n"))
    (line,) = [json.loads(each) for each in log.getvalue().splitlines()]
    assert (line["route"], line["status"]) == ("/interns/{internId}/daemon", 404)
    assert "private-name" not in log.getvalue()


# Terminals


async def test_the_token_of_a_handshake_decides(served: Served) -> None:
    assert (await served.refusal("other")).body == b"the API"
    refused = await served.refusal(f"{DAEMON_PREFIX}other")
    assert refused.status_code == 401
    assert b"Invalid or missing token of the daemon" in refused.body


async def test_a_terminal_holds_a_place_of_its_address(daemon: DaemonProcess) -> None:
    async with (
        _served(daemon.path, daemon.token, connections=1) as served,
        served.terminal(daemon.token) as terminal,
    ):
        await terminal.recv()
        refused = await served.refusal(daemon.token, "session=two&tty=false")
    assert refused.status_code == 429


async def test_a_terminal_that_is_not_read_holds_its_program_up(
    served: Served, daemon: DaemonProcess
) -> None:
    counted = daemon.workspace / "counted"
    program = f"for i in $(seq 400); do head -c 65536 /dev/zero; echo $i >> {counted}; done\n"
    connecting = served.terminal(daemon.token, "session=slow&tty=false")
    connecting.max_queue = 1
    async with connecting as terminal:
        await terminal.recv()
        await terminal.send(program.encode())
        await until_still(lambda: counted.read_bytes() if counted.exists() else b"")
        assert len(counted.read_bytes().split()) < 400
        await terminal.send(b"exit\n")
        said = [each async for each in terminal]
    assert sum(each.count(0) for each in said if isinstance(each, bytes)) == 400 * 65_536


async def test_a_terminal_that_is_lost_is_detached(served: Served, daemon: DaemonProcess) -> None:
    connecting = served.terminal(daemon.token, "session=kept&tty=false")
    terminal = await connecting
    await terminal.recv()
    await terminal.send(b"sleep 0.5; echo still; exit\n")
    terminal.transport.abort()
    await until(lambda: not served.held)
    async with served.terminal(daemon.token, "session=kept&tty=false") as again:
        said = [each async for each in again]
    assert b"still" in b"".join(each for each in said if isinstance(each, bytes))


# Ends


async def test_a_daemon_that_is_away_is_503(own_daemon: DaemonProcess) -> None:
    daemon = own_daemon
    async with _served(daemon.path, daemon.token) as served, served.client(daemon.token) as client:
        daemon.end()
        refused = await client.get("/healthz")
        terminal = await served.refusal(daemon.token)
    assert refused.status_code == terminal.status_code == 503
    told = {"reason": "unavailable", "retryable": True}
    assert refused.json()["error"]["metadata"] == told
    assert json.loads(terminal.body)["error"]["metadata"] == told


async def test_what_is_open_ends_when_the_intern_is_taken_down(
    served: Served, daemon: DaemonProcess
) -> None:
    async with served.terminal(daemon.token, "session=end&tty=false") as terminal:
        await terminal.recv()
        await served.doors.close("ada-1")
        with pytest.raises(ConnectionClosed):
            await terminal.recv()
    assert terminal.close_code == 1001


async def test_a_client_that_hangs_up_in_an_upload_leaves_no_file(
    served: Served, daemon: DaemonProcess
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = f"PUT /files/half HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {daemon.token}"
    writer.write(f"{head}\r\nContent-Length: 1000000\r\n\r\n".encode() + bytes(1000))
    await writer.drain()

    def is_arriving() -> bool:
        return any(path.is_file() for path in daemon.workspace.rglob("*"))

    await until(is_arriving)
    writer.transport.abort()
    await until(lambda: not is_arriving())


# A daemon that an agent has taken over


@asynccontextmanager
async def _answering(
    folder: Any, says: bytes, go_on: asyncio.Event | None = None
) -> AsyncIterator[tuple[Served, list[bytes]]]:
    """Serve an intern whose daemon says something to every request, and closes.

    With it come the heads that the daemon was sent.
    """
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            if go_on is not None:
                await go_on.wait()
            writer.write(says)
            await writer.drain()

    path = folder / "daemon.sock"
    async with await asyncio.start_unix_server(answer, path), _served(path, TAKEN) as served:
        yield served, asked


@asynccontextmanager
async def _taken_over(folder: Any, *, says: bytes) -> AsyncIterator[httpx2.AsyncClient]:
    async with _answering(folder, says) as (served, _), served.client(TAKEN) as client:
        yield client


async def test_no_cookie_comes_back_and_no_page_is_shown(tmp_path: Any) -> None:
    says = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nSet-Cookie: a=b; Domain=gateway.test\r\n"
        b"Cache-Control: public, max-age=9\r\n"
        b"Location: https://elsewhere.test\r\nContent-Length: 2\r\n\r\nhi"
    )
    async with _taken_over(tmp_path, says=says) as client:
        answer = await client.get("/")
    assert answer.text == "hi"
    assert set(answer.headers) == {
        *("content-type", "content-length", "date"),
        *("cache-control", "content-security-policy", "x-content-type-options"),
    }
    assert answer.headers["Content-Security-Policy"] == "sandbox"
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"a" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["nothing", "garbage", "switch", "status", "huge", "both"],
)
async def test_what_is_no_answer_is_503(tmp_path: Any, says: bytes) -> None:
    async with _taken_over(tmp_path, says=says) as client:
        assert (await client.get("/")).status_code == 503


async def test_an_answer_that_breaks_off_is_not_ended_for_it(tmp_path: Any) -> None:
    says = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"
    async with _taken_over(tmp_path, says=says) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/")


async def test_a_second_answer_goes_nowhere(tmp_path: Any) -> None:
    one = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d"
    async with _taken_over(tmp_path, says=one % 1 + one % 2) as client:
        assert [(await client.get("/")).text for _ in range(2)] == ["1", "1"]


@pytest.mark.parametrize(("full", "word"), [(True, "memory"), (False, "does not answer")])
async def test_a_terminal_of_a_daemon_that_is_silent_is_refused_with_why(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, word: str, *, full: bool
) -> None:
    monkeypatch.setattr("tollhouse.api.intern_daemons._HANDSHAKE_SECONDS", 0.05)
    with _silent(tmp_path) as silent:
        async with _served(silent, TAKEN) as served:
            token_hash = hashlib.sha256(TAKEN.encode()).hexdigest()
            await served.doors.open("ada-1", silent, token_hash, lambda: full)
            refused = await served.refusal(TAKEN)
    assert refused.status_code == 503
    assert word in refused.body.decode()


@contextmanager
def _silent(folder: Path) -> Iterator[Path]:
    """Listen where a daemon would, and answer nothing."""
    path = folder / "daemon.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen(512)
        yield path


async def test_an_intern_has_so_many_connections(tmp_path: Any) -> None:
    with _silent(tmp_path) as silent:
        async with _served(silent, TAKEN, connections=1000) as served:
            writers = [(await _raw(served, "GET / HTTP/1.1"))[1] for _ in range(256)]
            async with served.client(TAKEN) as client:

                async def is_refused() -> bool:
                    try:
                        return (await client.get("/", timeout=1)).status_code == 503
                    except httpx2.TimeoutException:
                        return False

                async with asyncio.timeout(30):
                    while not await is_refused():
                        pass
            for writer in writers:
                writer.transport.abort()


@pytest.mark.parametrize("attempt", range(2))
async def test_a_refusal_that_comes_before_the_end_of_an_upload_is_seen(
    tmp_path: Any, attempt: int
) -> None:
    del attempt

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield bytes(100_000)

    with DaemonProcess(tmp_path, largest_file_bytes=1000) as daemon:
        async with (
            _served(daemon.path, daemon.token) as served,
            served.client(daemon.token) as client,
        ):
            declared = await client.put("/files/x", content=bytes(10_000_000))
            streamed = await client.put("/files/x", content=pieces())
    assert (declared.status_code, streamed.status_code) == (413, 413)


async def test_an_answer_without_a_body_has_no_length(tmp_path: Any) -> None:
    says = b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"
    async with _taken_over(tmp_path, says=says) as client:
        answer = await client.get("/")
    assert (answer.status_code, "content-length" in answer.headers) == (204, False)


@asynccontextmanager
async def _speaking(
    folder: Any, speak: Callable[[ServerConnection], Awaitable[None]], **settings: Any
) -> AsyncIterator[Served]:
    """Serve an intern whose daemon takes every WebSocket, and does with it what a test says."""
    path = folder / "daemon.sock"
    async with unix_serve(speak, str(path)), _served(path, TAKEN, **settings) as served:
        yield served


def _head(*lines: str) -> bytes:
    """Return the head of a request for a daemon that an agent has taken over."""
    head = (*lines, "Host: gateway.test", f"Authorization: Bearer {TAKEN}", "", "")
    return "\r\n".join(head).encode()


async def _raw(served: Served, *lines: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(_head(*lines))
    return reader, writer


UPGRADE = (
    *("GET /terminal HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade"),
    *("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="),
)


@pytest.mark.parametrize(
    ("code", "seen"), [(1000, 1000), (1011, 1011), (4409, 4409), (4413, 4413), (None, 1012)]
)
async def test_a_terminal_ends_with_the_code_of_its_daemon(
    tmp_path: Any, code: int | None, seen: int
) -> None:
    async def close(daemon: ServerConnection) -> None:
        if code is None:
            daemon.transport.abort()
        else:
            await daemon.close(code, "so it is")

    async with _speaking(tmp_path, close) as served, served.terminal(TAKEN) as terminal:
        with pytest.raises(ConnectionClosed):
            await terminal.recv()
    assert terminal.close_code == seen
    assert terminal.close_reason == ("" if code is None else "so it is")


async def test_a_terminal_that_nobody_reads_does_not_keep_its_intern(tmp_path: Any) -> None:
    sent = 0

    async def flood(daemon: ServerConnection) -> None:
        nonlocal sent
        while True:
            await daemon.send(bytes(65_536))
            sent += 1

    async with _speaking(tmp_path, flood) as served:
        _, writer = await _raw(served, *UPGRADE)
        door = served.doors.of(f"Bearer {TAKEN}".encode())
        await until(lambda: len(door.passing) == 1)
        await until_still(lambda: sent)  # what is between them is full
        async with asyncio.timeout(10):
            await served.doors.close("ada-1")
        assert not door.passing
        writer.transport.abort()


async def test_a_connection_that_is_being_answered_becomes_no_websocket(tmp_path: Any) -> None:
    go_on = asyncio.Event()
    says = b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n"
    async with _answering(tmp_path, says, go_on) as (served, asked):
        reader, writer = await _raw(served, "GET /files/a HTTP/1.1")
        await until(lambda: len(asked) == 1)
        writer.write(_head(*UPGRADE))
        await writer.drain()
        await take_turns()
        go_on.set()
        for _ in range(2):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 426 ")
        writer.close()
    assert b"websocket" not in asked[1]


async def test_no_trailer_passes_for_a_header(tmp_path: Any) -> None:
    says = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    chunked = ("POST /a HTTP/1.1", "Transfer-Encoding: chunked", "Connection: close")
    async with _answering(tmp_path, says) as (served, asked):
        for _ in range(10):
            reader, writer = await _raw(served, *chunked)
            await asyncio.sleep(0)
            writer.write(b"0\r\nRange: b\r\nAuthorization: Bearer sk-or-v1-key\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
    assert len(asked) == 10
    assert not any(b"sk-or-v1-key" in head or b"range" in head.lower() for head in asked)


async def test_a_daemon_that_pings_and_does_not_listen_is_left(tmp_path: Any) -> None:
    async def ping(daemon: ServerConnection) -> None:
        daemon.transport.pause_reading()
        ping = b"\x89\x7d" + bytes(125)
        while not daemon.transport.is_closing():
            daemon.transport.write(ping * 1_000)
            await asyncio.sleep(0.001)

    async with _speaking(tmp_path, ping) as served, served.terminal(TAKEN) as terminal:
        with pytest.raises(ConnectionClosed):
            await terminal.recv()
    assert terminal.close_code == 1012


async def test_a_handshake_that_cannot_be_read_is_a_400(tmp_path: Any) -> None:
    async with _speaking(tmp_path, lambda daemon: daemon.close()) as served:
        reader, writer = await _raw(served, *UPGRADE, f"Cookie: {'a' * 9_000}")
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await until(lambda: not served.held)


async def test_a_page_of_the_gateway_itself_may_open_a_terminal(
    served: Served, daemon: DaemonProcess
) -> None:
    own = f"http://127.0.0.1:{served.port}"
    async with served.terminal(daemon.token, "session=page&tty=false", origin=own) as terminal:
        assert json.loads(await terminal.recv())["type"] == "attached"
    refused = await served.refusal(daemon.token, "session=x&tty=false", origin="http://evil.test")
    assert refused.status_code == 400


@pytest.mark.parametrize(
    "says",
    [
        b"HTTP/1.1 302 Found\r\nLocation: ws://elsewhere.test/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 103 Early\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"garbage\r\n\r\n",
    ],
    ids=["redirect", "interim", "accept", "garbage"],
)
async def test_what_is_no_answer_to_a_handshake_is_503(tmp_path: Any, says: bytes) -> None:
    async with _answering(tmp_path, says) as (served, _):
        assert (await served.refusal(TAKEN)).status_code == 503

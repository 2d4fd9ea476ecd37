"""An intern's daemon that means harm, or is broken: commands end with one line that says so.

The agent in a sandbox can answer in its daemon's place. What it says must neither crash, hang nor
fill a command, nor lead the token elsewhere.
"""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Callable
from hashlib import sha1
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.component.sandbox.daemon.tcp_proxy import ATTACH
from tests.support.forked import ForkedProcess
from tests.support.providers.byte_script import End
from tests.support.providers.raw_server import Peer, RawServer, interrupt, reply, say
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns import daemon, terminal
from tollhouse.cli.interns import files as files_module
from tollhouse.cli.interns.daemon import DaemonCredentials
from tollhouse.cli.interns.files import InternFiles, open_files
from tollhouse.cli.interns.terminal import ConnectionDropped, TerminalConnection
from tollhouse.kernel.secret import Secret

TOKEN = "canary-token"
UNCLEAR = "the intern said what cannot be understood"
JSON = b"Content-Type: application/json\r\n"
MUCH = 64 << 20
"""Bytes after which a reader without an end would have been seen."""


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


@pytest.fixture
async def elsewhere() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


def way(server: RawServer) -> DaemonCredentials:
    return DaemonCredentials(server.url.rstrip("/"), Secret(TOKEN))


@pytest.fixture
async def files(server: RawServer) -> AsyncIterator[InternFiles]:
    async with open_files(way(server)) as files:
        yield files


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_SECONDS", 0.3)
    monkeypatch.setattr(files_module, "_PIECE_SECONDS", 0.3)


async def failure(work: Any) -> str:
    with pytest.raises(CommandFailed) as failed:
        await work
    text = str(failed.value)
    assert text.isprintable()
    assert TOKEN not in text
    return text


async def without_end(peer: Peer, head: bytes, piece: bytes) -> None:
    """Say something again and again, until nobody listens any more."""
    peer.transport.write(head)
    said = 0
    while peer.closed_at is None:
        if peer.transport.get_write_buffer_size() < 1 << 20:
            peer.transport.write(piece)
            said += len(piece)
        assert said < MUCH
        await asyncio.sleep(0)


def names_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def entry(name: str) -> dict[str, Any]:
    at = "2026-01-31T12:00:00.000Z"
    return {"name": name, "type": "file", "size": 1, "mode": "0644", "modified_at": at}


# Lists


async def test_a_list_that_always_has_more_ends(server: RawServer, files: InternFiles) -> None:
    page = json.dumps({"data": [entry("a")], "has_more": True}).encode()
    server.behave = say(reply(page, fields=JSON))
    assert UNCLEAR in await failure(files.listed())
    assert server.requests == 2


async def test_a_list_of_ever_new_names_ends(
    server: RawServer, files: InternFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "MOST_LISTED", 5)

    async def more(peer: Peer) -> None:
        page = {"data": [entry(f"{server.requests:09}")], "has_more": True}
        await peer.play(reply(json.dumps(page).encode(), fields=JSON))

    server.behave = more
    assert await failure(files.listed()) == "the folder has more than 5 entries"
    assert server.requests == 5


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n",
    ],
    ids=["no length", "a length", "compressed"],
)
async def test_an_answer_without_an_end_is_not_kept(
    server: RawServer, files: InternFiles, head: bytes
) -> None:
    server.behave = lambda peer: without_end(peer, head, b" " * 65_536)
    assert "its answer does not end" in await failure(files.listed())


async def test_a_compressed_answer_is_not_unpacked(server: RawServer, files: InternFiles) -> None:
    fields = JSON + b"Content-Encoding: deflate\r\n"
    server.behave = say(reply(b"x\x9c" + b"\0" * 100, fields=fields))
    assert await failure(files.listed()) == UNCLEAR


async def test_a_list_that_breaks_off_is_told(server: RawServer, files: InternFiles) -> None:
    head = b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Length: 100\r\n\r\n{"
    server.behave = say(head, End.EOF)
    assert "the connection to the intern failed" in await failure(files.listed())


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Length: 99\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\n", b"A"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
    ids=["body", "head", "interim"],
)
async def test_an_answer_that_drips_is_given_up(
    server: RawServer, files: InternFiles, tmp_path: Path, head: bytes, piece: bytes
) -> None:
    async def drip(peer: Peer) -> None:
        peer.transport.write(head)
        while peer.closed_at is None:
            peer.transport.write(piece)
            await asyncio.sleep(0.05)

    server.behave = drip
    (tmp_path / "x").write_text("x")
    for work in (files.listed(), files.put(tmp_path / "x", "x")):
        assert await failure(work) == "the intern does not answer in time: try again"


# Files


async def test_more_than_was_told_of_a_file_is_not_written(
    server: RawServer, files: InternFiles, tmp_path: Path
) -> None:
    head = b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 3\r\n\r\n'
    server.behave = say(head + b"123456789", End.EOF)
    assert await files.get("x", tmp_path / "x") == 3
    assert (tmp_path / "x").read_bytes() == b"123"


async def test_a_rest_that_is_longer_than_the_file_is_refused(
    server: RawServer, files: InternFiles, tmp_path: Path
) -> None:
    async def answer(peer: Peer) -> None:
        if "range" not in peer.fields:
            head = b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 400000\r\n\r\n'
            await peer.play(head + b"a" * 300_000, End.EOF)
        else:
            await peer.play(reply(b"b" * 200_000, "206 Partial Content", b'ETag: "1"\r\n'))

    server.behave = answer
    failed = await failure(files.get("x", tmp_path / "x"))
    assert failed == "x changed while it was fetched: try again"
    assert names_in(tmp_path) == []


# Refusals


async def test_a_refusal_without_an_end_is_cut_off(server: RawServer, files: InternFiles) -> None:
    head = b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n"
    server.behave = lambda peer: without_end(peer, head, b"x" * 65_536)
    assert await failure(files.remove("x")) == "the intern refused: status 404"


async def test_a_refusal_does_not_steer_the_terminal(server: RawServer, files: InternFiles) -> None:
    said = json.dumps({"error": {"message": "\x1b]0;owned\x07 no"}}).encode()
    server.behave = say(reply(said, "404 Not Found"))
    assert await failure(files.remove("x")) == "the intern refused: ]0;owned no"


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
async def test_a_redirect_takes_the_token_nowhere(
    server: RawServer, elsewhere: RawServer, files: InternFiles, tmp_path: Path, status: str
) -> None:
    location = f"Location: {elsewhere.url}files/x\r\n".encode()
    server.behave = say(reply(b"", status, location))
    refused = f"the intern refused: status {status[:3]}"
    (tmp_path / "x").write_text("x")
    assert await failure(files.listed()) == refused
    assert await failure(files.get("x", tmp_path / "y")) == refused
    assert await failure(files.put(tmp_path / "x", "x")) == refused
    assert await failure(files.remove("x")) == refused
    assert elsewhere.peers == []


# Terminals


class Pipes:
    """A script's ends, as `TerminalConnection` uses them."""

    is_terminal = False

    def __init__(self) -> None:
        self.printed = b""

    def size(self) -> None:
        return None

    def say(self, text: str) -> None:
        raise AssertionError(text)

    async def write(self, data: bytes) -> bool:
        self.printed += data
        return True


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> TerminalConnection:
    monkeypatch.setattr(terminal, "_CLOSE_SECONDS", 0.05)
    return TerminalConnection(Pipes(), "main")  # type: ignore[arg-type]


def agree(*said: bytes, fields: bytes = b"", ends: bool = False) -> Callable[[Peer], Any]:
    """Return a behaviour that goes on as a WebSocket."""

    async def behave(peer: Peer) -> None:
        key = peer.fields["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(sha1(key.encode(), usedforsecurity=False).digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        await peer.play(head + fields + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n", *said)
        if ends:
            await peer.play(End.EOF)
        await peer.wait_closed()

    return behave


def text(said: bytes) -> bytes:
    return b"\x81\x7e" + len(said).to_bytes(2, "big") + said


ATTACHED = text(b'{"type": "attached", "position": 0, "input": 0}')


@pytest.mark.parametrize(
    "frame",
    [
        b"\x82\x7f" + (1 << 30).to_bytes(8, "big"),
        b"\x81\x7f" + (1 << 62).to_bytes(8, "big"),
        b"\x81\x02\xff\xfe",
        b"\xf2\x00",
        b"\x82\x81\0\0\0\0x",
        b"\x83\x00",
    ],
    ids=["1 GB", "4 EB", "no UTF-8", "reserved bits", "masked", "no such frame"],
)
async def test_a_frame_that_breaks_the_rules_ends_it(
    server: RawServer, connection: TerminalConnection, frame: bytes
) -> None:
    server.behave = agree(ATTACHED, frame)
    assert await failure(connection.run(way(server))) == UNCLEAR


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"x", b"5", b"[]", b"{}", b"null", b'{"type": 5}', b"[" * 60_000),
        *(
            b'{"type": "exit"}',
            b'{"type": "exit", "code": 1e999}',
            b'{"type": "exit", "code": 256}',
        ),
        *(b'{"type": "exit", "code": -1}', b'{"type": "exit", "code": "0"}'),
        *(b'{"type": "attached"}', b'{"type": "attached", "position": -1, "input": 0}'),
        *(b'{"type": "input", "position": Infinity}', b'{"type": "input", "position": true}'),
    ],
)
async def test_a_message_that_is_none_ends_it(
    server: RawServer, connection: TerminalConnection, said: bytes
) -> None:
    server.behave = agree(ATTACHED, text(said))
    assert await failure(connection.run(way(server))) == UNCLEAR


async def test_an_end_is_one_though_the_connection_stays(
    server: RawServer, connection: TerminalConnection
) -> None:
    server.behave = agree(ATTACHED, text(b'{"type": "exit", "code": 7}'))
    assert await connection.run(way(server)) == 7


async def test_what_a_newer_daemon_says_is_passed_over(
    server: RawServer, connection: TerminalConnection
) -> None:
    end = text(b'{"type": "exit", "code": 0}')
    server.behave = agree(ATTACHED, text(b'{"type": "news", "position": "x"}'), end)
    assert await connection.run(way(server)) == 0


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
async def test_a_redirected_handshake_takes_the_token_nowhere(
    server: RawServer, elsewhere: RawServer, connection: TerminalConnection, status: str
) -> None:
    location = f"Location: ws://127.0.0.1:{elsewhere.port}/terminal\r\n".encode()
    server.behave = say(reply(b"", status, location))
    assert await failure(connection.run(way(server))) == f"the intern refused: status {status[:3]}"
    assert elsewhere.peers == []


@pytest.mark.parametrize(
    "behave",
    [
        agree(fields=b"Sec-WebSocket-Extensions: permessage-deflate\r\n"),
        agree(fields=b"Sec-WebSocket-Protocol: other\r\n"),
        interrupt(b"\xff" * 100, End.EOF),
        interrupt(b"HTTP/1.1 101 Switching Protocols\r\n" + b"A: b\r\n" * 1_000 + b"\r\n"),
    ],
    ids=["an extension", "a protocol", "no HTTP", "many headers"],
)
async def test_a_handshake_that_breaks_the_rules_leads_nowhere(
    server: RawServer, connection: TerminalConnection, behave: Callable[[Peer], Any]
) -> None:
    server.behave = behave
    with pytest.raises(ConnectionDropped, match="the intern cannot be reached") as dropped:
        await connection.run(way(server))
    assert str(dropped.value).isprintable()


async def attached(server: RawServer) -> tuple[int | None, str]:
    """Run a client between pipes; return its exit code and what it says."""
    environment = {"ORIGIN": server.url.rstrip("/"), "TOKEN": TOKEN, "GIVE_UP": "0.3"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), PIPE)
    given = {**os.environ, **environment}
    with ForkedProcess(["attach"], script=ATTACH, env=given, **pipes) as process:
        try:
            _, errors = await asyncio.to_thread(process.communicate, b"true\n", 30)
        finally:
            process.kill()
    return process.returncode, errors.decode()


async def test_who_is_never_attached_is_not_kept_waiting(server: RawServer) -> None:
    server.behave = agree(ends=True)
    assert await attached(server) == (1, "failed: the connection to the intern dropped\n")


async def test_what_cannot_be_understood_is_said_once_and_not_tried_again(
    server: RawServer,
) -> None:
    server.behave = agree(ATTACHED, b"\x82\x7f" + (1 << 30).to_bytes(8, "big"))
    assert await attached(server) == (1, f"failed: {UNCLEAR}\n")
    assert server.requests == 1


def test_the_longest_page_that_there_can_be_is_read() -> None:
    longest = {**entry("\x01" * 255), "size": daemon.LARGEST_NUMBER}
    page = json.dumps({"data": [longest] * daemon.PAGE, "has_more": True})
    assert len(page) < daemon.LARGEST_ANSWER

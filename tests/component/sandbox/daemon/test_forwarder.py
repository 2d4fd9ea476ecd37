"""The port of the sandbox where programs find the egress proxy: nothing is lost on the way."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.component.sandbox.daemon.daemon_process import SECONDS, DaemonProcess
from tests.support.waiting import until, until_still
from tollhouse.sandbox.daemon.forwarder import forwarding

SIZES = range(100_000, 6_000_000, 50_000)
"""Among them is one of which the end stands in the forwarder while all else is on the way."""
PIECE = 65_536


@pytest.fixture
def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def daemon(tmp_path: Path, port: int) -> Iterator[DaemonProcess]:
    proxy = str(tmp_path / "proxy.sock")
    with DaemonProcess(tmp_path, egress_socket=proxy, egress_port=port) as daemon:
        yield daemon


@asynccontextmanager
async def proxy(
    daemon: DaemonProcess,
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[None]:
    """Listen where the daemon looks for the proxy, once the daemon is ready."""
    async with daemon.client() as client:
        await client.get("/healthz")
    path = str(Path(daemon.path).with_name("proxy.sock"))
    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()


async def test_who_has_sent_all_still_receives(daemon: DaemonProcess, port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = await reader.read()
        writer.write(b"heard " + heard)
        writer.close()
        await writer.wait_closed()

    async with proxy(daemon, serve):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"all of it")
        writer.write_eof()
        assert await reader.read() == b"heard all of it"
        writer.close()
        await writer.wait_closed()


async def test_who_has_received_all_still_sends(daemon: DaemonProcess, port: int) -> None:
    heard = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write_eof()
        heard.set_result(await reader.read())
        writer.close()
        await writer.wait_closed()

    async with proxy(daemon, serve):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.write(b"late")
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(SECONDS):
            assert await heard == b"late"


async def test_without_a_proxy_a_connection_is_closed_at_once(
    daemon: DaemonProcess, port: int
) -> None:
    async with daemon.client() as client:
        await client.get("/healthz")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""
    writer.transport.abort()


async def test_connections_leave_nothing_behind(daemon: DaemonProcess, port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.transport.abort()

    async with proxy(daemon, serve):
        before = descriptors(daemon)
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x")
            writer.transport.abort()
        await until(lambda: descriptors(daemon) <= before)


async def test_a_port_that_is_taken_ends_the_daemon(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with DaemonProcess(tmp_path, egress_socket="/none", egress_port=port) as daemon:
            assert daemon.process.wait(SECONDS) == 1
            assert f"('127.0.0.1', {port})" in daemon.log.read_text()


def descriptors(daemon: DaemonProcess) -> int:
    return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


# A slow reader


class Sender:
    """Sends each client as many bytes as it asks for."""

    def __init__(self) -> None:
        self.sent = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = int(await reader.read())
        while left:
            piece = min(left, PIECE)
            writer.write(bytes(piece))
            await writer.drain()
            left -= piece
            self.sent += piece
        writer.close()
        await writer.wait_closed()


async def received(port: int, size: int, sender: Sender) -> int:
    """Ask for so many bytes, and read nothing until no more is sent; return how many have come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(str(size).encode())
    writer.write_eof()
    await until_still(lambda: sender.sent)
    count = 0
    while piece := await reader.read(PIECE):
        count += len(piece)
    writer.close()
    await writer.wait_closed()
    return count


async def test_a_slow_reader_gets_all_that_was_sent_before_the_end(tmp_path: Path) -> None:
    path, sender = tmp_path / "s", Sender()
    server = await asyncio.start_unix_server(sender.answer, str(path))
    async with server, forwarding(str(path), 0, most=None) as port:
        counts = await asyncio.gather(*(received(port, size, sender) for size in SIZES))
    assert counts == list(SIZES)

"""The port of the sandbox where programs find the egress proxy."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.component.sandbox.daemon.daemon_process import SECONDS, DaemonProcess, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator


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
        await eventually(lambda: descriptors(daemon) <= before)


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

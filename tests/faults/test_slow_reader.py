"""A client that stops reading stops the provider, and loses nothing when it goes on."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import urlsplit

import pytest_asyncio

from tests.faults.raw_client import chat
from tests.support.providers.framing import Framing, chunk
from tests.support.providers.raw_server import Peer, RawServer
from tests.support.server_process import ServerProcess, start_server

CONFIG = """
providers:
  - {{slug: fire, kind: openai_compatible, base_url: "{url}v1"}}
models:
  - id: fire/hose
    context_length: 8192
    endpoints: [{{provider: fire, model: m, pricing: free}}]
"""
EVENTS = 4_000
TEXT = "x" * 16_000
MEGABYTE = 1_000_000
TOTAL = EVENTS * len(TEXT)
MOST_HELD = 48 * MEGABYTE
"""What kernels let sockets hold: often 6 MB to receive, here and there 32, and 4 MB to send."""
CLIENT_HOLDS = 65_536


def event(number: int) -> bytes:
    delta = f'{{"index":0,"delta":{{"content":"{number} {TEXT}"}},"finish_reason":null}}'
    return b'data: {"id":"c","choices":[%b]}\n\n' % delta.encode()


async def send_64_mb(peer: Peer) -> None:
    """Send a stream of 64 MB at once."""
    await peer.body()
    pieces = b"".join(chunk(event(number)) for number in range(EVENTS))
    end = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    last = chunk(end + b"data: [DONE]\n\n") + b"0\r\n\r\n"
    await peer.play(Framing().chunked_head("text/event-stream"), pieces + last)


@pytest_asyncio.fixture
async def upstream() -> AsyncGenerator[RawServer]:
    async with RawServer() as server:
        server.behave = send_64_mb
        yield server


@pytest_asyncio.fixture
async def gateway(upstream: RawServer, tmp_path: Path) -> AsyncGenerator[ServerProcess]:
    with start_server(tmp_path, config=CONFIG.format(url=upstream.url)) as running:
        yield running


async def connect(
    host: str | None, port: int | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect with a small buffer, whatever the kernel would let it grow to."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CLIENT_HOLDS)
    client.setblocking(False)  # noqa: FBT003 - its only form
    await asyncio.get_running_loop().sock_connect(client, (host, port))
    return await asyncio.open_connection(sock=client, limit=CLIENT_HOLDS)


async def settled_size(peer: Peer) -> int:
    """Wait until nothing more leaves the provider; return how much it has still to write."""
    left, before = peer.transport.get_write_buffer_size(), -1
    while left != before:
        before = left
        await asyncio.sleep(0.5)
        left = peer.transport.get_write_buffer_size()
    return left


async def test_a_client_that_does_not_read_stops_the_provider_and_gets_everything_later(
    gateway: ServerProcess, upstream: RawServer
) -> None:
    url = urlsplit(gateway.base_url)
    reader, writer = await connect(url.hostname, url.port)
    body = chat("fire/hose", stream=True)
    writer.write(
        f"POST {url.path}/chat/completions HTTP/1.1\r\nhost: {url.netloc}\r\n"
        f"authorization: Bearer {gateway.api_key}\r\ncontent-type: application/json\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await reader.readuntil(b"\r\n\r\n")
    left = await settled_size(upstream.peers[-1])
    assert TOTAL - left < MOST_HELD, "the gateway took it all, though nobody read"
    received = bytearray()
    while piece := await reader.read(1 << 20):
        received += piece
    writer.close()
    assert received.endswith(b"0\r\n\r\n")
    assert received.count(b"[DONE]") == 1
    at = 0
    for number in range(EVENTS):
        at = received.index(b'"content":"%d xxx' % number, at)

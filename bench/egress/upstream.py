"""The host behind the proxy: HTTPS on one port for every name of the benchmark.

    python -m bench.egress.upstream --certificate FILE

It prints `{"port": N}` and ends with its input.

    GET /plain      a small JSON object
    GET /secret     the same to whoever shows the value, 403 to others
    GET /down/N     N bytes
    POST /up        the small object, once the body is there
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import uvloop

from bench.egress.hosts import SHOWN
from tollhouse.apps.process import allow_open_files

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_BODY: Final = json.dumps({"id": "item-1", "object": "item", "text": "x" * 200}).encode()
_PIECE: Final = bytes(262_144)
_LENGTH: Final = b"content-length: "
_BACKLOG: Final = 1_024


def _head(status: bytes, size: int, media_type: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
    return head % (status, media_type, size)


_SMALL: Final = _head(b"200 OK", len(_BODY), b"application/json") + _BODY
_REFUSED: Final = _head(b"403 Forbidden", 0, b"text/plain")


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection, one after the other."""
    with suppress(asyncio.IncompleteReadError, OSError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await _answer(head, reader, writer)
            await writer.drain()
    writer.transport.abort()


async def _answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    path = head.split(b" ", 2)[1]
    if path == b"/up":
        await _read_away(reader, _length(head))
    if path.startswith(b"/down/"):
        await _down(writer, int(path.rpartition(b"/")[2]))
    elif path == b"/secret" and SHOWN not in head:
        writer.write(_REFUSED)
    else:
        writer.write(_SMALL)


def _length(head: bytes) -> int:
    return int(head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0])


async def _read_away(reader: asyncio.StreamReader, left: int) -> None:
    while left:
        data = await reader.read(min(left, len(_PIECE)))
        if not data:
            raise ConnectionResetError
        left -= len(data)


async def _down(writer: asyncio.StreamWriter, left: int) -> None:
    writer.write(_head(b"200 OK", left, b"application/octet-stream"))
    while left:
        piece = _PIECE[:left]
        writer.write(piece)
        await writer.drain()
        left -= len(piece)


async def _run(certificate: str) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = _serve
    server = await asyncio.start_server(
        serve, "127.0.0.1", 0, ssl=context, backlog=_BACKLOG, limit=len(_PIECE)
    )
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """Serve until the parent is gone."""
    parser = argparse.ArgumentParser(prog="python -m bench.egress.upstream")
    parser.add_argument("--certificate", required=True)
    options = parser.parse_args()
    allow_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options.certificate))


if __name__ == "__main__":
    main()

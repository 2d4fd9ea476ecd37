"""The upstream answers in the format that a request's path names, one write for each piece."""

import asyncio
import json
from typing import cast

import pytest

from bench.batch_bodies import ITEMS_PATH
from bench.formats import ANSWERS, CHUNKS, FORMATS
from bench.upstream import Replies, Upstream


class Wire:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)


async def ask(target: str, *, stream: bool) -> list[bytes]:
    """Return what the upstream writes when a request for a target comes."""
    body = b'{"stream":true}' if stream else b"{}"
    head = f"POST {target} HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n"
    upstream, wire = Upstream(0.0, Replies()), Wire()
    upstream.connection_made(cast("asyncio.Transport", wire))
    upstream.data_received(head.encode() + body)
    for _ in range(2 * CHUNKS):
        await asyncio.sleep(0)
    return wire.writes


def unchunked(writes: list[bytes]) -> bytes:
    """Return a chunked body; each write is one chunk, the first behind the head."""
    lines = b"".join(writes).partition(b"\r\n\r\n")[2].split(b"\r\n")
    return b"".join(lines[1::2])


def format_of(path: str) -> str:
    return next(name for name, spoken in FORMATS.items() if spoken.path == path)


@pytest.mark.parametrize("query", ["", "?beta=true"])
@pytest.mark.parametrize("path", ANSWERS)
async def test_a_whole_reply_is_one_write_in_the_paths_format(path: str, query: str) -> None:
    (written,) = await ask(path + query, stream=False)
    assert written.startswith(b"HTTP/1.1 200 OK")
    body = written.partition(b"\r\n\r\n")[2]
    FORMATS[format_of(path)].check(body, stream=False, priced=False)


@pytest.mark.parametrize("path", ANSWERS)
async def test_a_stream_is_a_write_for_each_piece(path: str) -> None:
    writes = await ask(path, stream=True)
    assert len(writes) == CHUNKS
    FORMATS[format_of(path)].check(unchunked(writes), stream=True, priced=False)


@pytest.mark.parametrize("stream", [False, True])
async def test_another_path_is_not_found(stream: bool) -> None:  # noqa: FBT001 - a parameter
    (written,) = await ask("/v1/responses", stream=stream)
    assert written.startswith(b"HTTP/1.1 404 ")


async def test_items_are_counted_and_each_gets_another_text() -> None:
    upstream, wire = Upstream(0.0, Replies()), Wire()
    upstream.connection_made(cast("asyncio.Transport", wire))
    received = "GET /received"
    for target in (f"POST {ITEMS_PATH}", f"POST {ITEMS_PATH}", received, received):
        upstream.data_received(f"{target} HTTP/1.1\r\ncontent-length: 2\r\n\r\n{{}}".encode())
    first, second, counted, again = (wrote.partition(b"\r\n\r\n")[2] for wrote in wire.writes)
    assert first != second
    assert json.loads(counted)["count"] == 2
    assert json.loads(counted)["first_ns"] > 0
    assert json.loads(again) == {"count": 0, "first_ns": 0}

"""The tool that sends requests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_ai.exceptions import ToolFailed

from tollhouse.interns.agent.permits import Permits
from tollhouse.interns.agent.tools.http import MOST_BYTES, http_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def ctx() -> Any:
    deps = SimpleNamespace(permits=Permits(manual=False, verdicts={}))
    return SimpleNamespace(deps=deps, tool_call_approved=False)


@asynccontextmanager
async def answering(*pieces: bytes, asked: list[bytes] | None = None) -> AsyncIterator[str]:
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        if asked is not None:
            asked.append(head)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if pieces:
                writer.close()
        except ConnectionError:
            pass

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.05)  # for the tasks of clients that left


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nSet-Cookie: a\r\nConnection: close\r\n\r\n"


async def test_an_answer_is_told_with_its_status(ctx: Any) -> None:
    asked: list[bytes] = []
    async with answering(HEAD + "é".encode(), asked=asked) as url:
        told = await http_request(ctx, url, "post", {"X-Key": "{{secret:name}}"}, "body")
    assert told == "HTTP 200 OK\ncontent-type: text/plain\n\né"
    assert asked[0].startswith(b"POST / ")
    assert b"{{secret:name}}" in asked[0]


async def test_a_redirect_is_told_and_not_followed(ctx: Any) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    async with answering(moved) as url:
        told = await http_request(ctx, url)
    assert told.startswith("HTTP 302 Found\n")
    assert "location: http://127.0.0.1:9/" in told


async def test_of_a_long_answer_an_excerpt_is_told(ctx: Any) -> None:
    async with answering(HEAD, b"begin", *[b"x" * 65_536] * 20, b"end") as url:
        told = await http_request(ctx, url)
    assert len(told) < 40_000
    assert "begin" in told
    assert told.endswith("end")


async def test_an_answer_without_end_is_not_read_to_its_end(ctx: Any) -> None:
    pieces = [b"x" * 65_536] * (MOST_BYTES // 65_536 + 100)
    async with answering(HEAD, *pieces) as url:
        assert "bytes are left out" in await http_request(ctx, url)


async def test_a_host_that_is_silent_is_given_up(ctx: Any) -> None:
    async with answering() as url:
        with pytest.raises(ToolFailed, match="within 1 seconds"):
            await http_request(ctx, url, timeout_seconds=1)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "ftp://a/", "http://", "nothing", "\0"])
async def test_what_cannot_be_asked_is_an_error_to_the_model(ctx: Any, url: str) -> None:
    with pytest.raises(ToolFailed, match="request failed"):
        await http_request(ctx, url)

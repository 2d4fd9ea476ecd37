"""The tool that sends requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_ai.exceptions import ToolFailed

from tests.support.providers.byte_script import End
from tests.support.providers.raw_server import RawServer, say
from tollhouse.sandbox.agent.tools.context import ToolContext
from tollhouse.sandbox.agent.tools.mcp_servers import McpServers
from tollhouse.sandbox.agent.tools.remote import MOST_BYTES, http_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def ctx(tmp_path: Path) -> Any:
    deps = ToolContext(tmp_path, {}, manual=False, verdicts={}, servers=McpServers(tmp_path, {}))
    return SimpleNamespace(deps=deps, tool_call_approved=False)


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nSet-Cookie: a\r\nConnection: close\r\n\r\n"


async def test_an_answer_is_told_with_its_status(ctx: Any, server: RawServer) -> None:
    server.behave = say(HEAD + "é".encode(), End.EOF)
    told = await http_request(ctx, server.url, "post", {"X-Key": "{{secret:name}}"}, "body")
    assert told == "HTTP 200 OK\ncontent-type: text/plain\n\né"
    (peer,) = server.peers
    assert peer.head.startswith(b"POST / ")
    assert peer.fields["x-key"] == "{{secret:name}}"


async def test_a_redirect_is_told_and_not_followed(ctx: Any, server: RawServer) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    server.behave = say(moved)
    told = await http_request(ctx, server.url)
    assert told.startswith("HTTP 302 Found\n")
    assert "location: http://127.0.0.1:9/" in told


async def test_of_a_long_answer_an_excerpt_is_told(ctx: Any, server: RawServer) -> None:
    server.behave = say(HEAD, b"begin", *[b"x" * 65_536] * 20, b"end", End.EOF)
    told = await http_request(ctx, server.url)
    assert len(told) < 40_000
    assert "begin" in told
    assert told.endswith("end")


async def test_an_answer_without_end_is_not_read_to_its_end(ctx: Any, server: RawServer) -> None:
    pieces = [b"x" * 65_536] * (MOST_BYTES // 65_536 + 100)
    server.behave = say(HEAD, *pieces, End.HANG)
    assert "bytes are left out" in await http_request(ctx, server.url)


async def test_a_host_that_is_silent_is_given_up(ctx: Any, server: RawServer) -> None:
    server.behave = say(End.HANG)
    with pytest.raises(ToolFailed, match="within 1 seconds"):
        await http_request(ctx, server.url, timeout_seconds=1)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "ftp://a/", "http://", "nothing", "\0"])
async def test_what_cannot_be_asked_is_an_error_to_the_model(ctx: Any, url: str) -> None:
    with pytest.raises(ToolFailed, match="request failed"):
        await http_request(ctx, url)

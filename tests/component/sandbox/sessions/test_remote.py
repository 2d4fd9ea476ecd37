"""Tools that ask elsewhere: MCP servers of the workspace, good ones and those that hang; HTTP."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai.exceptions import ToolFailed

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.component.sandbox.sessions.mcp_over_http import (
    HttpMcpServer,
    SessionMcpServer,
    serve_app,
    serve_mcp,
)
from tests.support.model_server import FakeModel, call, says
from tests.support.providers.byte_script import End
from tests.support.providers.raw_server import RawServer, say
from tests.support.session_client import SessionClient
from tollhouse.sandbox.agent.tools.context import ToolContext
from tollhouse.sandbox.agent.tools.mcp_servers import McpServerConfig, McpServers
from tollhouse.sandbox.agent.tools.remote import MOST_BYTES, http_request

PROGRAM = str(Path(__file__).with_name("mcp_server.py"))


def configure(workspace: Path, *kinds: str) -> None:
    servers = {kind: {"command": sys.executable, "args": [PROGRAM, kind]} for kind in kinds}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))


async def test_a_server_says_what_it_can_do_and_does_it(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    configure(daemon.workspace, "good")
    calling = call("call_mcp_tool", server="good", tool="echo", arguments={"text": "Hello"})
    model.turns = [says(call("list_mcp_tools", server="good")), says(calling), says("Done.")]

    events = await session.run("Ask the server.")

    assert events.outcomes == ["done", "done"]
    (tool,) = json.loads(model.messages()[2]["content"])
    assert (tool["name"], tool["description"]) == ("echo", "Say it again.")
    assert model.messages()[-1]["content"] == "Hello again"
    assert "good" in model.requests[0]["messages"][0]["content"]


async def test_a_manual_run_asks_before_a_server_is_started(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    configure(daemon.workspace, "good")
    model.turns = [says(call("list_mcp_tools", server="good")), says("Then not.")]
    asked = await session.run("Ask the server.", approval_mode="manual")
    assert asked.last["permission"]["operation"].endswith("mcp_server.py good")
    events = await session.answer(asked.last["interaction"], "reject_once")
    assert events.outcomes == ["rejected"]


async def test_a_server_that_was_changed_while_the_question_waited_is_asked_about_again(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    configure(daemon.workspace, "good")
    model.turns = [says(call("list_mcp_tools", server="good")), says("Done.")]
    first = await session.run("Ask the server.", approval_mode="manual")
    other = {"good": {"command": sys.executable, "args": ["-c", "open('harm', 'w')"]}}
    (daemon.workspace / ".mcp.json").write_text(json.dumps({"mcpServers": other}))
    again = await session.answer(first.last["interaction"], "allow_once")
    assert again.last["permission"]["operation"].endswith("open('harm', 'w')")
    configure(daemon.workspace, "good")
    last = await session.answer(again.last["interaction"], "allow_once")
    assert "mcp_server.py good" in last.last["permission"]["operation"]
    events = await session.answer(last.last["interaction"], "allow_once")
    assert (events.outcomes, events.text) == (["done"], "Done.")
    assert not (daemon.workspace / "harm").exists()


async def test_without_servers_there_are_no_tools_for_them(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    (daemon.workspace / ".mcp.json").unlink(missing_ok=True)
    model.turns = [says("Hello.")]
    await session.run("Hello.")
    names = {tool["function"]["name"] for tool in model.requests[0]["tools"]}
    files = {"read_file", "write_file", "edit_file"}
    assert names == {"shell", "http_request", "ask_user", *files}


async def test_a_file_that_cannot_be_read_ends_no_run(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    (daemon.workspace / ".mcp.json").write_text("{")
    model.turns = [says(call("list_mcp_tools", server="good")), says("Hm.")]
    events = await session.run("Ask the server.")
    assert (events.outcomes, events.text) == (["failed"], "Hm.")
    assert "cannot be understood" in model.messages()[-1]["content"]


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[McpServers]:
    configure(tmp_path, "good", "hangs", "silent", "dies", "fails", "leaves", "counts")
    servers = McpServers(tmp_path, dict(os.environ), start_seconds=20, call_seconds=1)
    yield servers
    await servers.close()


async def ask_who_hangs(servers: McpServers) -> None:
    """Ask a server that never starts, and do not wait long for it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(servers, "start_seconds", 0.5)
        await servers.tools(servers.configured()["hangs"])


async def test_a_server_that_dies_at_its_start_is_an_error(servers: McpServers) -> None:
    with pytest.raises(ToolFailed, match="cannot be started"):
        await servers.tools(servers.configured()["dies"])


@pytest.mark.parametrize(
    ("kind", "said", "why", "then"),
    [
        ("silent", "Hello", "did not answer within 1 s", None),
        ("fails", "Hello", "Hello again", None),
        ("leaves", "Go", "Connection closed", "And again"),  # it is started anew
        ("counts", "Miss your schema", "output schema", "call 2"),  # it runs on
    ],
)
async def test_a_call_that_fails_is_an_error(
    servers: McpServers, kind: str, said: str, why: str, then: str | None
) -> None:
    config = servers.configured()[kind]
    with pytest.raises(ToolFailed, match=why):
        await servers.call(config, "echo", {"text": said})
    if then is not None:
        assert await servers.call(config, "echo", {"text": "And"}) == then


async def test_a_server_that_hangs_keeps_no_other_from_working(servers: McpServers) -> None:
    with pytest.raises(ToolFailed, match="did not start within"):
        await ask_who_hangs(servers)
    good = servers.configured()["good"]
    assert await servers.call(good, "echo", {"text": "Hello"}) == "Hello again"
    assert await servers.call(good, "echo", {"text": "And"}) == "And again"


async def test_whoever_gives_a_server_up_leaves_the_one_in_its_place_alone(
    servers: McpServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = servers.configured()
    new = replace(named["counts"], name="hangs")
    with monkeypatch.context() as patched:
        patched.setattr(servers, "start_seconds", 1)
        waiting = asyncio.create_task(servers.tools(named["hangs"]))
        await asyncio.sleep(0)
    assert await servers.call(new, "echo", {"text": "Hello"}) == "call 1"
    with pytest.raises(ToolFailed, match="did not start within"):
        await waiting
    assert await servers.call(new, "echo", {"text": "And"}) == "call 2"


@pytest.fixture(params=["http", "sse"])
async def remote(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HttpMcpServer]:
    """A server with a URL, of either transport, that the workspace names."""
    async with serve_mcp(request.param) as served:
        config = {"type": request.param, "url": served.url, "headers": {"Authorization": "me"}}
        (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"remote": config}}))
        yield served


@pytest.fixture
async def by_url(remote: HttpMcpServer, tmp_path: Path) -> AsyncIterator[McpServers]:
    assert remote.url
    servers = McpServers(tmp_path, dict(os.environ), start_seconds=20, call_seconds=1)
    yield servers
    await servers.close()


async def test_a_server_with_a_url_says_what_it_can_do_and_does_it(
    remote: HttpMcpServer, by_url: McpServers
) -> None:
    config = by_url.configured()["remote"]
    assert {tool["name"] for tool in await by_url.tools(config)} == {"echo", "hang"}
    assert "Hello again" in await by_url.call(config, "echo", {"text": "Hello"})
    assert remote.tokens == {"me"}


async def test_a_server_with_a_url_that_hangs_is_an_error_and_can_be_asked_again(
    by_url: McpServers,
) -> None:
    config = by_url.configured()["remote"]
    with pytest.raises(ToolFailed, match="did not answer within 1 s"):
        await by_url.call(config, "hang", {})
    assert "And again" in await by_url.call(config, "echo", {"text": "And"})


async def test_a_server_that_has_forgotten_its_session_is_met_anew(tmp_path: Path) -> None:
    older = SessionMcpServer()
    servers = McpServers(tmp_path, dict(os.environ), start_seconds=20, call_seconds=20)
    async with serve_app(older) as url:
        config = McpServerConfig("remote", url=url)
        assert await servers.call(config, "echo", {"text": "Hello"}) == "Hello again"
        older.session += 1
        with pytest.raises(ToolFailed, match="Session terminated"):
            await servers.call(config, "echo", {"text": "Lost"})
        assert await servers.call(config, "echo", {"text": "And"}) == "And again"
        await servers.close()


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_server_that_is_not_there_is_an_error(tmp_path: Path, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
    servers = McpServers(tmp_path, dict(os.environ), start_seconds=20, call_seconds=1)
    config = McpServerConfig("remote", url=url, is_sse=kind == "sse")
    with pytest.raises(ToolFailed, match="remote cannot be started"):
        await servers.tools(config)
    await servers.close()


# The tool that sends requests


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

"""SIGTERM with streams in flight."""

import asyncio
import signal
from pathlib import Path

import httpx2
import pytest

from tests.faults.raw_client import chat, post_chat
from tests.faults.stream_assertions import assert_legal
from tests.support.server_process import ServerProcess, start_server
from tests.support.upstream_process import UpstreamProcess

MODELS = {"cutter/short": "slow-chunks:20", "cutter/long": "slow-chunks:1000"}


async def begin(server: ServerProcess, model: str, upstream: UpstreamProcess) -> asyncio.Task:
    """Start a stream; return once the provider has it."""
    body = chat(model, stream=True)
    task = asyncio.create_task(post_chat(server.base_url, server.api_key, body))
    while not upstream.seen()["open"]:
        await asyncio.sleep(0.01)
    return task


async def test_a_running_stream_finishes_before_the_server_ends(
    upstream: UpstreamProcess, tmp_path: Path
) -> None:
    with start_server(tmp_path, config=upstream.config(MODELS)) as server:
        stream = await begin(server, "cutter/short", upstream)
        server.process.send_signal(signal.SIGTERM)
        assert "usage" in assert_legal(await stream)
        assert await asyncio.to_thread(server.process.wait, 20) == 0


async def test_a_terminal_that_closes_lets_streams_end(
    upstream: UpstreamProcess, tmp_path: Path
) -> None:
    with start_server(tmp_path, config=upstream.config(MODELS)) as server:
        stream = await begin(server, "cutter/short", upstream)
        for _ in range(2):
            server.process.send_signal(signal.SIGHUP)
        assert "usage" in assert_legal(await stream)
        assert await asyncio.to_thread(server.process.wait, 20) == 0


async def test_a_stream_that_outlasts_the_limit_gets_its_error_chunk_and_is_booked(
    upstream: UpstreamProcess, tmp_path: Path
) -> None:
    config = upstream.config(MODELS, more="server:\n  shutdown_seconds: 2\n")
    with start_server(tmp_path, config=config) as server:
        key = server.authorization
        stream = await begin(server, "cutter/long", upstream)
        server.process.send_signal(signal.SIGTERM)
        answer = await stream
        last = assert_legal(answer)
        assert last["error"]["code"] == 503  # type: ignore[index]
        assert await asyncio.to_thread(server.process.wait, 20) == 0
    with start_server(tmp_path, config=config) as again:
        params = {"id": answer.generation_id}
        reply = httpx2.get(f"{again.base_url}/generation", params=params, headers=key)
        assert reply.json()["data"]["finish_reason"] == "error"


async def test_a_stopping_server_takes_no_new_requests(
    upstream: UpstreamProcess, tmp_path: Path
) -> None:
    with start_server(tmp_path, config=upstream.config(MODELS)) as server:
        stream = await begin(server, "cutter/short", upstream)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        late = await post_chat(server.base_url, server.api_key, chat("cutter/short", stream=True))
        assert late.status in {0, 503}
        await stream
        assert await asyncio.to_thread(server.process.wait, 20) == 0


async def test_a_second_signal_ends_the_server_at_once_with_exit_code_1(
    upstream: UpstreamProcess, tmp_path: Path
) -> None:
    server = start_server(tmp_path, config=upstream.config(MODELS))
    try:
        stream = await begin(server, "cutter/long", upstream)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.process.wait, 5) == 1
        await stream
    finally:
        server.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_server_ends_with_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    server = start_server(tmp_path)
    try:
        server.process.send_signal(number)
        assert await asyncio.to_thread(server.process.wait, 20) == 0
    finally:
        server.kill()

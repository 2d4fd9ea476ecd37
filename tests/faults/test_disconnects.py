"""Clients that hang up, through the running gateway."""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Any

import httpx2
import pytest

from tests.faults.raw_client import Answer, chat, post_chat
from tests.support.server_process import ServerProcess, start_server
from tests.support.upstream_process import UpstreamProcess

MOST_SECONDS = 10.0


@pytest.fixture(scope="module")
def server(
    upstream: UpstreamProcess, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ServerProcess]:
    config = upstream.config({"cutter/slow": "slow-chunks:50", "cutter/hang": "hang"})
    with start_server(tmp_path_factory.mktemp("cancel"), config=config) as running:
        yield running


@pytest.fixture(scope="module")
def draining(
    upstream: UpstreamProcess, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ServerProcess]:
    config = upstream.config(
        {"cutter/slow": "slow-chunks:5"}, provider="    on_disconnect: drain\n"
    )
    with start_server(tmp_path_factory.mktemp("drain"), config=config) as running:
        yield running


async def until(ready: Callable[[], Any]) -> Any:
    """Wait for something to become true; return it."""
    deadline = time.monotonic() + MOST_SECONDS
    while time.monotonic() < deadline:
        if found := await asyncio.to_thread(ready):
            return found
        await asyncio.sleep(0.02)
    message = f"did not happen within {MOST_SECONDS} s"
    raise AssertionError(message)


def generation(server: ServerProcess, answer: Answer) -> dict[str, Any] | None:
    reply = httpx2.get(
        f"{server.base_url}/generation",
        params={"id": answer.generation_id},
        headers=server.authorization,
    )
    return reply.json()["data"] if reply.status_code == 200 else None


async def hang_up(server: ServerProcess, *, after: int) -> Answer:
    body = chat("cutter/slow", stream=True)
    return await post_chat(server.base_url, server.api_key, body, read_events=after)


async def test_a_client_that_hangs_up_in_mid_stream_leaves_a_booked_generation(
    server: ServerProcess,
) -> None:
    answer = await hang_up(server, after=3)
    booked = await until(lambda: generation(server, answer))
    assert booked["cancelled"] is True
    assert booked["streamed"] is True
    assert booked["total_cost"] > 0


async def test_a_client_that_hangs_up_cancels_the_call_at_the_provider(
    server: ServerProcess, upstream: UpstreamProcess
) -> None:
    before = len(upstream.seen()["cancelled"])  # type: ignore[arg-type]
    await hang_up(server, after=2)
    await until(lambda: len(upstream.seen()["cancelled"]) > before)  # type: ignore[arg-type]
    assert await until(lambda: upstream.seen()["open"] == 0)


async def test_a_client_that_gives_up_waiting_cancels_the_call_at_the_provider(
    server: ServerProcess, upstream: UpstreamProcess
) -> None:
    body = chat("cutter/hang", stream=False)
    asking = asyncio.create_task(post_chat(server.base_url, server.api_key, body))
    await until(lambda: upstream.seen()["open"] == 1)
    asking.cancel()
    assert await until(lambda: upstream.seen()["open"] == 0)


async def test_where_the_provider_is_drained_the_whole_reply_is_booked_exactly(
    draining: ServerProcess, upstream: UpstreamProcess
) -> None:
    before = len(upstream.seen()["cancelled"])  # type: ignore[arg-type]
    answer = await hang_up(draining, after=2)
    booked = await until(lambda: generation(draining, answer))
    assert booked["cancelled"] is True
    assert booked["finish_reason"] == "stop"
    assert booked["tokens_completion"] == 50
    assert len(upstream.seen()["cancelled"]) == before  # type: ignore[arg-type]

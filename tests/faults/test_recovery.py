"""What a server answers while it still recovers from a kill."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2

from tests.support.failpoints import Failpoints
from tests.support.server_process import start_server
from tests.support.waiting import until

CHAT = {"model": "simulated/echo", "messages": [{"role": "user", "content": "hi"}]}
BATCH = {
    "endpoint": "/v1/chat/completions",
    "model": "simulated/echo",
    "requests": [{"custom_id": "a", "body": {"messages": CHAT["messages"]}}],
}


async def test_inference_and_money_are_served_while_batches_and_interns_cannot_be_recovered(
    tmp_path: Path,
) -> None:
    stops = Failpoints(tmp_path / "stops")
    stops.stop_at("batch.recover.before")
    server = start_server(tmp_path, env=stops.env)
    try:
        await until(stops.reached)
        async with httpx2.AsyncClient(
            base_url=server.origin, headers=server.authorization, timeout=20
        ) as client:
            served = [
                await client.post("/v1/chat/completions", json=CHAT),
                await client.get("/v1/key"),
                await client.get("/readyz"),
            ]
            waited = await asyncio.gather(
                client.post("/v1/batches", json=BATCH),
                client.get("/v1/batches"),
                client.get("/v1/interns"),
            )
            with closing(sqlite3.connect(server.data_dir / "tollhouse.db")) as other:
                other.execute("BEGIN IMMEDIATE")
                stops.go_on()
                await until(lambda: "recovery_delayed" in server.stderr_text())
                away = await client.get("/v1/batches")
            there = await client.get("/v1/batches")
    finally:
        server.kill()
    assert [each.status_code for each in served] == [200, 200, 200]
    assert [each.status_code for each in (*waited, away, there)] == [503, 503, 503, 503, 200]
    assert "Traceback" not in server.stderr_text()
    assert [each.headers.get("retry-after") for each in waited] == ["1", "1", "1"]
    assert waited[2].json()["error"]["metadata"]["retryable"] is True
    assert "still recovering" in waited[0].json()["error"]["message"]

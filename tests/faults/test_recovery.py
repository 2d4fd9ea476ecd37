"""What a server answers while it still recovers from a kill."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from tests.support.server_process import clean_environment, start_server
from tests.support.waiting import wait_until
from tollhouse.storage.data_folder import DataFolder

if TYPE_CHECKING:
    from collections.abc import Generator

PAUSING = str(Path(__file__).with_name("pausing_recovery.py"))
CHAT = {"model": "simulated/echo", "messages": [{"role": "user", "content": "hi"}]}
BATCH = {
    "endpoint": "/v1/chat/completions",
    "model": "simulated/echo",
    "requests": [{"custom_id": "a", "body": {"messages": CHAT["messages"]}}],
}


@contextmanager
def recovering(tmp_path: Path) -> Generator[httpx2.Client]:
    """Yield a client of a server whose recovery has begun and does not end."""
    with start_server(tmp_path) as server:
        authorization = server.authorization
    marker, data = tmp_path / "recovering", tmp_path / "data"
    command = [
        sys.executable,
        PAUSING,
        str(marker),
        "serve",
        "--port",
        "0",
        "--data-dir",
        str(data),
    ]
    with (tmp_path / "recovering.log").open("wb") as log:
        process = subprocess.Popen(command, env=clean_environment(), stdout=log, stderr=log)
    try:
        wait_until(marker.exists)
        owner = DataFolder(data).owner()
        assert owner is not None
        with httpx2.Client(base_url=owner.address, headers=authorization, timeout=20) as client:
            yield client
    finally:
        process.kill()
        process.wait()


def test_inference_and_money_are_served_while_batches_and_interns_are_recovered(
    tmp_path: Path,
) -> None:
    with recovering(tmp_path) as client:
        served = [
            client.post("/v1/chat/completions", json=CHAT),
            client.get("/v1/key"),
            client.get("/readyz"),
        ]
        waited = [
            client.post("/v1/batches", json=BATCH),
            client.get("/v1/batches"),
            client.get("/v1/interns"),
        ]
    assert [each.status_code for each in served] == [200, 200, 200]
    assert [each.status_code for each in waited] == [503, 503, 503]
    assert [each.headers.get("retry-after") for each in waited] == ["1", "1", "1"]
    assert waited[2].json()["error"]["metadata"]["retryable"] is True
    assert "still recovering" in waited[0].json()["error"]["message"]

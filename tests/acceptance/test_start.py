"""A start of the program itself: what it answers before all of it is loaded, and what it loads."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

from tests.support.failpoints import Failpoints
from tests.support.server_process import clean_environment
from tests.support.waiting import wait_until

CONTROL = "serve.control.before"
SECONDS = 60
CHAT = {"model": "simulated/echo", "messages": [{"role": "user", "content": "hi"}]}
NEVER = {
    *("alembic", "asyncpg", "jsonschema", "mcp", "obstore", "openai"),
    *("rich.console", "sqlalchemy.ext.asyncio", "sqlalchemy.orm", "typer", "uvicorn", "websockets"),
}
"""What no server loads that has an SQLite file, a local store of blobs and no interns."""
LATER = {"fastapi", "starlette", "tollhouse.kernel.wire"}
"""What the control plane alone loads."""


class StartingServer:
    """A server whose control plane is loaded when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "log"
        self.stops = Failpoints(folder / "stops")
        self.stops.stop_at(CONTROL)
        damaged = folder / "damaged"
        damaged.mkdir()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-X", "importtime", "-m", "tollhouse"),
                    *("serve", "--json", "--port", "0", "--data-dir", folder / "data"),
                ],
                env=clean_environment({**self.stops.env, "PYTHONPATH": str(damaged)}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def announced(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def client(self, key: str) -> httpx2.Client:
        announced = self.announced()
        headers = {"Authorization": f"Bearer {announced[key]}"}
        return httpx2.Client(base_url=announced["address"], headers=headers, timeout=SECONDS)

    def load(self) -> None:
        """Have the control plane loaded, once the server has come so far."""
        wait_until(self.stops.reached, seconds=SECONDS)
        self.stops.go_on()

    def damage(self) -> None:
        """Have no web framework to load."""
        (self.folder / "damaged" / "fastapi.py").write_text("raise ModuleNotFoundError('damaged')")

    def loaded(self) -> set[str]:
        """Return the names of the modules and packages that are loaded by now."""
        # Two threads may write into one line.
        names = re.findall(r"import time: *\d+ \| *\d+ \| *([\w.]+)", self.log())
        return {*names, *(name.partition(".")[0] for name in names)}

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)

    def log(self) -> str:
        return self._log.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[StartingServer]:
    with StartingServer(tmp_path) as server:
        yield server


def test_inference_is_answered_before_the_control_plane_is_loaded(starting: StartingServer) -> None:
    with starting.client("api_key") as client:
        reply = client.post("/v1/chat/completions", json=CHAT)
        assert (reply.status_code, "hi" in reply.text) == (200, True)
        assert starting.loaded() & (NEVER | LATER) == set()
        starting.load()
        wait_until(lambda: client.get("/readyz").status_code == 200, seconds=SECONDS)
        assert starting.loaded() & (NEVER | LATER) == LATER


def test_a_server_is_alive_at_once_and_ready_once_all_of_it_is_loaded(
    starting: StartingServer,
) -> None:
    with starting.client("api_key") as client:
        assert client.get("/healthz").status_code == 200
        with pytest.raises(httpx2.ReadTimeout):
            client.get("/readyz", timeout=0.2)
        starting.load()
        wait_until(lambda: client.get("/readyz").status_code == 200, seconds=SECONDS)
        assert client.get("/readyz").json() == {"status": "ready", "problems": {}}
    assert starting.end() == 0


def test_a_server_that_is_stopped_while_it_loads_takes_no_new_requests(
    starting: StartingServer,
) -> None:
    with starting.client("api_key") as client:
        starting.process.send_signal(signal.SIGTERM)
        wait_until(
            lambda: client.post("/v1/chat/completions", json=CHAT).status_code == 503,
            seconds=SECONDS,
        )
        starting.load()
        assert starting.process.wait(SECONDS) == 0


def test_a_request_for_the_control_plane_waits_until_it_is_loaded(starting: StartingServer) -> None:
    with starting.client("management_key") as client:
        with pytest.raises(httpx2.ReadTimeout):
            client.get("/v1/keys", timeout=0.2)
        starting.load()
        wait_until(lambda: client.get("/v1/keys").status_code == 200, seconds=SECONDS)


def test_a_control_plane_that_cannot_be_loaded_ends_the_server_with_one_line(
    starting: StartingServer,
) -> None:
    with starting.client("api_key") as client:
        starting.damage()
        starting.load()
        assert starting.process.wait(SECONDS) == 2
        with pytest.raises(httpx2.ConnectError):
            client.get("/healthz")
    told = [each for each in starting.log().splitlines() if "import time:" not in each]
    assert not [each for each in told if "Traceback" in each]
    assert told[-1].startswith("the control plane cannot be loaded (ModuleNotFoundError: ")
    assert not (starting.folder / "data" / "control.sock").exists()

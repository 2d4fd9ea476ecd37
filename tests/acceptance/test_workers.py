"""`serve --workers 2`: several processes are one server, whichever dies or is replaced."""

import json
import os
import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from tests.support.child_processes import GONE, children_of, is_running
from tests.support.intern_client import ASK_GATEWAY, InternClient
from tests.support.server_process import ServerProcess, start_server
from tests.support.waiting import wait_until

CONFIG = """
server:
  workers: 2
  trusted_proxies: ["127.0.0.9"]
  max_connections_per_address: 24
providers: [{slug: simulated, kind: simulated}]
"""
WORDS = "one two three four five"


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, database_env: Mapping[str, str]
) -> Generator[ServerProcess]:
    folder = tmp_path_factory.mktemp("workers")
    with start_server(folder, config=CONFIG, env=database_env) as running:
        yield running


def members(server: ServerProcess) -> dict[str, list[int]]:
    """Return the processes of a server by their names."""
    found: dict[str, list[int]] = {}
    for process in children_of(server.process.pid):
        command: list[str] = []
        with suppress(*GONE):
            command = Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8").split("\0")
        if "tollhouse.cli.member" in command:
            found.setdefault(command[-2], []).append(process)
    return found


def lines(server: ServerProcess, event: str) -> int:
    return server.stderr_text().count(f'"event": "{event}"')


@contextmanager
def connect(server: ServerProcess, source: str = "127.0.0.1") -> Generator[HTTPConnection]:
    address = urlsplit(server.origin)
    with closing(HTTPConnection(address.hostname or "", address.port, 60, (source, 0))) as made:
        yield made


def raw(server: ServerProcess) -> socket.socket:
    address = urlsplit(server.origin)
    return socket.create_connection((address.hostname or "", address.port or 0), 60)


def ask(server: ServerProcess, connection: HTTPConnection, kind: str) -> None:
    """Send a request of a kind on a connection, and check that its answer is whole."""
    if kind == "key":
        assert get(server, connection, "/v1/key")["data"]["label"]
        return
    body = {
        "model": "simulated/slow" if kind == "stream" else "simulated/echo",
        "messages": [{"role": "user", "content": WORDS}],
        "stream": kind == "stream",
    }
    headers = {**server.authorization, "Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    reply = connection.getresponse()
    text = reply.read().decode()
    assert reply.status == 200, text
    if kind == "stream":
        assert text.rstrip().endswith("data: [DONE]")
    assert all(word in text for word in WORDS.split())


def get(
    server: ServerProcess, connection: HTTPConnection, path: str, **headers: str
) -> dict[str, Any]:
    connection.request("GET", path, headers={**server.authorization, **headers})
    reply = connection.getresponse()
    text = reply.read()
    assert reply.status == 200, text
    return json.loads(text)


class Load:
    """Clients that keep their connections and ask without end, until the block ends."""

    def __init__(self, server: ServerProcess) -> None:
        self.asked = Counter[str]()
        self.failed: list[str] = []
        self._server = server
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(6)]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for each in self._threads:
            each.join()

    def _run(self, seed: int) -> None:
        choose = random.Random(seed)
        with connect(self._server) as connection:
            while not self._over.is_set():
                kind = choose.choice(("key", "whole", "whole", "stream"))
                try:
                    ask(self._server, connection, kind)
                except (OSError, HTTPException, AssertionError) as error:
                    self.failed.append(f"{kind}: {error!r}")
                    connection.close()
                self.asked[kind] += 1
                self._over.wait(choose.random() / 10)


def test_one_connection_is_answered_by_every_process(server: ServerProcess) -> None:
    for _ in range(2):
        with connect(server) as connection:
            ask(server, connection, "key")
            first = connection.sock
            for kind in ("whole", "key", "stream", "whole", "key"):
                ask(server, connection, kind)
            assert connection.sock is first


def test_requests_come_in_whatever_pieces(server: ServerProcess) -> None:
    key = server.authorization["Authorization"]
    body = json.dumps({"model": "simulated/echo", "messages": [{"role": "user", "content": "x"}]})
    post = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nAuthorization: {key}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )
    listed = f"GET /v1/models?limit=1 HTTP/1.1\r\nHost: h\r\nAuthorization: {key}\r\n\r\n"
    for text in (post, listed, "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"):
        with raw(server) as connection:
            for piece in (text[:3], text[3:9], text[9:]):
                connection.sendall(piece.encode())
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    large = "x" * 600_000  # comes in several reads, and goes on in several packets
    refused = (
        f"POST /v1/keys HTTP/1.1\r\nHost: h\r\nAuthorization: {key}\r\n"
        f"Content-Length: {len(large)}\r\n\r\n{large}"
    )
    with raw(server) as connection:
        connection.sendall(refused.encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")
        connection.sendall(listed.encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    with raw(server) as connection:
        connection.sendall((listed + post + listed).encode())  # those of one process at once
        received = b""
        while received.count(b"HTTP/1.1 200 ") < 3:
            received += connection.recv(65_536)


def test_a_client_has_its_own_address_in_every_process(server: ServerProcess) -> None:
    forwarded = {"X-Forwarded-Host": "gateway.example", "X-Forwarded-Proto": "https"}
    for source, status in (("127.0.0.9", 200), ("127.0.0.1", 400)):
        with connect(server, source) as connection:
            headers = {**server.authorization, **forwarded, "Origin": "https://gateway.example"}
            connection.request("GET", "/v1/key", headers=headers)
            assert connection.getresponse().status == status
    # No header makes a stranger a client of this machine, who may read the metrics.
    with connect(server) as connection:
        connection.request("GET", "/metrics", headers={"X-Forwarded-For": "192.0.2.1"})
        assert connection.getresponse().status == 401


def test_an_address_has_one_limit_in_all_processes(server: ServerProcess) -> None:
    """Also where they are at different processes, and again once they are closed."""

    def held(source: str) -> list[int]:
        with ExitStack() as open_:
            connections = [open_.enter_context(connect(server, source)) for _ in range(30)]
            found: list[int] = []
            for number, each in enumerate(connections):
                path = "/healthz" if number % 2 else "/v1/models"
                each.request("GET", path)
                reply = each.getresponse()
                reply.read()
                found.append(reply.status)
            return found

    for source in ("127.0.0.7", "127.0.0.8", "127.0.0.7"):
        wait_until(lambda source=source: Counter(held(source)) == {200: 24, 429: 6})


def test_an_intern_has_a_terminal_through_any_worker(server: ServerProcess) -> None:
    interns = InternClient(server)
    interns.run("ada")
    for number in range(3):
        assert str(number + 40) in interns.script_output("ada", f"echo $(({number} + 40))\n")
    assert "200" in interns.script_output("ada", f"{ASK_GATEWAY}\n")
    interns.delete_all()


def counted(server: ServerProcess) -> float:
    """Return how many requests to models have ended, in all processes that there ever were."""
    with connect(server) as connection:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    found = [line for line in lines if line.startswith('tollhouse_generations_total{status="200"}')]
    return sum(float(line.split()[1]) for line in found)


def test_metrics_are_those_of_all_processes(server: ServerProcess) -> None:
    before = counted(server)
    with Load(server) as load:
        wait_until(lambda: load.asked["whole"] > 20)
    assert counted(server) == before + load.asked["whole"] + load.asked["stream"]


@pytest.mark.parametrize(
    ("name", "number"),
    [("worker 1", signal.SIGKILL), ("control", signal.SIGKILL), ("control", signal.SIGTERM)],
)
def test_a_process_that_is_killed_comes_again(
    server: ServerProcess, name: str, number: signal.Signals
) -> None:
    ended = lines(server, "process_ended")
    [killed] = members(server)[name]
    os.kill(killed, number)
    wait_until(lambda: members(server).get(name, [killed]) != [killed])
    for kind in ("key", "whole", "stream"):
        with connect(server) as connection:
            ask(server, connection, kind)
    assert lines(server, "process_ended") == ended + 1


def test_a_rolling_restart_fails_no_request(server: ServerProcess) -> None:
    before, ended = members(server), counted(server)
    with Load(server) as load:
        wait_until(lambda: min(load.asked[kind] for kind in ("key", "whole", "stream")) > 2)
        done = lines(server, "processes_replaced")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: lines(server, "processes_replaced") > done)
        asked = load.asked.total()
        wait_until(lambda: load.asked.total() > asked + 20)
    assert load.failed == []
    assert counted(server) == ended + load.asked["whole"] + load.asked["stream"]
    after = members(server)
    assert before.keys() == after.keys() == {"control", "worker 1", "worker 2"}
    assert not {each for found in before.values() for each in found} & {
        each for found in after.values() for each in found
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("server: {workers: 0}", "must be between 1 and 64, or auto"),
        ("server: {workers: 3}", "hold until the whole server is started again"),
    ],
)
def test_settings_that_cannot_be_used_leave_the_processes_as_they_are(
    server: ServerProcess, given: str, said: str
) -> None:
    before, refused = members(server), lines(server, "process_not_replaced")
    [file] = server.data_dir.parent.glob("server-*.yaml")
    file.write_text(given, encoding="utf-8")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: lines(server, "process_not_replaced") > refused)
    file.write_text(CONFIG, encoding="utf-8")
    assert said in server.stderr_text()
    assert members(server) == before


def test_nobody_is_left_behind(tmp_path: Path) -> None:
    """Also the supervisor may be killed: the others see it, end what runs, and go."""
    server = start_server(tmp_path, config=CONFIG)
    processes = [each for found in members(server).values() for each in found]
    assert len(processes) == 3
    with slow_stream(server) as reply:
        server.kill()
        assert "[DONE]" in reply.read().decode()
    wait_until(lambda: not any(map(is_running, processes)))


def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    with start_server(tmp_path, args=["--workers", "1"]) as alone:
        assert not members(alone)
        key = alone.api_key
    server = start_server(tmp_path, config=CONFIG)
    server.announced["api_key"] = key
    processes = [each for found in members(server).values() for each in found]
    with slow_stream(server) as reply:
        for number in range(1, 3):
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda number=number: lines(server, "stopping") or number == 2)
        assert server.process.wait(60) == 1
        with pytest.raises(HTTPException):
            reply.read()
    wait_until(lambda: not any(map(is_running, processes)))
    server.kill()


@contextmanager
def slow_stream(server: ServerProcess) -> Generator[HTTPResponse]:
    """Give a reply that goes on for a while, whose head has come."""
    with connect(server) as connection:
        body = {"model": "simulated/slow", "messages": [{"role": "user", "content": WORDS}]}
        headers = {**server.authorization, "Content-Type": "application/json"}
        text = json.dumps({**body, "stream": True})
        connection.request("POST", "/v1/chat/completions", text, headers)
        yield connection.getresponse()

"""Latency of one account's short requests while another account sends large ones.

    prober (this process)     a short chat, one after the other: the time of each
    senders (each a process)  a large chat, one after the other, or streams, many at once

Both go to the simulated provider, so that nothing but the gateway is waited for.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

from bench.gateway import PROGRAM, Gateway, write_config
from bench.processes import BenchError
from bench.statistic import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.process import BaseProcess
    from pathlib import Path

PATH: Final = "/v1/chat/completions"
_MODEL: Final = "simulated/echo"
_OK: Final = 200
_SETTLE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class BackgroundLoad:
    """The load that another account sends meanwhile."""

    name: str
    senders: int
    body_bytes: int = 0
    """Bytes of each chat's body; 0 for streams."""
    streams: int = 0
    """Concurrent streams of each sender."""


LOADS: Final = (
    BackgroundLoad("nothing", 0),
    BackgroundLoad("10 clients with chats of 2 MB", 10, body_bytes=2_000_000),
    BackgroundLoad("8 clients with chats of 30 MB", 8, body_bytes=30_000_000),
    BackgroundLoad("2,000 streams", 4, streams=500),
)


@dataclass(frozen=True, slots=True)
class ProbeLatencies:
    """The latencies of short requests."""

    load: BackgroundLoad
    milliseconds: Sequence[float]

    def line(self) -> str:
        """Return it as a row of the report."""
        p50, p99 = (percentile(self.milliseconds, percent) for percent in (50, 99))
        longest = max(self.milliseconds)
        count = len(self.milliseconds)
        return f"{self.load.name:<32}{count:>9}{p50:>9.1f}{p99:>9.1f}{longest:>9.1f}"


def measure(folder: Path, seconds: float) -> Sequence[ProbeLatencies]:
    """Return how long short requests take, beside each load for so many seconds."""
    config = write_config(folder / "simulated.yaml", None)
    with Gateway(folder / "data", config) as gateway:
        other = _other_account(folder / "data")
        return [_probe_beside(gateway, other, load, seconds) for load in LOADS]


def report(found: Sequence[ProbeLatencies]) -> str:
    """Return the figures as text."""
    head = f"{'beside':<32}{'requests':>9}{'p50 ms':>9}{'p99 ms':>9}{'longest':>9}"
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    lines = [head, *(each.line() for each in found), f"load average at the end: {load}"]
    return "\n".join(lines) + "\n"


def _probe_beside(
    gateway: Gateway, other: str, load: BackgroundLoad, seconds: float
) -> ProbeLatencies:
    senders: list[BaseProcess] = []
    with ExitStack() as stack:
        for _ in range(load.senders):
            arguments = (gateway.port, other, load)
            sender = multiprocessing.get_context("spawn").Process(target=_send, args=arguments)
            sender.start()
            stack.callback(sender.join)
            stack.callback(sender.kill)
            senders.append(sender)
        sleep(_SETTLE_SECONDS)
        found = ProbeLatencies(load, _probe(gateway.port, gateway.keys.api_key, seconds))
        if not all(sender.is_alive() for sender in senders):
            raise BenchError(f"{load.name}: a sender was refused")
        return found


def _probe(port: int, key: str, seconds: float) -> Sequence[float]:
    """Send short chats one after the other; return the milliseconds of each."""
    body, taken = _chat("hello"), list[float]()
    until = perf_counter() + seconds
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    while perf_counter() < until:
        began = perf_counter()
        if _ask(connection, key, body) != _OK:
            raise BenchError("a short request was not answered")
        taken.append((perf_counter() - began) * 1000)
        sleep(0.01)
    return taken


def _send(port: int, key: str, load: BackgroundLoad) -> None:
    """Send an account's background load until this process is killed."""
    os.nice(10)  # the machine is the gateway's: it is its fairness that is measured
    if load.streams:
        _stream(port, key, load.streams)
    words = [{"role": role, "content": "what is said is short"} for role in ("user", "assistant")]
    turns = words * (load.body_bytes // len(json.dumps(words)))
    body = _chat(turns, max_tokens=5)
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        if (status := _ask(connection, key, body)) != _OK:
            raise SystemExit(status)
        connection.close()


def _stream(port: int, key: str, count: int) -> None:
    body = _chat("one word after the other " * 400, stream=True)
    while True:
        open_: list[http.client.HTTPConnection] = []
        for _ in range(count):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
            connection.request("POST", PATH, body, _headers(key))
            open_.append(connection)
        for connection in open_:
            response = connection.getresponse()
            if response.status != _OK:
                raise SystemExit(response.status)
            response.read()
            connection.close()


def _ask(connection: http.client.HTTPConnection, key: str, body: bytes) -> int:
    connection.request("POST", PATH, body, _headers(key))
    response = connection.getresponse()
    response.read()
    return response.status


def _headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}", "content-type": "application/json"}


def _chat(said: object, **more: Any) -> bytes:
    messages = said if isinstance(said, list) else [{"role": "user", "content": said}]
    return json.dumps({"model": _MODEL, "messages": messages, **more}).encode()


def _other_account(folder: Path) -> str:
    """Return a key of an account of its own."""
    account = _tollhouse(folder, "accounts", "create", "large")
    found = str(account["id"])
    _tollhouse(folder, "credits", "grant", "1000000", "--account", found)
    return str(_tollhouse(folder, "keys", "create", "large", "--account", found)["key"])


def _tollhouse(folder: Path, *words: str) -> dict[str, Any]:
    command = [str(PROGRAM), *words, "--data-dir", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode:
        raise BenchError(f"{' '.join(words)}: {done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer

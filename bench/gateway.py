"""The gateway under test: its settings, its start, its memory, and what it booked."""

from __future__ import annotations

import socket
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import yaml

from bench import cpu
from bench.batches.bodies import ITEMS_BASE, ITEMS_MODEL
from bench.cases import MESSAGES_MODEL, SLOW, TLS, WHOLE
from bench.processes import BenchError, Child
from bench.traffic import INPUT_PRICE, OUTPUT_PRICE, PROVIDER_MODEL

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from bench.target import Ports

PROGRAM = Path(sys.executable).with_name("tollhouse")
_START_SECONDS = 60.0
_OK = b" 200 "
_PLENTY = 1_000_000
_UNLIMITED = 1_000_000_000
_DATABASE = "tollhouse.db"
_CHAT = "openai_compatible"
_MESSAGES = "anthropic"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a data folder, which it shows on its first start only."""

    api_key: str


class Gateway:
    """A running `tollhouse serve`; as a context manager it is ended on the way out."""

    def __init__(
        self,
        folder: Path,
        config: Path,
        keys: Keys | None = None,
        *,
        authority: Path | None = None,
    ) -> None:
        """Start it and wait until it is ready.

        Args:
            folder: Its data folder, which it makes where it is not there.
            config: Its configuration file.
            keys: Those of the folder's first start; None for a new folder.
            authority: Certificate authority that it trusts; the system's where it is None.

        Raises:
            BenchError: It does not start.
        """
        command = [str(PROGRAM), "serve", "--data-dir", str(folder), "--config", str(config)]
        environment = {"TOLLHOUSE_SERVER__CORE_DUMPS": "true"}  # py-spy looks into it
        if authority is not None:
            environment["SSL_CERT_FILE"] = str(authority)
        self.child = Child(
            "the gateway", [*command, "--port", "0", "--json"], environment=environment
        )
        try:
            said = self.child.receive_object(_START_SECONDS)
            self.port = _port(said)
            self._wait_until_ready()
            self.ready_seconds = perf_counter() - self.child.started
            self.ready_cpu_seconds = cpu.read(self.pid).ticks.total
            self.keys = keys or Keys(said["api_key"])
        except BaseException as error:
            self.child.stop()
            if isinstance(error, KeyError):
                raise BenchError(f"the gateway's first line has no {error}") from error
            raise

    def __enter__(self) -> Self:
        """Return the gateway."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self.child.stop()

    @property
    def pid(self) -> int:
        """The process that is measured."""
        return self.child.pid

    def idle_rss(self, seconds: float) -> int:
        """Return its resident memory after some idle seconds."""
        sleep(seconds)
        return cpu.rss(self.pid)

    def _wait_until_ready(self) -> None:
        deadline = self.child.started + _START_SECONDS
        while not _answers(self.port):
            if perf_counter() > deadline:
                raise BenchError(f"the gateway was not ready within {_START_SECONDS:.0f} s")
            sleep(0.002)


def write_config(path: Path, ports: Ports | None) -> Path:
    """Write a configuration file and return its path.

    Args:
        path: Where.
        ports: Those of the upstream; None for the simulated provider alone.
    """
    settings: dict[str, object] = {
        "server": {
            "max_requests_per_address_per_minute": _UNLIMITED,
            "max_connections_per_address": _PLENTY,
        },
        "accounting": {"initial_grant": str(_PLENTY)},
        "upstream": {"connections_per_host": _PLENTY},
    }
    if ports is not None:
        plain = f"http://127.0.0.1:{ports.plain}/v1"
        listed = (
            (WHOLE.model, "bench", _CHAT, plain),
            (TLS.model, "bench-tls", _CHAT, f"https://127.0.0.1:{ports.tls}/v1"),
            (SLOW.model, "bench-slow", _CHAT, f"http://127.0.0.1:{ports.slow}/v1"),
            (MESSAGES_MODEL, "bench-messages", _MESSAGES, plain),
            (ITEMS_MODEL, "bench-items", _CHAT, f"http://127.0.0.1:{ports.plain}{ITEMS_BASE}"),
        )
        settings["providers"] = [_provider(slug, kind, url) for _, slug, kind, url in listed]
        settings["models"] = [_model(model, slug) for model, slug, _, _ in listed]
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return path


def _provider(slug: str, kind: str, base_url: str) -> dict[str, str]:
    return {
        "slug": slug,
        "kind": kind,
        "base_url": base_url,
        "api_key": "none",
    }


def _model(model: str, provider: str) -> dict[str, object]:
    pricing = {"prompt": INPUT_PRICE, "completion": OUTPUT_PRICE}
    endpoint = {"provider": provider, "model": PROVIDER_MODEL, "pricing": pricing}
    return {"id": model, "context_length": 128_000, "endpoints": [endpoint]}


def booked(folder: Path) -> int:
    """Return how many generations are in a stopped gateway's database."""
    return int(str(_ask(folder, "SELECT count(*) FROM generations")))


def status_of_batch(folder: Path, batch_id: str) -> str:
    """Return a batch's status from the database: a request would cost the gateway CPU time."""
    return str(_ask(folder, "SELECT status FROM batches WHERE id = ?", batch_id))


def _ask(folder: Path, query: str, *values: str) -> object:
    with closing(sqlite3.connect(f"file:{folder / _DATABASE}?mode=ro", uri=True)) as connection:
        return connection.execute(query, values).fetchone()[0]


def _port(said: dict[str, object]) -> int:
    """Return the port in the gateway's first line."""
    port = urlsplit(str(said["address"])).port
    if port is None:
        raise BenchError(f"the gateway's first line has no port: {said['address']}")
    return port


def _answers(port: int) -> bool:
    """Tell whether `/readyz` answers 200."""
    request = b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), 5.0) as connection:
            connection.sendall(request)
            head = connection.recv(4096)
    except OSError:
        return False
    return _OK in head.split(b"\r\n", 1)[0]

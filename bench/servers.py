"""The servers of the measurements: the upstream, the gateway, and nginx beside it.

load (process)  ──>  gateway or nginx (measured)  ──>  upstream (process)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trustme
import yaml
from msgspec import Raw

from bench.formats import (
    FORMATS,
    INPUT_PRICE,
    ITEMS_BASE,
    ITEMS_MODEL,
    OUTPUT_PRICE,
    PROVIDER_MODEL,
    chat_request,
)
from bench.load import Target
from bench.processes import BenchError, Child, free_port, wait_until_listening
from tests.support import backdoor

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from bench.report import Report

_ROOT: Final = Path(__file__).parents[1]
MODEL: Final = "bench/fixed"
"""The model of a provider that speaks chat."""
TLS_MODEL: Final = "bench/fixed-tls"
SLOW_MODEL: Final = "bench/fixed-slow"
"""Its streams take seconds, as a model's do."""
MESSAGES_MODEL: Final = "bench/fixed-messages"
"""The model of the provider that speaks messages."""
_START_SECONDS: Final = 60.0
_BOOKED_SECONDS: Final = 20.0
_OK: Final = 200
_PLENTY: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Tree:
    """A checkout whose gateway is measured."""

    name: str
    command: tuple[str, ...]
    """What starts its `tollhouse`."""
    settings: Mapping[str, object]
    """Settings by their dotted names."""

    @classmethod
    def at(cls, root: Path, settings: Mapping[str, object]) -> Tree:
        """Return a checkout whose environment is made."""
        program = root / ".venv" / "bin" / "tollhouse"
        if not program.exists():
            raise BenchError(f"{program} is missing; `make setup` in {root} makes it")
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=False,
        )
        name = " ".join((done.stdout.strip() or root.name, *map(_assignment, settings.items())))
        return cls(name, (str(program),), settings)


def _assignment(setting: tuple[str, object]) -> str:
    return f"{setting[0]}={setting[1]}"


def this_tree(settings: Mapping[str, object] | None = None) -> Tree:
    """Return the checkout of this benchmark."""
    return Tree.at(_ROOT, settings or {})


@dataclass(frozen=True, slots=True)
class Upstream:
    """The running upstream."""

    child: Child
    plain: int
    """Its ports."""
    tls: int
    slow: int
    authority: Path
    """The certificate authority that its certificate is from."""


@contextmanager
def start_upstream(folder: Path) -> Generator[Upstream]:
    """Run the upstream during the block."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, certificate = folder / "authority.pem", folder / "certificate.pem"
    issuer = trustme.CA()
    issuer.cert_pem.write_to_path(authority)
    issued = issuer.issue_cert("127.0.0.1", "localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(certificate)
    command = [sys.executable, "-m", "bench.upstream", str(certificate)]
    with Child("the upstream", command) as child:
        said = child.receive_object()
        yield Upstream(child, said["port"], said["tls_port"], said["slow_port"], authority)


def write_config(path: Path, upstream: Upstream, more: Mapping[str, object]) -> Path:
    """Write a configuration of an upstream's models and return its path.

    `more` has further settings, by their dotted names.
    """
    settings: dict[str, Any] = {
        "server": {
            "max_requests_per_address_per_minute": 1_000 * _PLENTY,
            "max_connections_per_address": _PLENTY,
        },
        "accounting": {"initial_grant": str(_PLENTY)},
        "upstream": {"connections_per_host": _PLENTY},
    }
    for name, value in more.items():
        *sections, last = name.split(".")
        place = settings
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    plain = f"http://127.0.0.1:{upstream.plain}"
    listed = (
        (MODEL, "openai_compatible", f"{plain}/v1"),
        (TLS_MODEL, "openai_compatible", f"https://127.0.0.1:{upstream.tls}/v1"),
        (SLOW_MODEL, "openai_compatible", f"http://127.0.0.1:{upstream.slow}/v1"),
        (MESSAGES_MODEL, "anthropic", f"{plain}/v1"),
        (ITEMS_MODEL, "openai_compatible", plain + ITEMS_BASE),
    )
    pricing = {"prompt": INPUT_PRICE, "completion": OUTPUT_PRICE}
    slugs = [model.replace("/", "-") for model, _, _ in listed]
    settings["providers"] = [
        {"slug": slug, "kind": kind, "base_url": url, "api_key": "no-key-at-all"}
        for slug, (_, kind, url) in zip(slugs, listed, strict=True)
    ]
    settings["models"] = [
        {
            "id": model,
            "context_length": 128_000,
            "endpoints": [{"provider": slug, "model": PROVIDER_MODEL, "pricing": pricing}],
        }
        for slug, (model, _, _) in zip(slugs, listed, strict=True)
    ]
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return path


class Gateway(AbstractContextManager["Gateway"]):
    """A running `tollhouse serve`; as a context manager it is ended on the way out."""

    first_reply_seconds: float
    """From its start to the end of its first reply to an inference request."""
    ready_seconds: float
    """From its start until `/readyz` answered 200."""

    def __init__(
        self,
        folder: Path,
        config: Path,
        keys: Sequence[str],
        command: Sequence[str],
        authority: Path,
        database: Path | str,
    ) -> None:
        self.folder, self.keys, self.database = folder, keys, database
        self.port = free_port()
        self.sent = self.booked() if keys else 0
        """Generations that its folder should have: of requests so far, and of items of batches."""
        arguments = ["--data-dir", str(folder), "--config", str(config), "--json"]
        variables = {
            "TOLLHOUSE_SERVER__CORE_DUMPS": "true",  # py-spy looks into it
            "SSL_CERT_FILE": str(authority),
        }
        arguments += ["--port", str(self.port)]
        self.child = Child("the gateway", [*command, *arguments], environment=variables)
        self.pid = self.child.pid
        try:
            if not keys:
                said = self.child.receive_object(_START_SECONDS)
                self.keys = (said["api_key"], said["management_key"])
            body = Raw(chat_request(MODEL, stream=False))
            self.first_reply_seconds = self._wait_until("POST", FORMATS["chat"].path, body)
            self.sent += 1
            self.ready_seconds = self._wait_until("GET", "/readyz")
        except BaseException as error:
            self.child.stop()
            if isinstance(error, KeyError):
                raise BenchError(f"the gateway's first line has no {error}") from error
            raise

    def __exit__(self, *_: object) -> None:
        self.child.stop()

    @property
    def key(self) -> str:
        """The first account's key."""
        return self.keys[0]

    def ask(self, method: str, path: str, body: object = None, key: str = "") -> tuple[int, Any]:
        """Send one request on a connection of its own; return its status and its JSON body."""
        headers = {"authorization": f"Bearer {key or self.key}", "content-type": "application/json"}
        sent = None if body is None else msgspec.json.encode(body)
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, sent, headers)
            response = connection.getresponse()
            data = response.read()
        return response.status, msgspec.json.decode(data) if data else None

    def expect(self, method: str, path: str, body: object = None, key: str = "") -> Any:
        """Send one request and return the JSON body of its reply."""
        status, said = self.ask(method, path, body, key)
        if not 200 <= status < 300:
            raise BenchError(f"{method} {path} was answered with {status}: {said}")
        return said

    def query(self, statement: str, *values: str) -> Any:
        """Return one value from the database: a request would cost the gateway CPU time."""
        return backdoor.execute(self, statement, *values)[0][0]

    def booked(self) -> int:
        """Return how many generations the database has."""
        return int(self.query("SELECT count(*) FROM generations"))

    def wait_until_booked(self) -> None:
        """Return once every request so far is in the database: its cost has been paid."""
        deadline = perf_counter() + _BOOKED_SECONDS
        while (found := self.booked()) < self.sent and perf_counter() < deadline:
            sleep(0.02)
        if found != self.sent:
            raise BenchError(f"{self.sent} requests were answered, {found} are booked")

    def _wait_until(self, method: str, path: str, body: object = None) -> float:
        """Return after how many seconds from the start a request is answered with 200."""
        while True:
            with suppress(OSError, HTTPException):
                if self.ask(method, path, body)[0] == _OK:
                    return perf_counter() - self.child.started
            if not self.child.running:
                self.child.receive_object(1.0)  # raises, with its last words
            if perf_counter() > self.child.started + _START_SECONDS:
                raise BenchError(f"the gateway was not ready within {_START_SECONDS:.0f} s")
            sleep(0.002)


class Side:
    """A checkout in a comparison: its data folder, its figures, and its gateway while it runs."""

    gateway: Gateway

    def __init__(
        self, name: str, tree: Tree, folder: Path, upstream: Upstream, report: Report
    ) -> None:
        self.name = name
        self.report = report
        self.data = folder / name
        self.keys: Sequence[str] = ()
        """The first account's and the operator's; none where there is no data folder yet."""
        self._tree, self._folder, self._upstream = tree, folder, upstream
        self._config = write_config(folder / f"{name}.yaml", upstream, tree.settings)

    def start(self, *more: str) -> Gateway:
        """Start the gateway, in the folder of the one before, perhaps with more options."""
        command = [*self._tree.command, "serve", *more]
        database = self._tree.settings.get("database_url", self.data / "tollhouse.db")
        given = (command, self._upstream.authority, database)
        self.gateway = Gateway(self.data, self._config, self.keys, *given)
        self.keys = self.gateway.keys
        return self.gateway

    def another(self, name: str, settings: Mapping[str, object]) -> Side:
        """Return one of the same checkout, with a folder of its own and more settings."""
        tree = replace(self._tree, settings={**self._tree.settings, **settings})
        return Side(name, tree, self._folder, self._upstream, self.report)


# nginx as a plain reverse proxy, for comparison: it reads no JSON and knows no keys.

NGINX_MISSING: Final = (
    "nginx is not installed, so there is no ratio; on Debian: apt-get install nginx-light"
)
UNBUFFERED: Final = "/unbuffered"
"""Requests below this path are relayed as the bytes come."""
TLS_UPSTREAM: Final = "/tls"
"""Requests below this path go to the upstream's TLS port, whose certificate is verified."""

_NGINX: Final = """\
{user}daemon off;
worker_processes 1;
error_log stderr error;
pid {folder}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_buffer_size 64k;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream fixed {{
        server 127.0.0.1:{upstream.plain};
        keepalive 256;
        keepalive_requests 1000000000;
    }}
    upstream fixed_tls {{
        server 127.0.0.1:{upstream.tls};
        keepalive 256;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        location / {{ proxy_pass http://fixed; }}
        location {unbuffered}/ {{
            proxy_buffering off;
            proxy_pass http://fixed/;
        }}
        location {tls}/ {{
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_ssl_trusted_certificate {upstream.authority};
            proxy_pass https://fixed_tls/;
        }}
    }}
}}
"""


def find_nginx() -> str | None:
    """Return where nginx is, or None."""
    # Debian keeps it where only root's path looks.
    places = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"
    return shutil.which("nginx", path=places)


def nginx_version() -> str:
    """Return what nginx says of its version; "nothing" where it is not installed."""
    program = find_nginx()
    if program is None:
        return "nothing"
    done = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
    return done.stderr.strip().removeprefix("nginx version: ")


@contextmanager
def nginx_beside(folder: Path, upstream: Upstream) -> Generator[Target | None]:
    """Run nginx in front of an upstream, where it is installed."""
    program = find_nginx()
    if program is None:
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    port, path = free_port(), folder / "nginx.conf"
    # A worker of root's stays root, to reach the folder.
    user = "user root;\n" if os.geteuid() == 0 else ""
    text = _NGINX.format(
        user=user,
        folder=folder,
        port=port,
        upstream=upstream,
        unbuffered=UNBUFFERED,
        tls=TLS_UPSTREAM,
    )
    path.write_text(text, encoding="utf-8")
    with Child("nginx", [program, "-p", str(folder), "-e", "stderr", "-c", str(path)]) as child:
        wait_until_listening(child, port, 10.0)
        yield Target("nginx", child.pid, port)

"""What is started for the measurements, and what a load costs each process."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import trustme
import yaml

from bench import cpu
from bench.egress.hosts import BOUND, LOCAL, UNREAD, WILDCARD
from bench.processes import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from bench.egress.load import Plan

_UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class Upstream:
    """The running host."""

    child: Child
    port: int
    authority: Path
    """The certificate authority that its certificate is from."""


def start_upstream(folder: Path) -> Upstream:
    """Start the host; its certificates are written to the folder.

    Raises:
        BenchError: It does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority, certificate = folder / "authority.pem", folder / "certificate.pem"
    issuer = trustme.CA()
    issuer.cert_pem.write_to_path(authority)
    names = (BOUND, UNREAD, LOCAL, WILDCARD)
    issuer.issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(certificate)
    command = [sys.executable, "-m", "bench.egress.upstream", "--certificate", str(certificate)]
    child = Child("the host", command)
    try:
        said = child.receive_object()
    except BaseException:
        child.stop()
        raise
    return Upstream(child, int(said["port"]), authority)


def write_config(path: Path, upstream: Upstream, hosts: Iterable[str], tunnels: int) -> Path:
    """Write the server's configuration file and return its path.

    Args:
        path: Where.
        upstream: The host.
        hosts: Its names.
        tunnels: How many connections there are at once.
    """
    settings = {
        "outbound": {
            "allow_networks": ["127.0.0.0/8"],
            "extra_ca_file": str(upstream.authority),
            "addresses": [f"{host}=127.0.0.1" for host in hosts],
        },
        "egress": {
            "allow_ports": [f"{host}:{upstream.port}" for host in hosts],
            "max_connections": 2 * tunnels,
            "bytes_per_minute": _UNLIMITED,
        },
    }
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return path


@dataclass(frozen=True, slots=True)
class Cost:
    """What a load took."""

    said: Mapping[str, Any]
    """By the load itself."""
    seconds: Mapping[str, float]
    """CPU time by process."""


def measure(plan: Plan, pids: Mapping[str, int], then: Callable[[], None] = lambda: None) -> Cost:
    """Do what a plan says, and return what it took.

    Args:
        plan: What.
        pids: Of the processes that are measured, by their names.
        then: Called while all connections of the load still stand.

    Raises:
        BenchError: An answer was wrong: figures of what fails say nothing.
    """
    command = [sys.executable, "-m", "bench.egress.load", msgspec.json.encode(plan).decode()]
    with Child("the load", command, seconds=300.0) as load:
        load.receive_object()
        before = {name: cpu.read(pid) for name, pid in pids.items()}
        load.send_line("go")
        said = load.receive_object()
        used = {name: cpu.cpu_time(before[name], cpu.read(pid)) for name, pid in pids.items()}
        then()
    return Cost(said, {name: each.seconds for name, each in used.items()})

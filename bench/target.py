"""The upstream, the servers in front of it, and the cost of one load for a server.

load (process)  ──>  target (the measured process)  ──>  upstream (process)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trustme

from bench import cpu
from bench.processes import BenchError, Child

if TYPE_CHECKING:
    from pathlib import Path

    from bench.cases import Case
    from bench.gateway import Gateway


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the upstream listens."""

    plain: int
    tls: int
    slow: int
    """Its streams take seconds, as a model's do."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The running upstream."""

    child: Child
    ports: Ports
    authority: Path
    """The certificate authority that its certificate is from."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server that a load is sent to."""

    name: str
    pid: int
    port: int
    key: str = "none"
    prefixed: bool = False
    """Whether the path has to begin with the case's prefix."""
    priced: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """How to send a case."""

    requests: int
    concurrency: int = 32
    warmup: int | None = None
    """How many requests go before the measured ones; each connection's second unless given."""
    rate: float = 0.0
    """Requests begun each second, whatever becomes of those before; 0 for one after the other."""
    each: bool = False
    """Whether it goes on until a further line comes, and says each latency; see `bench.load`."""

    @property
    def sent(self) -> int:
        """How many requests it sends in all."""
        return self.requests + self.before

    @property
    def before(self) -> int:
        """How many requests precede the measured ones: every connection is used."""
        return 2 * self.concurrency if self.warmup is None else self.warmup


def start_upstream(
    folder: Path, chunk_interval_ms: float, slow_interval_ms: float, *, tell: bool = False
) -> Upstream:
    """Start the upstream; its certificates are written to the folder.

    Args:
        folder: Where they go.
        chunk_interval_ms: Between two chunks of a stream.
        slow_interval_ms: The same on the slow port.
        tell: Whether it says a line for each stream that its client cut.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority, certificate = folder / "authority.pem", folder / "certificate.pem"
    issuer = trustme.CA()
    issuer.cert_pem.write_to_path(authority)
    issuer.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(
        certificate
    )
    command = [sys.executable, "-m", "bench.upstream", "--certificate", str(certificate)]
    command += ["--chunk-interval-ms", str(chunk_interval_ms)]
    command += ["--slow-interval-ms", str(slow_interval_ms)] + ["--tell"] * tell
    child = Child("the upstream", command)
    try:
        said = child.receive_object()
    except BaseException:
        child.stop()
        raise
    ports = Ports(int(said["port"]), int(said["tls_port"]), int(said["slow_port"]))
    return Upstream(child, ports, authority)


def gateway_target(gateway: Gateway) -> Target:
    """Return the gateway as a target."""
    return Target("gateway", gateway.pid, gateway.port, key=gateway.keys.api_key, priced=True)


def upstream_target(upstream: Upstream, port: int) -> Target:
    """Return one of the upstream's ports as a target, for figures without a gateway."""
    return Target("direct", upstream.child.pid, port)


def start_load(target: Target, case: Case, load: Load) -> Child:
    """Start a load, warm up with it, and return it ready to go."""
    command = [sys.executable, "-m", "bench.load", "--port", str(target.port)]
    command += ["--format", case.format, "--model", case.model, "--key", target.key]
    command += ["--prefix", (case.prefix or "") if target.prefixed else ""]
    command += ["--requests", str(load.requests), "--warmup", str(load.before)]
    command += ["--concurrency", str(load.concurrency), "--rate", str(load.rate)]
    command += ["--stream"] * case.stream + ["--priced"] * target.priced
    command += ["--each"] * load.each
    child = Child("the load", command, seconds=300.0)
    try:
        child.receive_object()
    except BaseException:
        child.stop()
        raise
    return child


def run_load(load: Child) -> dict[str, Any]:
    """Run a load and return its result; see `load_result`."""
    load.send_line("go")
    return load_result(load)


def load_result(load: Child) -> dict[str, Any]:
    """Wait for a load to end.

    Raises:
        BenchError: A reply was wrong: figures of a server that fails say nothing.
    """
    said = load.receive_object()
    if said["failures"]:
        raise BenchError(f"replies were wrong: {said['failures']}")
    return said


@dataclass(frozen=True, slots=True)
class Round:
    """The cost of one load on one server."""

    microseconds: float
    """CPU time of the measured process for one request."""
    system_share: float
    main_share: float
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    pieces: float
    """Reads at the client for one reply."""
    lag_p50_ms: float
    """From the upstream's write of a chunk to the client's read; 0 where no chunk has its time."""
    lag_p99_ms: float


def measure(target: Target, case: Case, load: Load) -> Round:
    """Send one round of requests and return what they cost the target."""
    with start_load(target, case, load) as child:
        before = cpu.read(target.pid)
        said = run_load(child)
        used = cpu.cpu_time(before, cpu.read(target.pid))
    requests = int(said["requests"])
    return Round(
        microseconds=used.seconds / requests * 1e6,
        system_share=used.system_share,
        main_share=used.main_share,
        requests_per_second=requests / float(said["seconds"]),
        p50_ms=float(said["p50_ms"]),
        p99_ms=float(said["p99_ms"]),
        pieces=float(said["pieces"]) / requests,
        lag_p50_ms=float(said["lag_p50_ms"]),
        lag_p99_ms=float(said["lag_p99_ms"]),
    )

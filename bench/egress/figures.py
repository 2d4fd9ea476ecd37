"""How much is measured of the egress proxy, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.egress.hosts import BOUND, UNREAD

if TYPE_CHECKING:
    from collections.abc import Mapping

DIRECT: Final = "straight"
PROXY: Final = "proxy"
MITMPROXY: Final = "mitmproxy"


@dataclass(frozen=True, slots=True)
class Case:
    """Small requests of one kind."""

    through: str
    host: str
    secret: bool
    connections: int


def _cases() -> dict[str, Case]:
    kinds = {
        "straight to the host": (DIRECT, BOUND, False),
        "unread": (PROXY, UNREAD, False),
        "without a placeholder": (PROXY, BOUND, False),
        "with one secret": (PROXY, BOUND, True),
        "mitmproxy, without a placeholder": (MITMPROXY, BOUND, False),
        "mitmproxy, with one secret": (MITMPROXY, BOUND, True),
    }
    return {
        f"{name}, {connections} at once": Case(*kind, connections)
        for name, kind in kinds.items()
        for connections in (1, 32)
    }


CASES: Final[Mapping[str, Case]] = _cases()


@dataclass(frozen=True, slots=True)
class BodyCase:
    """Large bodies of one kind."""

    host: str
    up: bool
    """Whether the client sends it."""
    secret: bool


def _bodies() -> dict[str, BodyCase]:
    kinds = {
        "unread": (UNREAD, False),
        "intercepted": (BOUND, False),
        "with one secret": (BOUND, True),
    }
    return {
        f"{route}, {name}": BodyCase(host, route == "up", secret)
        for name, (host, secret) in kinds.items()
        for route in ("up", "down")
    }


BODIES: Final[Mapping[str, BodyCase]] = _bodies()


@dataclass(frozen=True, slots=True)
class EgressDose:
    """How much is measured."""

    rounds: int = 5
    requests: int = 3_000
    """Of a round, of each case."""
    hosts: int = 50
    """New ones of a round."""
    body_bytes: int = 64_000_000
    body_rounds: int = 3
    tunnels: int = 1_000
    """Half of them intercepted, half unread."""


QUICK_EGRESS: Final = EgressDose(
    rounds=1, requests=64, hosts=3, body_bytes=1_000_000, body_rounds=1, tunnels=20
)


@dataclass(frozen=True, slots=True)
class Requests:
    """One round of one case: microseconds of CPU a request, by process."""

    proxy: float
    server: float
    host: float
    per_second: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class NewHosts:
    """One round of hosts never seen before: milliseconds a host."""

    proxy_ms: float
    server_ms: float
    p50_ms: float
    """From the first byte of CONNECT until both handshakes are done, by the clock."""
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Body:
    """One large body."""

    host_seconds: float
    """CPU time."""
    proxy_seconds: float
    """CPU time."""
    seconds: float
    peak_bytes: int
    """The most memory of the proxy meanwhile."""
    more_bytes: int
    """Over what it had before."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of the proxy."""

    idle: int
    """With one session, before its first connection."""
    loaded: int
    """After all requests."""
    before: int
    """Before the tunnels."""
    tunnels: int
    """While all of them stand."""
    mitmproxy: int | None = None
    """mitmproxy's, after its own requests."""


@dataclass(slots=True)
class EgressFigures:
    """Everything that was measured."""

    requests: dict[str, list[Requests]] = field(default_factory=dict)
    hosts: list[NewHosts] = field(default_factory=list[NewHosts])
    bodies: dict[str, list[Body]] = field(default_factory=dict)
    memory: Memory = field(default_factory=lambda: Memory(0, 0, 0, 0))
    mitmproxy: str | None = None
    """Its version, where it is installed."""
    load_average: float = 0.0

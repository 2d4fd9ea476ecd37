"""What is measured, as scenarios: each gives figures, round by round.

    comparison.measure     upstream, nginx, gateways  ──>  round, round, ...  ──>  reports

The gateways of all checkouts are measured in the same rounds, in turns with nginx, so that all of
them see the same machine; a ratio is of one round.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import msgspec

from bench.load import Load, Target, run_load
from bench.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.load import Round
    from bench.report import Report
    from bench.servers import Side, Upstream


class Figure(NamedTuple):
    """One round's value of a row of a report."""

    report: Report
    name: str
    value: float
    unit: str
    aim: float | None = None


class Scenario(Protocol):
    """One part of a table."""

    name: str
    """What the part is called on the command line."""
    rounds: int
    """How often it is measured."""
    keeps_running: ClassVar[bool]
    """Whether all gateways run through its rounds; otherwise it starts those that it needs."""

    def round(self, bench: Bench, /) -> Iterator[Figure]:
        """Measure once."""
        ...


@dataclass(slots=True)
class Bench:
    """What scenarios measure."""

    folder: Path
    sides: list[Side]
    """A gateway each."""
    upstream: Upstream
    nginx: Target | None
    """None where it is not installed."""

    def in_turns(self) -> list[Side]:
        """Return the sides, another one first each time."""
        self.sides.append(self.sides.pop(0))
        return list(self.sides)

    def beside(self, prefix: str | None, load: Load) -> Round | None:
        """Send a load to nginx, if there is one and it can be compared."""
        if self.nginx is None or prefix is None:
            return None
        return run_load(Target("nginx", self.nginx.pid, self.nginx.port, prefix=prefix), load)

    def items_received(self) -> int:
        """Return how many items of batches came to the upstream since the last call."""
        port = self.upstream.plain
        with closing(HTTPConnection("127.0.0.1", port, timeout=300)) as connection:
            connection.request("GET", "/received")
            return int(msgspec.json.decode(connection.getresponse().read())["count"])


def require(holds: object, otherwise: str) -> None:
    """End the measurement unless something holds: figures of a server that fails say nothing."""
    if not holds:
        raise BenchError(otherwise)

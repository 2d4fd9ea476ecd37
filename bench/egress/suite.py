"""The measurements of the egress proxy, in their order.

One server with one session, and one process that plays every host. A round goes through all cases
of requests, so that what is compared saw the same noise.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from itertools import count, islice
from typing import TYPE_CHECKING, Final

from bench import cpu
from bench.egress import load, mitmproxy
from bench.egress.client import Route
from bench.egress.figures import (
    BODIES,
    CASES,
    DIRECT,
    MITMPROXY,
    PROXY,
    Body,
    EgressFigures,
    Memory,
    NewHosts,
    Requests,
)
from bench.egress.hosts import BOUND, LOCAL, SECRET, UNREAD, VALUE, fresh
from bench.egress.session import Session, store
from bench.egress.target import measure, start_upstream, write_config
from bench.gateway import Gateway
from bench.suite import report_progress

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.egress.figures import Case, EgressDose
    from bench.egress.target import Cost, Upstream

_SERVER: Final = "server"
_HOST: Final = "host"
_MICRO: Final = 1e6
_MILLI: Final = 1e3


class EgressSuite:
    """One run of all measurements of the proxy."""

    def __init__(self, folder: Path, dose: EgressDose) -> None:
        """Plan a run.

        Args:
            folder: An empty folder for data and configurations.
            dose: How much.
        """
        self._folder = folder
        self._dose = dose
        self._figures = EgressFigures(load_average=os.getloadavg()[0])

    def run(self) -> EgressFigures:
        """Measure everything.

        Raises:
            BenchError: Something did not start, or answered wrongly.
        """
        with ExitStack() as stack:
            bench = start_bench(self._folder, self._dose, stack)
            self._figures.mitmproxy = mitmproxy.version()
            others = self._others(bench, stack)
            idle = cpu.rss(bench.pids[PROXY])
            for number in range(1, self._dose.rounds + 1):
                self._round(bench, others, f"{number}/{self._dose.rounds}")
            loaded = cpu.rss(bench.pids[PROXY])
            theirs = cpu.rss(others[MITMPROXY][1][PROXY]) if MITMPROXY in others else None
            for name in BODIES:
                rounds = range(self._dose.body_rounds)
                self._figures.bodies[name] = [self._body(bench, name) for _ in rounds]
                report_progress(f"bodies, {name}")
            before, with_tunnels = self._tunnels(bench)
            self._figures.memory = Memory(idle, loaded, before, with_tunnels, theirs)
        return self._figures

    def _others(
        self, bench: EgressBench, stack: ExitStack
    ) -> dict[str, tuple[Route, dict[str, int]]]:
        """Return ways and processes of each kind of case."""
        host = {_HOST: bench.upstream.child.pid}
        straight = Route(bench.upstream.port, str(bench.upstream.authority))
        found = {DIRECT: (straight, host), PROXY: (bench.session.route, bench.pids)}
        if self._figures.mitmproxy is not None:
            child, route = mitmproxy.start(self._folder / "mitmproxy", bench.upstream)
            stack.enter_context(child)
            found[MITMPROXY] = (route, {PROXY: child.pid, **host})
        return found

    def _round(
        self, bench: EgressBench, others: Mapping[str, tuple[Route, dict[str, int]]], number: str
    ) -> None:
        figures = self._figures
        for name, case in CASES.items():
            if case.through in others:
                done = self._requests(case, *others[case.through])
                figures.requests.setdefault(name, []).append(done)
                report_progress(f"round {number}, {name}: {done.proxy:.0f} us in the proxy")
        figures.hosts.append(self._new_hosts(bench))
        report_progress(
            f"round {number}, new hosts: {figures.hosts[-1].proxy_ms:.1f} ms in the proxy"
        )

    def _requests(self, case: Case, route: Route, pids: Mapping[str, int]) -> Requests:
        requests = self._dose.requests
        # mitmproxy asks the name server, which knows nothing of the others.
        host = LOCAL if case.through == MITMPROXY else case.host
        cost = measure(load.Requests(route, host, case.connections, requests, case.secret), pids)
        proxy, server, at_host = (seconds / requests * _MICRO for seconds in _by_process(cost))
        said = cost.said
        per_second = requests / said["seconds"]
        return Requests(proxy, server, at_host, per_second, said["p50_ms"], said["p99_ms"])

    def _new_hosts(self, bench: EgressBench) -> NewHosts:
        hosts = list(islice(bench.fresh, self._dose.hosts))
        cost = measure(load.NewHosts(bench.session.route, hosts), bench.pids)
        proxy, server, _ = (seconds / len(hosts) * _MILLI for seconds in _by_process(cost))
        return NewHosts(proxy, server, cost.said["p50_ms"], cost.said["p99_ms"])

    def _body(self, bench: EgressBench, name: str) -> Body:
        case = BODIES[name]
        proxy = bench.pids[PROXY]
        resident = cpu.rss(proxy)
        cpu.forget_peak(proxy)
        cost = measure(
            load.Body(bench.session.route, case.host, self._dose.body_bytes, case.up, case.secret),
            bench.pids,
        )
        peak = cpu.peak_rss(proxy)
        at_host, at_proxy = cost.seconds[_HOST], cost.seconds[PROXY]
        return Body(at_host, at_proxy, cost.said["seconds"], peak, max(0, peak - resident))

    def _tunnels(self, bench: EgressBench) -> tuple[int, int]:
        """Return resident bytes before the tunnels, and with all of them."""
        proxy = bench.pids[PROXY]
        before = cpu.rss(proxy)
        standing: list[int] = []
        half = self._dose.tunnels // 2
        plan = load.Tunnels(bench.session.route, [BOUND, UNREAD] * half)
        measure(plan, {}, lambda: standing.append(cpu.rss(proxy)))
        report_progress(f"{2 * half} tunnels")
        return before, standing[0]


class EgressBench:
    """The host, the server and the session of one measurement."""

    def __init__(self, upstream: Upstream, gateway: Gateway, session: Session) -> None:
        self.upstream = upstream
        self.session = session
        self.fresh = (fresh(number) for number in count())
        """Hosts that nothing was connected to yet."""
        self.pids = {
            PROXY: session.pid,
            _SERVER: gateway.pid,
            _HOST: upstream.child.pid,
        }


def start_bench(folder: Path, dose: EgressDose, stack: ExitStack) -> EgressBench:
    """Start a host, a server and a session, until the stack is left."""
    upstream = start_upstream(folder / "host")
    stack.enter_context(upstream.child)
    hosts = [fresh(number) for number in range(dose.rounds * dose.hosts)]
    names = [BOUND, UNREAD, *hosts]
    config = write_config(folder / "egress.yaml", upstream, names, max(dose.tunnels, 64))
    data = folder / "data-egress"
    gateway = stack.enter_context(Gateway(data, config))
    store(gateway, SECRET, VALUE, [BOUND])
    store(gateway, "fresh", VALUE, hosts)
    session = stack.enter_context(Session(data, gateway, upstream.port))
    return EgressBench(upstream, gateway, session)


def _by_process(cost: Cost) -> tuple[float, float, float]:
    """Return the CPU seconds of the proxy, of the server without it, and of the host."""
    proxy = cost.seconds.get(PROXY, 0.0)
    both = cost.seconds.get(_SERVER, proxy)  # it is a child of the server's
    return proxy, max(0.0, both - proxy), cost.seconds[_HOST]

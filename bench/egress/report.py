"""The figures of the egress proxy as text, and the aims beside them. Pure."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from bench.egress.figures import CASES, DIRECT, MITMPROXY
from bench.egress.mitmproxy import MISSING
from bench.report import MB, table
from bench.statistic import judge, ratios, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.egress.figures import EgressDose, EgressFigures, Requests
    from bench.statistic import Verdict

REQUEST_LIMIT_US: Final = 250.0
HOST_LIMIT_MS: Final = 15.0
TUNNELS_LIMIT_MB: Final = 200.0
_BARE: Final = "straight to the host, 1 at once"
"""One at once: of many a busy host reads more in one go, or does not, as it comes."""
_JUDGED: Final = ("without a placeholder", "with one secret")


def request_table(figures: EgressFigures) -> str:
    """Return CPU time for a request, by case and process."""
    rows = [["CPU us a request", "proxy", "min", "max", "server", "host", "requests/s"]]
    rows[0] += ["p50 ms", "p99 ms"]
    for name, rounds in figures.requests.items():
        straight = CASES[name].through == DIRECT
        cost = spread([each.proxy for each in rounds])
        bounds = (cost.median, cost.least, cost.most)
        rows.append(
            [
                name,
                *("-" if straight else f"{value:.0f}" for value in bounds),
                "-" if CASES[name].through in {DIRECT, MITMPROXY} else _us(rounds, "server"),
                _us(rounds, "host"),
                _us(rounds, "per_second"),
                f"{median(each.p50_ms for each in rounds):.2f}",
                f"{median(each.p99_ms for each in rounds):.2f}",
            ]
        )
    return table(rows)


def ratio_table(figures: EgressFigures) -> str:
    """Return what the proxy costs over the host, and mitmproxy over the proxy."""
    rows = [["ratio, round by round", "median", "min", "max"]]
    for name in figures.requests:
        if name.startswith(_JUDGED):
            rows.append(_ratio_row(f"{name}, over the host's own", figures, name, _BARE))
        if CASES[name].through == MITMPROXY:
            ours = name.removeprefix(f"{MITMPROXY}, ")
            rows.append(_ratio_row(f"{name}, over ours", figures, name, ours))
    return table(rows)


def host_table(figures: EgressFigures) -> str:
    """Return what hosts cost that were never seen before."""
    rows = [["a new host", "median", "min", "max"]]
    for name, field in (
        ("proxy, CPU ms", "proxy_ms"),
        ("server, CPU ms", "server_ms"),
        ("by the clock, p50 ms", "p50_ms"),
        ("by the clock, p99 ms", "p99_ms"),
    ):
        found = spread([getattr(each, field) for each in figures.hosts])
        bounds = (found.median, found.least, found.most)
        rows.append([name, *(f"{value:.1f}" for value in bounds)])
    return table(rows)


def body_table(figures: EgressFigures, dose: EgressDose) -> str:
    """Return what large bodies cost."""
    title = f"a body of {dose.body_bytes / MB:.0f} MB"
    rows = [[title, "proxy, CPU s", "min", "max", "host, CPU s", "seconds", "MB/s"]]
    rows[0] += ["the most MB", "more MB"]
    for name, rounds in figures.bodies.items():
        cost = spread([each.proxy_seconds for each in rounds])
        rows.append(
            [
                name,
                *(f"{value:.2f}" for value in (cost.median, cost.least, cost.most)),
                f"{median(each.host_seconds for each in rounds):.2f}",
                f"{median(each.seconds for each in rounds):.2f}",
                f"{median(dose.body_bytes / MB / each.seconds for each in rounds):.0f}",
                f"{max(each.peak_bytes for each in rounds) / MB:.0f}",
                f"{max(each.more_bytes for each in rounds) / MB:.1f}",
            ]
        )
    return table(rows)


def memory_table(figures: EgressFigures, dose: EgressDose) -> str:
    """Return the proxy's resident memory."""
    memory = figures.memory
    rows: list[tuple[str, int]] = [
        ("a session without a connection", memory.idle),
        ("after all requests", memory.loaded),
        (f"before {dose.tunnels} tunnels", memory.before),
        (f"with {dose.tunnels} tunnels", memory.tunnels),
    ]
    if memory.mitmproxy is not None:
        rows.append(("mitmproxy, after its requests", memory.mitmproxy))
    return table([["proxy's memory (RSS)", "MB"], *([n, f"{size / MB:.1f}"] for n, size in rows)])


def tables(figures: EgressFigures, dose: EgressDose) -> str:
    """Return all tables."""
    parts = [
        request_table(figures),
        ratio_table(figures),
        host_table(figures),
        body_table(figures, dose),
        memory_table(figures, dose),
    ]
    if figures.mitmproxy is None:
        parts.append(MISSING)
    return "\n\n".join(parts)


def verdicts(figures: EgressFigures, dose: EgressDose) -> list[Verdict]:
    """Return every aim beside its figure."""
    costs = {
        name: median(each.proxy for each in rounds)
        for name, rounds in figures.requests.items()
        if name.startswith(_JUDGED)
    }
    new = figures.hosts
    memory = figures.memory.tunnels / MB
    return [
        *(judge(f"request {name}", cost, REQUEST_LIMIT_US, " us") for name, cost in costs.items()),
        judge("new host, CPU", median(e.proxy_ms for e in new), HOST_LIMIT_MS, " ms", 1),
        judge("new host, by the clock", median(e.p50_ms for e in new), HOST_LIMIT_MS, " ms", 1),
        judge(f"memory with {dose.tunnels} tunnels", memory, TUNNELS_LIMIT_MB, " MB"),
    ]


def verdict_table(figures: EgressFigures, dose: EgressDose) -> str:
    """Return the aims as text."""
    rows = [["aim", "measured", "aim", "verdict"]]
    rows += [[each.name, each.measured, each.aim, each.verdict] for each in verdicts(figures, dose)]
    return table(rows)


def text(figures: EgressFigures, dose: EgressDose) -> str:
    """Return everything."""
    load = f"the machine's load average was {figures.load_average:.1f} before."
    return "\n\n".join([tables(figures, dose), verdict_table(figures, dose), load]) + "\n"


def _us(rounds: Sequence[Requests], field: str) -> str:
    return f"{median(getattr(each, field) for each in rounds):.0f}"


def _ratio_row(title: str, figures: EgressFigures, name: str, other: str) -> list[str]:
    ours = [each.proxy for each in figures.requests[name]]
    rounds = figures.requests[other]
    theirs = [each.host if CASES[other].through == DIRECT else each.proxy for each in rounds]
    found = spread(ratios(ours, theirs))
    return [title, *(f"{value:.2f}" for value in (found.median, found.least, found.most))]

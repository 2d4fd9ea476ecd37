"""The figures as text: the table on standard output and the aims beside them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.statistic import Spread, Verdict, judge, ratios, scaled_limit, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.suite import Figures, Round

WHOLE_LIMIT_US: Final = 80.0
"""Set for machines where nginx costs between the next two figures; scaled elsewhere."""
NGINX_LEAST_US: Final = 10.0
NGINX_MOST_US: Final = 14.0
STREAM_LIMIT: Final = 4.0
READY_LIMIT_SECONDS: Final = 2.0
IDLE_LIMIT_MB: Final = 150.0

MB: Final = 1_000_000
_NAMES: Final = {"whole": "non-streamed", "stream": "50-chunk stream"}


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as columns: the first one to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines: list[str] = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def cpu_table(figures: Figures) -> str:
    """Return CPU time for a request, by case and server, with the ratio."""
    rows = [["CPU us a request", "median", "min", "max", "in kernel", "requests/s", "p50 ms"]]
    rows[0] += ["p99 ms", "reads"]
    for case, servers in figures.rounds.items():
        rows += [_row(f"{_NAMES[case]}, {name}", each) for name, each in servers.items()]
        found = ratio(figures, case)
        if found is None:
            rows.append([f"{_NAMES[case]}, ratio", *["-"] * 8])
        else:
            bounds = [f"{value:.2f}" for value in (found.median, found.least, found.most)]
            rows.append([f"{_NAMES[case]}, ratio", *bounds, *[""] * 5])
    return table(rows)


def ratio(figures: Figures, case: str) -> Spread | None:
    """Return the gateway's cost over nginx', round by round; None without nginx."""
    servers = figures.rounds.get(case, {})
    ours, theirs = _costs(servers.get("gateway", [])), _costs(servers.get("nginx", []))
    found = ratios(ours, theirs) if ours and theirs else []
    return spread(found) if found else None


def start_table(figures: Figures) -> str:
    """Return times until ready and memory."""
    fresh, existing = spread(figures.ready_fresh), spread(figures.ready_existing)
    return table(
        [
            ["start and memory", "median", "min", "max"],
            ["ready, fresh folder, s", *_bounds(fresh, 2)],
            ["ready, existing folder, s", *_bounds(existing, 2)],
            ["CPU until ready, existing, s", *_bounds(spread(figures.ready_cpu), 2)],
            ["idle RSS, simulated provider, MB", f"{figures.idle_simulated / MB:.0f}", "", ""],
            ["idle RSS, openai_compatible, MB", f"{figures.idle_provider / MB:.0f}", "", ""],
            ["RSS after the load, MB", f"{figures.loaded / MB:.0f}", "", ""],
        ]
    )


def verdicts(figures: Figures) -> list[Verdict]:
    """Return every aim beside its figure."""
    whole = _median(figures, "whole", "gateway")
    yardstick = _median(figures, "whole", "nginx")
    limit = scaled_limit(WHOLE_LIMIT_US, yardstick, NGINX_LEAST_US, NGINX_MOST_US)
    beside = "nothing" if yardstick is None else f"nginx' {yardstick:.1f} us"
    stream = ratio(figures, "stream")
    ready = max(*figures.ready_fresh, *figures.ready_existing)
    idle = max(figures.idle_simulated, figures.idle_provider) / MB
    return [
        judge("non-streamed, where nginx costs 10-14 us", whole, WHOLE_LIMIT_US, " us"),
        judge(f"non-streamed, scaled to {beside}", whole, limit, " us"),
        judge(
            "50-chunk stream over nginx",
            None if stream is None else stream.median,
            STREAM_LIMIT,
            " x",
            1,
        ),
        judge("ready after start (slowest)", ready, READY_LIMIT_SECONDS, " s", 2),
        judge("idle memory (larger)", idle, IDLE_LIMIT_MB, " MB"),
    ]


def verdict_table(figures: Figures) -> str:
    """Return the aims as text."""
    rows = [["aim", "measured", "aim", "verdict"]]
    rows += [[each.name, each.measured, each.aim, each.verdict] for each in verdicts(figures)]
    return table(rows)


def text(figures: Figures) -> str:
    """Return everything."""
    parts = [cpu_table(figures), start_table(figures), verdict_table(figures)]
    parts.append(
        f"{figures.sent} requests were sent to the gateway and booked; the machine's load average "
        f"was {figures.load_average:.1f} before."
    )
    return "\n\n".join(parts) + "\n"


def _row(name: str, rounds: Sequence[Round]) -> list[str]:
    cost = spread(_costs(rounds))
    return [
        name,
        *_bounds(cost, 1),
        f"{spread([each.system_share for each in rounds]).median * 100:.0f} %",
        f"{spread([each.requests_per_second for each in rounds]).median:.0f}",
        f"{spread([each.p50_ms for each in rounds]).median:.1f}",
        f"{spread([each.p99_ms for each in rounds]).median:.1f}",
        f"{spread([each.pieces for each in rounds]).median:.1f}",
    ]


def _bounds(found: Spread, digits: int) -> list[str]:
    return [f"{value:.{digits}f}" for value in (found.median, found.least, found.most)]


def _costs(rounds: Sequence[Round]) -> list[float]:
    return [each.microseconds for each in rounds]


def _median(figures: Figures, case: str, server: str) -> float | None:
    rounds = figures.rounds.get(case, {}).get(server)
    return spread(_costs(rounds)).median if rounds else None

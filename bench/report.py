"""The figures as text: the table on standard output and the aims beside them. Pure."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from bench.cases import CASES, chat_of
from bench.statistic import Spread, Verdict, judge, percentile, ratios, scaled_limit, spread
from bench.suite import RATE
from bench.traffic import CHUNKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.suite import Dose, Figures
    from bench.target import Round

WHOLE_LIMIT_US: Final = 80.0
TLS_LIMIT_US: Final = 110.0
"""Both set for machines where nginx costs between the next two figures; scaled elsewhere."""
NGINX_LEAST_US: Final = 10.0
NGINX_MOST_US: Final = 14.0
STREAM_LIMIT: Final = 4.0
TRANSLATED_LIMIT: Final = 1.5
"""Times what chat on a chat provider costs in the same rounds."""
READY_LIMIT_SECONDS: Final = 2.0
IDLE_LIMIT_MB: Final = 150.0
CROWD_LIMIT_MB: Final = 250.0
ADDED_LIMIT_MS: Final = 1.0
HANG_UP_LIMIT_MS: Final = 10.0
MONEY_LIMIT_US: Final = 15.0

MB: Final = 1_000_000


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
    """Return CPU time for a request, by case and server, with what it is compared with."""
    rows = [["CPU us a request", "median", "min", "max", "in kernel", "requests/s", "p50 ms"]]
    rows[0] += ["p99 ms", "reads"]
    for case, servers in figures.rounds.items():
        title = CASES[case].title
        rows += [_row(f"{title}, {name}", each) for name, each in servers.items()]
        if CASES[case].prefix is None:
            rows.append(_ratio_row(f"{title}, times chat", times_chat(figures, case)))
        else:
            rows.append(_ratio_row(f"{title}, ratio", ratio(figures, case)))
    return table(rows)


def ratio(figures: Figures, case: str) -> Spread | None:
    """Return the gateway's cost over nginx', round by round; None without nginx."""
    return _ratio(_rounds(figures, case, "gateway"), _rounds(figures, case, "nginx"))


def times_chat(figures: Figures, case: str) -> Spread | None:
    """Return a case's cost over that of chat on a chat provider, round by round."""
    chat = chat_of(CASES[case])
    return _ratio(_rounds(figures, case, "gateway"), _rounds(figures, chat, "gateway"))


def latency_table(figures: Figures) -> str:
    """Return latency at a steady rate, with what the gateway adds."""
    rows = [[f"at {RATE:.0f} requests/s", "p50 ms", "p99 ms"]]
    for name, rounds in figures.paced.items():
        rows.append([name, *(f"{value:.2f}" for value in _latencies(rounds))])
    rows.append(["added", *(f"{value:.2f}" for value in added(figures))])
    return table(rows)


def added(figures: Figures) -> tuple[float, float]:
    """Return the milliseconds that the gateway adds to the median and to the 99th percentile."""
    ours, theirs = (_latencies(figures.paced[name]) for name in ("gateway", "direct"))
    return ours[0] - theirs[0], ours[1] - theirs[1]


def hang_up_table(figures: Figures) -> str:
    """Return how soon a provider learns that the client has gone."""
    times = figures.hang_ups
    cells = [percentile(times, 50), percentile(times, 99), max(times)]
    return table(
        [
            ["a client's hang-up reaches the provider", "p50 ms", "p99 ms", "max ms"],
            [f"{len(times)} times", *(f"{value:.2f}" for value in cells)],
        ]
    )


def crowd_table(figures: Figures, dose: Dose) -> str:
    """Return what many streams at once cost, and how late their chunks are."""
    rows = [[f"{dose.crowd} streams at once", "CPU us an event", "lag p50 ms", "lag p99 ms"]]
    rows[0] += ["streams/s"]
    for name, rounds in figures.crowd.items():
        cells = [
            ([each.microseconds / CHUNKS for each in rounds], 1),
            ([each.lag_p50_ms for each in rounds], 2),
            ([each.lag_p99_ms for each in rounds], 2),
            ([each.requests_per_second for each in rounds], 0),
        ]
        rows.append([name, *(f"{median(values):.{digits}f}" for values, digits in cells)])
    return table(rows)


def start_table(figures: Figures) -> str:
    """Return times until ready."""
    return table(
        [
            ["start", "median", "min", "max"],
            ["ready, fresh folder, s", *_bounds(spread(figures.ready_fresh), 2)],
            ["ready, existing folder, s", *_bounds(spread(figures.ready_existing), 2)],
            ["CPU until ready, existing, s", *_bounds(spread(figures.ready_cpu), 2)],
        ]
    )


def memory_table(figures: Figures, dose: Dose) -> str:
    """Return resident memory."""
    growth = figures.after_many - figures.after_few
    rows = [
        ("idle, simulated provider", figures.idle_simulated),
        ("idle, openai_compatible", figures.idle_provider),
        ("after all rounds", figures.loaded),
        (f"the most with {dose.crowd} streams at once", figures.crowded),
        (f"after {dose.few} requests", figures.after_few),
        (f"after {dose.many} requests", figures.after_many),
        ("growth between the two", growth),
    ]
    return table([["memory (RSS)", "MB"], *([name, f"{size / MB:.1f}"] for name, size in rows)])


def money_table(figures: Figures) -> str:
    """Return the cost of each billing step."""
    rows = [["CPU us a request, without HTTP", "median", "min", "max"]]
    rows += [
        [step, *_bounds(spread([each[step] for each in figures.money]), 1)]
        for step in figures.money[0]
    ]
    return table(rows)


def tables(figures: Figures, dose: Dose) -> str:
    """Return all tables."""
    parts = [
        cpu_table(figures),
        latency_table(figures),
        crowd_table(figures, dose),
        hang_up_table(figures),
        money_table(figures),
        memory_table(figures, dose),
        start_table(figures),
    ]
    return "\n\n".join(parts)


def verdicts(figures: Figures, dose: Dose) -> list[Verdict]:
    """Return every aim beside its figure."""
    stream = ratio(figures, "stream")
    ready = max(*figures.ready_fresh, *figures.ready_existing)
    idle = max(figures.idle_simulated, figures.idle_provider) / MB
    times = None if stream is None else stream.median
    hang_up = percentile(figures.hang_ups, 99)
    money = spread([each["total"] for each in figures.money]).median
    return [
        *_cost_verdicts(figures, "whole", WHOLE_LIMIT_US),
        *_cost_verdicts(figures, "tls", TLS_LIMIT_US),
        judge("50-chunk stream over nginx", times, STREAM_LIMIT, " x", 1),
        *_translation_verdicts(figures),
        judge(f"added p50 at {RATE:.0f} requests/s", added(figures)[0], ADDED_LIMIT_MS, " ms", 2),
        judge(f"memory, {dose.crowd} streams", figures.crowded / MB, CROWD_LIMIT_MB, " MB"),
        judge("hang-up to provider, p99", hang_up, HANG_UP_LIMIT_MS, " ms", 1),
        judge("key to settled and booked charge, without HTTP", money, MONEY_LIMIT_US, " us", 1),
        judge("ready after start (slowest)", ready, READY_LIMIT_SECONDS, " s", 2),
        judge("idle memory (larger)", idle, IDLE_LIMIT_MB, " MB"),
    ]


def _cost_verdicts(figures: Figures, case: str, limit: float) -> list[Verdict]:
    """Return the aim as it was set, and as it is for this machine's network stack."""
    title, cost = CASES[case].title, _median(figures, case, "gateway")
    yardstick = _median(figures, "whole", "nginx")
    scaled = scaled_limit(limit, yardstick, NGINX_LEAST_US, NGINX_MOST_US)
    beside = "nothing" if yardstick is None else f"nginx' {yardstick:.1f} us"
    return [
        judge(f"{title}, where nginx costs 10-14 us", cost, limit, " us"),
        judge(f"{title}, scaled to {beside}", cost, scaled, " us"),
    ]


def _translation_verdicts(figures: Figures) -> list[Verdict]:
    """Return the aim of every case that is translated."""
    found = {
        case.title: times_chat(figures, name) for name, case in CASES.items() if case.is_translated
    }
    return [
        judge(f"{title}, times chat", times and times.median, TRANSLATED_LIMIT, " x", 2)
        for title, times in found.items()
    ]


def verdict_table(figures: Figures, dose: Dose) -> str:
    """Return the aims as text."""
    rows = [["aim", "measured", "aim", "verdict"]]
    rows += [[each.name, each.measured, each.aim, each.verdict] for each in verdicts(figures, dose)]
    return table(rows)


def text(figures: Figures, dose: Dose) -> str:
    """Return everything."""
    parts = [tables(figures, dose), verdict_table(figures, dose)]
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


def _ratio_row(name: str, found: Spread | None) -> list[str]:
    if found is None:
        return [name, *["-"] * 8]
    return [name, *_bounds(found, 2), *[""] * 5]


def _bounds(found: Spread, digits: int) -> list[str]:
    return [f"{value:.{digits}f}" for value in (found.median, found.least, found.most)]


def _latencies(rounds: Sequence[Round]) -> tuple[float, float]:
    """Return the medians over the rounds of their p50 and p99, in milliseconds."""
    return median(each.p50_ms for each in rounds), median(each.p99_ms for each in rounds)


def _ratio(ours: Sequence[Round], theirs: Sequence[Round]) -> Spread | None:
    found = ratios(_costs(ours), _costs(theirs)) if ours and theirs else []
    return spread(found) if found else None


def _rounds(figures: Figures, case: str, server: str) -> Sequence[Round]:
    return figures.rounds.get(case, {}).get(server, [])


def _costs(rounds: Sequence[Round]) -> list[float]:
    return [each.microseconds for each in rounds]


def _median(figures: Figures, case: str, server: str) -> float | None:
    rounds = _rounds(figures, case, server)
    return spread(_costs(rounds)).median if rounds else None

"""The figures of batches as text, and the aims beside them. Pure."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from bench.batches.figures import INGEST
from bench.report import MB, table
from bench.statistic import judge, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.batches.figures import BatchDose, BatchFigures, Download, Ingest, Run
    from bench.statistic import Verdict

INGEST_LIMIT_SECONDS: Final = 1.0
INGEST_LIMIT_MB: Final = 64.0
LIVE_LIMIT_MS: Final = 10.0
BARE_LIMIT: Final = 1.3
"""Times what the bare loop costs."""
RUN_LIMIT_SECONDS: Final = 60.0
FIRST_LIMIT_SECONDS: Final = 2.0
READ_LIMIT_MB: Final = 64.0
PEAK_LIMIT_MB: Final = 300.0


def ingest_table(figures: BatchFigures) -> str:
    """Return the cost of ingesting batches."""
    rows = [["ingest", "CPU s", "gateway", "child", "more MB", "gateway", "child", "seconds"]]
    for items, orders in figures.ingests.items():
        for order, rounds in orders.items():
            cells = (
                _median([each.cpu_seconds for each in rounds], 2),
                _median([each.gateway_seconds for each in rounds], 2),
                _median([each.child_seconds for each in rounds], 2),
                _most([each.more_bytes for each in rounds]),
                _most([each.gateway_bytes for each in rounds]),
                _most([each.child_bytes for each in rounds]),
                _median([each.seconds for each in rounds], 2),
            )
            rows.append([f"{items} items, {order}", *cells])
    return table(rows)


def run_table(figures: BatchFigures) -> str:
    """Return the cost of running batches, beside the bare loop."""
    rows = [["from the 202 to the end", "CPU us an item", "bare", "ratio", "seconds", "items/s"]]
    rows[0] += ["bare", "first item s"]
    for items, rounds in figures.runs.items():
        cells = (
            _median([each.microseconds for each in rounds], 0),
            _median([each.bare_microseconds for each in rounds], 0),
            _median([each.ratio for each in rounds], 2),
            _median([each.seconds for each in rounds], 1),
            _median([items / each.seconds for each in rounds], 0),
            _median([items / each.bare_seconds for each in rounds], 0),
            _median([each.first_seconds for each in rounds], 3),
        )
        rows.append([f"{items} items", *cells])
    return table(rows)


def read_table(figures: BatchFigures) -> str:
    """Return the cost of reading results, and the peak memory."""
    rows = [["results", "MB", "CPU s", "MB/s", "more MB", "the most MB, from start to end"]]
    for items, rounds in figures.downloads.items():
        cells = (
            _median([each.size / MB for each in rounds], 0),
            _median([each.cpu_seconds for each in rounds], 2),
            _median([each.size / MB / each.seconds for each in rounds], 0),
            _most([each.more_bytes for each in rounds]),
            f"{figures.peaks[items] / MB:.0f}",
        )
        rows.append([f"{items} items", *cells])
    return table(rows)


def live_table(figures: BatchFigures, dose: BatchDose) -> str:
    """Return the latency of other requests meanwhile."""
    rows = [[f"live requests, {dose.rate:g}/s", "p50 ms", "p99 ms", "max ms", "requests"]]
    for name, found in figures.live.items():
        cells = (f"{value:.1f}" for value in (found.p50_ms, found.p99_ms, found.most_ms))
        rows.append([name, *cells, str(found.requests)])
    lines = [f"not answered, {count} times: {why}" for why, count in figures.refused.items()]
    return "\n".join([table(rows), *lines])


def tables(figures: BatchFigures, dose: BatchDose) -> str:
    """Return all tables."""
    parts = [
        ingest_table(figures),
        run_table(figures),
        read_table(figures),
        live_table(figures, dose),
    ]
    return "\n\n".join(parts)


def verdicts(figures: BatchFigures, dose: BatchDose) -> list[Verdict]:
    """Return every aim beside its figure, of the largest batches."""
    items = dose.largest
    ingests = figures.ingests[items]
    runs, reads = figures.runs[items], figures.downloads[items]
    first = max(each.first_seconds for rounds in figures.runs.values() for each in rounds)
    return [
        *(_cpu_verdict(items, order, rounds) for order, rounds in ingests.items()),
        _memory_verdict(items, [each for rounds in ingests.values() for each in rounds]),
        judge("p99 of live requests during ingest", figures.live[INGEST].p99_ms, *_LIVE),
        judge("live requests that were refused", sum(figures.refused.values()), 0, ""),
        *_run_verdicts(items, runs),
        judge("first item at the provider after the 202 (slowest)", first, *_FIRST),
        _read_verdict(items, reads),
        judge(f"memory at the most, {items} items", figures.peaks[items] / MB, *_PEAK),
    ]


_LIVE: Final = (LIVE_LIMIT_MS, " ms", 1)
_FIRST: Final = (FIRST_LIMIT_SECONDS, " s", 2)
_PEAK: Final = (PEAK_LIMIT_MB, " MB")


def _cpu_verdict(items: int, order: str, rounds: Sequence[Ingest]) -> Verdict:
    seconds = median(each.cpu_seconds for each in rounds)
    return judge(f"ingest of {items} items, {order}, CPU", seconds, INGEST_LIMIT_SECONDS, " s", 2)


def _memory_verdict(items: int, rounds: Sequence[Ingest]) -> Verdict:
    more = max(each.more_bytes for each in rounds) / MB
    return judge(f"ingest of {items} items, more memory", more, INGEST_LIMIT_MB, " MB")


def _run_verdicts(items: int, rounds: Sequence[Run]) -> list[Verdict]:
    times = spread([each.ratio for each in rounds]).median
    seconds = spread([each.seconds for each in rounds]).median
    return [
        judge("CPU for an item over the bare loop", times, BARE_LIMIT, " x", 2),
        judge(f"{items} items from the 202 to the end", seconds, RUN_LIMIT_SECONDS, " s", 1),
    ]


def _read_verdict(items: int, rounds: Sequence[Download]) -> Verdict:
    more = max(each.more_bytes for each in rounds) / MB
    return judge(f"results of {items} items, more memory", more, READ_LIMIT_MB, " MB")


def verdict_table(figures: BatchFigures, dose: BatchDose) -> str:
    """Return the aims as text."""
    rows = [["aim", "measured", "aim", "verdict"]]
    rows += [[each.name, each.measured, each.aim, each.verdict] for each in verdicts(figures, dose)]
    return table(rows)


def text(figures: BatchFigures, dose: BatchDose) -> str:
    """Return everything."""
    load = f"the machine's load average was {figures.load_average:.1f} before."
    return "\n\n".join([tables(figures, dose), verdict_table(figures, dose), load]) + "\n"


def _median(values: Sequence[float], digits: int) -> str:
    return f"{median(values):.{digits}f}"


def _most(values: Sequence[int]) -> str:
    """Return memory in MB, the most that was ever seen."""
    return f"{max(values) / MB:.0f}"

"""The figures of interns as text, and the aims beside them. Pure."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from bench.interns.figures import (
    BOOTS,
    FIRST,
    LATER,
    RESUMED,
    WITH_FILES,
    growth,
    of_hundred,
)
from bench.report import MB, table
from bench.statistic import judge, ratios, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.interns.figures import Boot, Idling, InternDose, InternFigures, Memory
    from bench.statistic import Verdict

BOOT_LIMIT_SECONDS: Final = 1.0
RESUME_LIMIT_SECONDS: Final = 0.5
IDLE_LIMIT_MB: Final = 40.0
HUNDRED_LIMIT_MB: Final = 4_000.0
FIRST_RUN_LIMIT_SECONDS: Final = 1.0
_MILLI: Final = 1_000
_MICRO: Final = 1_000_000
_JUDGED: Final = {
    FIRST: ("first intern of a server, until it runs", BOOT_LIMIT_SECONDS),
    LATER: ("later intern, until it runs", BOOT_LIMIT_SECONDS),
    RESUMED: ("resumed without files, until it runs", RESUME_LIMIT_SECONDS),
    WITH_FILES: (
        "resumed with {files} files of {size:g} MB, until it runs",
        RESUME_LIMIT_SECONDS,
    ),
}


def boot_table(figures: InternFigures) -> str:
    """Return how long boots take."""
    rows = [["from request to running, s", "median", "min", "max", "times"]]
    for kind in BOOTS:
        rounds = figures.boots.get(kind, [])
        if rounds:
            seconds = [each.seconds for each in rounds]
            rows.append([kind, *_bounds(seconds, 2), str(len(rounds))])
    return table(rows)


def step_table(figures: InternFigures) -> str:
    """Return how long each step of a boot takes, and its share."""
    kinds = [kind for kind in BOOTS if figures.boots.get(kind)]
    rows = [["median ms of a boot, and share", *(cell for kind in kinds for cell in (kind, "%"))]]
    for step in figures.boots[kinds[0]][0].steps:
        cells: list[str] = []
        for kind in kinds:
            rounds = figures.boots[kind]
            cells.append(f"{median(each.steps[step] for each in rounds) * _MILLI:.0f}")
            cells.append(f"{_share(rounds, step) * 100:.0f}")
        rows.append([step, *cells])
    return table(rows)


def alone_table(figures: InternFigures) -> str:
    """Return what of a boot takes so long without a gateway, and how many times that it takes."""
    alone = [each for rounds in figures.alone.values() for each in rounds]
    rows = [
        ["without a gateway, s", "median", "min", "max"],
        ["bubblewrap around true", *_bounds([each.bubblewrap_seconds for each in alone], 3)],
        ["daemon, to its first answer", *_bounds([each.daemon_seconds for each in alone], 3)],
        ["both", *_bounds([each.seconds for each in alone], 3)],
    ]
    for kind, rounds in figures.alone.items():
        boots = [each.seconds for each in figures.boots[kind]]
        times = ratios(boots, [each.seconds for each in rounds])
        rows.append([f"{kind}, times both", *_bounds(times, 2)])
    return table(rows)


def suspend_table(figures: InternFigures) -> str:
    """Return how long suspensions take, beside what flushing and reading the files takes."""
    rows = [["suspended, s", "median", "min", "max"]]
    for kind, rounds in figures.suspensions.items():
        name = "without files" if kind == RESUMED else kind
        rows.append([name, *_bounds([each.seconds for each in rounds], 2)])
    rows += [
        ["such files flushed alone", *_bounds([each.flush_seconds for each in figures.files], 2)],
        ["such files read and hashed", *_bounds([e.digest_seconds for e in figures.files], 2)],
    ]
    return table(rows)


def memory_table(figures: InternFigures) -> str:
    """Return memory with some idle interns, and what one more of them adds."""
    memory = figures.memory
    some = [each for each in memory if each.running]
    rows = [["idle interns, MB", *(str(each.running) for each in memory), "one more"]]
    for name, field in (
        ("sandbox, each (PSS)", "sandbox"),
        ("of it the daemon", "daemon"),
        ("of it bubblewrap", "bubblewrap"),
        ("largest sandbox (PSS)", "most"),
    ):
        rows.append([name, *(_mb(each, field) for each in memory), "-"])
    for name, field in (("server (RSS)", "server"), ("egress proxy (RSS)", "proxy")):
        cells = (_mb(each, field) for each in memory)
        rows.append([name, *cells, f"{growth(some, field) / MB:.2f}"])
    alone = ["daemon without a sandbox (PSS)", f"{figures.daemon_alone / MB:.1f}"]
    rows.append(alone + ["-"] * len(memory))
    return table(rows)


def idle_table(figures: InternFigures) -> str:
    """Return the CPU time of interns that do nothing."""
    rows = [["idle, CPU ms a second", "sandboxes", "each", "server", "proxy"]]
    for each in figures.idling:
        one = each.sandboxes / each.running if each.running else 0.0
        spent = (each.sandboxes, one, each.server, each.proxy)
        cells = (_per_second(each, seconds) for seconds in spent)
        rows.append([f"{each.running} interns", *cells])
    return table(rows)


def chat_table(figures: InternFigures) -> str:
    """Return what the way through the gateway adds to a chat."""
    rows = [["a piece of a chat, us", "median", "min", "max", "times alone"]]
    for name, field in (
        ("delay, 5 ms apart", "delay_seconds"),
        ("delay of the first", "first_seconds"),
        ("at full speed, by the clock", "piece_seconds"),
        ("daemon's CPU at full speed", "talker_seconds"),
    ):
        through = [getattr(each.through, field) for each in figures.chats]
        alone = [getattr(each.alone, field) for each in figures.chats]
        times = f"{median(ratios(through, alone) or [0.0]):.2f}"
        rows.append([name, *_bounds([each * _MICRO for each in through], 0), times])
    server = [each.through.server_seconds for each in figures.chats]
    daemon = [each.through.talker_seconds for each in figures.chats]
    rows.append(
        ["server's CPU at full speed", *_bounds([each * _MICRO for each in server], 0), "-"]
    )
    rows.append(["the same, times the daemon's", *_bounds(ratios(server, daemon) or [0.0], 2), "-"])
    return table(rows)


def first_run_table(figures: InternFigures) -> str:
    """Return how long an agent's first run takes, and what the sandbox holds before and after."""
    rows = [["an agent", "median", "min", "max"]]
    for name, field, unit, digits in (
        ("first text of the first run, s", "first_seconds", 1, 2),
        ("CPU time of the sandbox for it, s", "cpu_seconds", 1, 2),
        ("first text of the next run, s", "later_seconds", 1, 2),
        ("sandbox before, MB (PSS)", "before", MB, 1),
        ("sandbox with the agent, MB (PSS)", "after", MB, 1),
    ):
        values = [getattr(each, field) / unit for each in figures.first_runs]
        rows.append([name, *_bounds(values, digits)])
    if figures.agent_ended is not None:
        rows.append(["sandbox once it has ended", f"{figures.agent_ended / MB:.1f}", "-", "-"])
    return table(rows)


def tables(figures: InternFigures) -> str:
    """Return all tables."""
    parts = [
        boot_table(figures),
        step_table(figures),
        alone_table(figures),
        suspend_table(figures),
        memory_table(figures),
        idle_table(figures),
        *([chat_table(figures)] if figures.chats else []),
        *([first_run_table(figures)] if figures.first_runs else []),
    ]
    return "\n\n".join(parts)


def verdicts(figures: InternFigures, dose: InternDose) -> list[Verdict]:
    """Return every aim beside its figure."""
    size = dose.files_bytes / MB
    most = figures.memory[-1]
    return [
        *(
            judge(
                name.format(files=dose.files, size=size),
                median(each.seconds for each in figures.boots[kind]),
                limit,
                " s",
                2,
            )
            for kind, (name, limit) in _JUDGED.items()
        ),
        *(
            judge(
                f"memory of an idle intern, {each.running} run",
                each.sandbox / MB,
                IDLE_LIMIT_MB,
                " MB",
                1,
            )
            for each in figures.memory
            if each.running
        ),
        *_agent_verdicts(figures),
        judge(
            f"100 idle interns with all that they add, reckoned from {most.running}",
            of_hundred(figures.memory) / MB,
            HUNDRED_LIMIT_MB,
            " MB",
        ),
    ]


def _agent_verdicts(figures: InternFigures) -> list[Verdict]:
    ended = figures.agent_ended
    seconds = [each.first_seconds for each in figures.first_runs]
    return [
        judge(
            "first run of an agent, until its first text",
            median(seconds) if seconds else None,
            FIRST_RUN_LIMIT_SECONDS,
            " s",
            2,
        ),
        judge(
            "memory of an idle intern whose agent has ended",
            None if ended is None else ended / MB,
            IDLE_LIMIT_MB,
            " MB",
            1,
        ),
    ]


def verdict_table(figures: InternFigures, dose: InternDose) -> str:
    """Return the aims as text."""
    rows = [["aim", "measured", "aim", "verdict"]]
    rows += [[each.name, each.measured, each.aim, each.verdict] for each in verdicts(figures, dose)]
    return table(rows)


def text(figures: InternFigures, dose: InternDose) -> str:
    """Return everything."""
    load = f"the machine's load average was {figures.load_average:.1f} before."
    return "\n\n".join([tables(figures), verdict_table(figures, dose), load]) + "\n"


def _bounds(values: Sequence[float], digits: int) -> list[str]:
    found = spread(values)
    return [f"{value:.{digits}f}" for value in (found.median, found.least, found.most)]


def _share(rounds: Sequence[Boot], step: str) -> float:
    """Return a step's part of all the time of some boots."""
    return sum(each.steps[step] for each in rounds) / sum(each.seconds for each in rounds)


def _mb(memory: Memory, field: str) -> str:
    value = getattr(memory, field)
    return f"{value / MB:.1f}" if value else "-"


def _per_second(idling: Idling, seconds: float) -> str:
    return f"{seconds / idling.seconds * _MILLI:.2f}"

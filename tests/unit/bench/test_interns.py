"""What is read off an intern's log and off the kernel, and what is said of it."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from bench import results
from bench.cpu import pss_alone, rss_alone
from bench.interns import report
from bench.interns.baseline import flush_and_read
from bench.interns.figures import (
    ASKED,
    FIRST,
    LATER,
    RESUMED,
    SEEN,
    WITH_FILES,
    Alone,
    Boot,
    ChatRound,
    ChatSide,
    Files,
    FirstRun,
    Idling,
    InternDose,
    InternFigures,
    Memory,
    Suspension,
    boot,
    growth,
    of_hundred,
)
from bench.interns.watch import Watch
from bench.processes import BenchError

MB = 1_000_000
DOSE = InternDose()
BEGAN = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
STEPS = ("Preparing", "Opening", "Starting", "Waiting")


def log(*milliseconds: int, ends: str = "running") -> list[tuple[str, str]]:
    """Return the log of a boot whose lines come so long after its beginning."""
    texts = [f"provisioning ({number}/4: {step})" for number, step in enumerate(STEPS, 1)]
    times = [BEGAN + timedelta(milliseconds=each) for each in milliseconds]
    return [(at.isoformat(), text) for at, text in zip(times, [*texts, ends], strict=True)]


def booted(seconds: float) -> Boot:
    steps = dict.fromkeys((ASKED, *STEPS, SEEN), 0.0) | {"Waiting": seconds}
    return Boot(seconds, steps)


def measured() -> InternFigures:
    return InternFigures(
        boots={
            FIRST: [booted(1.5), booted(1.3), booted(1.4)],
            LATER: [booted(0.6), booted(0.8)],
            RESUMED: [booted(0.5)],
            WITH_FILES: [booted(0.9)],
        },
        alone={LATER: [Alone(0.05, 0.25), Alone(0.15, 0.25)]},
        suspensions={RESUMED: [Suspension(0.2)], WITH_FILES: [Suspension(1.5)]},
        files=[Files(0.3, 0.2)],
        memory=[
            Memory(0, 0.0, 0.0, 0, 100 * MB, 0),
            Memory(1, 36.0 * MB, 2.0 * MB, 38 * MB, 104 * MB, 60 * MB),
            Memory(11, 29.0 * MB, 1.0 * MB, 31 * MB, 109 * MB, 61 * MB),
        ],
        daemon_alone=35 * MB,
        idling=[Idling(0, 10.0, 0.0, 0.02, 0.0), Idling(10, 10.0, 0.1, 0.05, 0.001)],
        chats=[
            ChatRound(
                ChatSide(0.0001, 0.001, 0.0, 0.00005, 0.0001),
                ChatSide(0.0003, 0.008, 0.0001, 0.00005, 0.0002),
            )
        ],
        first_runs=[
            FirstRun(1.4, 0.9, 0.1, 25.0 * MB, 100.0 * MB),
            FirstRun(1.2, 1.1, 0.3, 27.0 * MB, 104.0 * MB),
        ],
        agent_ended=30.0 * MB,
        bubblewrap="0.8.0",
    )


def row_of(text: str, name: str) -> list[str]:
    """Return the cells behind a row's name."""
    return next(line for line in text.splitlines() if line.startswith(name))[len(name) :].split()


def test_a_boot_is_reported_step_by_step() -> None:
    found = boot(BEGAN, BEGAN + timedelta(milliseconds=700), log(10, 60, 260, 300, 690))
    assert found.seconds == pytest.approx(0.7)
    assert found.steps == pytest.approx(
        {
            ASKED: 0.01,
            "Preparing": 0.05,
            "Opening": 0.2,
            "Starting": 0.04,
            "Waiting": 0.39,
            SEEN: 0.01,
        }
    )
    assert sum(found.steps.values()) == pytest.approx(found.seconds)


def test_of_several_boots_the_last_one_counts() -> None:
    earlier = log(-900, -800, -700, -600, -500)
    stopped = [((BEGAN - timedelta(milliseconds=100)).isoformat(), "stopped")]
    lines = [*earlier, *stopped, *log(1, 2, 3, 4, 5)]
    assert boot(BEGAN, BEGAN + timedelta(milliseconds=6), lines).steps[ASKED] == 0.001


@pytest.mark.parametrize("lines", [[], log(1, 2, 3, 4, 5, ends="failed: no")])
def test_a_log_without_a_boot_that_ended_well_says_so(lines: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="no boot that ended well"):
        boot(BEGAN, BEGAN, lines)


def process(proc: Path, pid: int, command: str, pss: int, children: str = "") -> None:
    """Write what the kernel would tell of a process.

    Args:
        proc: Where.
        pid: Its number.
        command: Its program.
        pss: Kilobytes; it has twice as many resident.
        children: Those that it has started.
    """
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True)
    (task / "children").write_text(children)
    (proc / str(pid) / "cmdline").write_bytes(f"{command}\0--flag\0".encode())
    (proc / str(pid) / "status").write_text(f"Name:\tx\nVmRSS:\t{2 * pss} kB\n")
    (proc / str(pid) / "smaps_rollup").write_text(
        f"5500-7fff ---p 0 00:00 0 [rollup]\nRss:\t{2 * pss} kB\nPss:\t{pss} kB\nPss_Anon:\t1 kB\n"
    )


def test_a_sandbox_is_bubblewrap_and_all_below_it(tmp_path: Path) -> None:
    process(tmp_path, 10, "python", 1_000, "20 30 40")
    process(tmp_path, 20, "python", 500)
    process(tmp_path, 30, "/usr/bin/bwrap", 10, "31")
    process(tmp_path, 31, "bwrap", 20, "32")
    process(tmp_path, 32, "python", 3_000)
    process(tmp_path, 40, "bwrap", 30, "41")
    process(tmp_path, 41, "python", 4_000)
    watch = Watch(10, tmp_path)
    assert [each.pids for each in watch.sandboxes()] == [(30, 31, 32), (40, 41)]
    assert watch.memory(2) == Memory(2, 3_500 * 1024, 30 * 1024, 4_030 * 1024, 2_000 * 1024, 0)
    with pytest.raises(BenchError, match="2 sandboxes run in place of 3"):
        watch.memory(3)


def test_memory_of_a_process_alone_leaves_out_its_children(tmp_path: Path) -> None:
    process(tmp_path, 10, "python", 100, "20")
    process(tmp_path, 20, "python", 200)
    assert rss_alone(10, tmp_path) == 200 * 1024
    assert pss_alone(10, tmp_path) == 100 * 1024


def test_growth_is_what_one_more_intern_adds() -> None:
    some = measured().memory[1:]
    assert growth(some, "server") == 0.5 * MB
    assert growth(some, "proxy") == 0.1 * MB
    assert growth(some[:1], "server") == 0.0


def test_a_hundred_interns_are_reckoned_from_the_most_that_ran() -> None:
    # 4 and 60 for the first one's server and proxy, then 30, 0.5 and 0.1 for each.
    assert of_hundred(measured().memory) == pytest.approx((64 + 3_060) * MB)


def test_files_are_made_safe_and_removed(tmp_path: Path) -> None:
    found = flush_and_read(tmp_path / "files", 3, 10)
    assert min(found.flush_seconds, found.digest_seconds) > 0
    assert list((tmp_path / "files").iterdir()) == []


def test_steps_are_reported_with_their_share() -> None:
    text = report.step_table(measured())
    assert row_of(text, "Waiting") == ["1400", "100", "700", "100", "500", "100", "900", "100"]
    assert row_of(text, "Preparing") == ["0", "0"] * 4


def test_boots_are_beside_what_they_take_without_a_gateway() -> None:
    assert row_of(report.boot_table(measured()), FIRST) == ["1.40", "1.30", "1.50", "3"]
    text = report.alone_table(measured())
    assert row_of(text, "both") == ["0.350", "0.300", "0.400"]
    assert row_of(text, f"{LATER}, times both") == ["2.00", "2.00", "2.00"]


def test_suspensions_are_beside_the_same_files_alone() -> None:
    text = report.suspend_table(measured())
    assert row_of(text, "without files") == ["0.20"] * 3
    assert row_of(text, "with files") == ["1.50"] * 3
    assert row_of(text, "such files flushed alone") == ["0.30"] * 3


def test_memory_is_reported_for_each_number_of_interns() -> None:
    text = report.memory_table(measured())
    assert row_of(text, "sandbox, each (PSS)") == ["-", "38.0", "30.0", "-"]
    assert row_of(text, "server (RSS)") == ["100.0", "104.0", "109.0", "0.50"]
    assert row_of(text, "egress proxy (RSS)") == ["-", "60.0", "61.0", "0.10"]
    assert row_of(text, "daemon without a sandbox (PSS)") == ["35.0", "-", "-", "-"]


def test_idle_cpu_time_is_reported_per_second() -> None:
    text = report.idle_table(measured())
    assert row_of(text, "0 interns") == ["0.00", "0.00", "2.00", "0.00"]
    assert row_of(text, "10 interns") == ["10.00", "1.00", "5.00", "0.10"]


def test_aims_are_of_boots_and_of_memory() -> None:
    found = {each.name: (each.measured, each.verdict) for each in report.verdicts(measured(), DOSE)}
    assert found == {
        "first intern of a server, until it runs": ("1.40 s", "missed by 0.40 s (40 %)"),
        "later intern, until it runs": ("0.70 s", "met"),
        "resumed without files, until it runs": ("0.50 s", "met"),
        "resumed with 1000 files of 100 MB, until it runs": ("0.90 s", "missed by 0.40 s (80 %)"),
        "memory of an idle intern, 1 run": ("38.0 MB", "met"),
        "memory of an idle intern, 11 run": ("30.0 MB", "met"),
        "first run of an agent, until its first text": ("1.30 s", "missed by 0.30 s (30 %)"),
        "memory of an idle intern whose agent has ended": ("30.0 MB", "met"),
        "100 idle interns with all that they add, reckoned from 11": ("3124 MB", "met"),
    }


def test_the_section_of_interns_has_a_place_of_its_own() -> None:
    command = 'make bench ARGS="--interns --write-results"'
    written = results.interns_section(measured(), DOSE, date(2030, 1, 2), command)
    assert "- Date: 2030-01-02" in written
    assert "bubblewrap 0.8.0" in written
    assert "1000 files of 100 MB together" in written
    assert "| later intern, until it runs | 0.70 s | <= 1.00 s | met |" in written
    document = results.RESULTS.read_text(encoding="utf-8")
    renewed = results.replace_section(document, written, results.INTERNS_BEGIN)
    before, _, rest = document.partition(results.INTERNS_BEGIN)
    assert renewed.startswith(before)
    assert renewed.endswith(rest.partition(results.END)[2])
    assert results.interns_document(measured(), DOSE)["aims"]


def test_a_chat_is_reported_beside_the_same_one_with_the_daemon_alone() -> None:
    text = report.chat_table(measured())
    assert row_of(text, "delay, 5 ms apart") == ["300", "300", "300", "3.00"]
    assert row_of(text, "delay of the first") == ["8000", "8000", "8000", "8.00"]
    assert row_of(text, "server's CPU at full speed") == ["100", "100", "100", "-"]
    assert row_of(text, "the same, times the daemon's") == ["2.00", "2.00", "2.00", "-"]


def test_an_agents_first_run_is_reported_beside_the_next_one_with_its_memory() -> None:
    text = report.first_run_table(measured())
    assert row_of(text, "first text of the first run, s") == ["1.30", "1.20", "1.40"]
    assert row_of(text, "CPU time of the sandbox for it, s") == ["1.00", "0.90", "1.10"]
    assert row_of(text, "first text of the next run, s") == ["0.20", "0.10", "0.30"]
    assert row_of(text, "sandbox before, MB (PSS)") == ["26.0", "25.0", "27.0"]
    assert row_of(text, "sandbox with the agent, MB (PSS)") == ["102.0", "100.0", "104.0"]
    assert row_of(text, "sandbox once it has ended") == ["30.0", "-", "-"]
    found = {each.name: each.verdict for each in report.verdicts(measured(), DOSE)}
    assert found["first run of an agent, until its first text"] == "missed by 0.30 s (30 %)"
    assert found["memory of an idle intern whose agent has ended"] == "met"


def test_an_agents_end_that_was_not_awaited_is_not_reported() -> None:
    figures = measured()
    figures.agent_ended = None
    assert "once it has ended" not in report.first_run_table(figures)
    found = {each.name: each.verdict for each in report.verdicts(figures, DOSE)}
    assert found["memory of an idle intern whose agent has ended"] == "not measured"

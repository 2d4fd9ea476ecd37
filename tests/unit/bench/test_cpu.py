"""CPU time and memory from `/proc`, on files that look like it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.cpu import (
    PeakMemory,
    ProcessCpu,
    cpu_time,
    parse_memory,
    parse_stat,
    pss,
    read,
    rss,
    rss_alone,
    tree,
)

STAT = (
    "4242 (a (b) c) S 1 4242 4242 0 -1 4194560 9512 0 12 0 250 130 7 9 20 0 3 0 "
    "123456 99999744 8000 18446744073709551615 1 1 0 0 0 0 0 16781312 0 0 0 0 17 1 0 0 0 0 0\n"
)
HERTZ = os.sysconf("SC_CLK_TCK")


def process(proc: Path, pid: int, threads: dict[int, int | None], children: str = "") -> None:
    for thread, nanoseconds in threads.items():
        task = proc / str(pid) / "task" / str(thread)
        task.mkdir(parents=True)
        task.joinpath("children").write_text(children if thread == pid else "")
        if nanoseconds is not None:
            task.joinpath("schedstat").write_text(f"{nanoseconds} 500 20\n")
    (proc / str(pid) / "stat").write_text(STAT)
    (proc / str(pid) / "status").write_text(
        "Name:\tx\nVmHWM:\t    4096 kB\nVmRSS:\t    2048 kB\nThreads:\t1\n"
    )


def test_a_stat_line_is_read_behind_a_command_with_blanks_and_parentheses() -> None:
    assert parse_stat(STAT) == pytest.approx(380 / HERTZ)
    assert parse_stat(STAT, of_ended=True) == pytest.approx(16 / HERTZ)


def test_resident_memory_is_in_bytes() -> None:
    status = "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n"
    assert parse_memory(status, "VmRSS") == 1024 * 1024
    assert parse_memory(status, "VmHWM") == 2048 * 1024


def test_a_zombie_has_no_memory() -> None:
    with pytest.raises(ValueError, match="ended"):
        parse_memory("Name:\tx\nState:\tZ (zombie)\n", "VmRSS")


def test_a_tree_is_read_with_all_descendants_and_threads(tmp_path: Path) -> None:
    process(tmp_path, 10, {10: 1_000, 11: 2_000}, children="20 30 ")
    process(tmp_path, 20, {20: 4_000}, children="40")
    process(tmp_path, 30, {30: 8_000})
    process(tmp_path, 40, {40: 16_000})
    assert sorted(tree(10, tmp_path)) == [10, 20, 30, 40]
    reading = read(10, tmp_path)
    assert [each.threads for each in reading.values()] == [
        {10: 1_000, 11: 2_000},
        {20: 4_000},
        {30: 8_000},
        {40: 16_000},
    ]
    assert reading[40].ticks == pytest.approx(380 / HERTZ)
    assert reading[40].ended == pytest.approx(16 / HERTZ)
    assert rss(10, tmp_path) == 4 * 2048 * 1024


def test_a_kernel_without_schedstat_leaves_the_ticks(tmp_path: Path) -> None:
    process(tmp_path, 10, {10: None})
    before = read(10, tmp_path)
    assert before[10].threads is None
    after = {10: ProcessCpu(before[10].ticks + 0.4, before[10].ended)}
    assert cpu_time(before, after).seconds == pytest.approx(0.4)


def test_nanoseconds_count_threads_that_began_in_between() -> None:
    before = {1: ProcessCpu(2.0, threads={1: 1_000_000_000})}
    after = {1: ProcessCpu(3.0, threads={1: 1_200_000_000, 2: 300_000_000})}
    between = cpu_time(before, after)
    assert between.seconds == pytest.approx(0.5)
    assert between.main == pytest.approx(0.2)


def test_a_thread_that_ended_in_between_leaves_the_ticks_of_its_process() -> None:
    before = {1: ProcessCpu(2.0, threads={1: 1_000, 2: 5}), 7: ProcessCpu(1.0, threads={7: 0})}
    after = {
        1: ProcessCpu(3.0, threads={1: 1_200}),
        7: ProcessCpu(9.0, threads={7: 250_000_000}),
    }
    between = cpu_time(before, after)
    assert between.seconds == pytest.approx(1.25)
    assert between.first == pytest.approx(1.0)


def test_a_child_that_ended_in_between_counts_with_what_it_used_since() -> None:
    before = {1: ProcessCpu(2.0, 0.5, threads={1: 0}), 7: ProcessCpu(1.0, threads={7: 0})}
    after = {1: ProcessCpu(2.0, 1.9, threads={1: 100_000_000})}
    assert cpu_time(before, after).seconds == pytest.approx(0.1 + 0.4)


def test_a_process_counts_from_its_beginning_where_nothing_was_read_before() -> None:
    after = {1: ProcessCpu(2.0, 0.25, {1: 2_000_000_000})}
    assert cpu_time({}, after).seconds == pytest.approx(2.25)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux' /proc")
def test_the_cpu_time_of_this_process_is_measured() -> None:
    before, began = read(os.getpid()), time.process_time()
    while time.process_time() - began < 0.1:
        pass
    assert cpu_time(before, read(os.getpid())).seconds >= 0.09
    assert rss(os.getpid()) > 1_000_000


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux' /proc")
def test_the_most_memory_of_a_tree_is_known_after_a_childs_end() -> None:
    code = "import time; kept = bytearray(40_000_000); time.sleep(0.5)"
    alone = rss(os.getpid())
    with PeakMemory(os.getpid(), 0.02) as memory:
        subprocess.run([sys.executable, "-S", "-c", code], check=True)
    assert memory.rss > alone + 40_000_000
    assert memory.pss > 40_000_000


def test_memory_of_a_tree_is_shared_out_among_its_processes(tmp_path: Path) -> None:
    process(tmp_path, 10, {10: 1}, children="20")
    process(tmp_path, 20, {20: 1})
    for pid in (10, 20):
        (tmp_path / str(pid) / "smaps_rollup").write_text("Rss:\t 900 kB\nPss:\t 100 kB\n")
    assert pss(10, tmp_path) == 200 * 1024
    assert rss_alone(10, tmp_path) == 2048 * 1024

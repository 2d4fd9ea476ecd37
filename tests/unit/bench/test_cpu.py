"""CPU time and memory from `/proc`, on files that look like it."""

import os
import time
from pathlib import Path

import pytest

from bench.cpu import (
    CpuReading,
    Ticks,
    cpu_time,
    parse_memory,
    parse_schedstat,
    parse_stat,
    peak_rss,
    read,
    rss,
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
    ticks = parse_stat(STAT)
    assert ticks == Ticks(user=250 / HERTZ, system=130 / HERTZ)
    assert ticks.total == pytest.approx(380 / HERTZ)


def test_schedstat_begins_with_nanoseconds_on_a_cpu() -> None:
    assert parse_schedstat("123456789 42 7\n") == 123_456_789


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
    assert reading.threads == {10: 1_000, 11: 2_000, 20: 4_000, 30: 8_000, 40: 16_000}
    assert reading.ticks.user == pytest.approx(4 * 250 / HERTZ)
    assert rss(10, tmp_path) == 4 * 2048 * 1024
    assert peak_rss(10, tmp_path) == 4 * 4096 * 1024


def test_a_kernel_without_schedstat_leaves_the_ticks(tmp_path: Path) -> None:
    process(tmp_path, 10, {10: None})
    before = read(10, tmp_path)
    assert before.threads is None
    after = CpuReading(Ticks(before.ticks.user + 0.3, before.ticks.system + 0.1), None)
    between = cpu_time(before, after)
    assert between.seconds == pytest.approx(0.4)
    assert between.system_share == pytest.approx(0.25)


def test_nanoseconds_count_threads_that_began_in_between() -> None:
    before = CpuReading(Ticks(1.0, 1.0), {1: 1_000_000_000})
    after = CpuReading(Ticks(1.5, 1.5), {1: 1_200_000_000, 2: 300_000_000})
    between = cpu_time(before, after)
    assert between.seconds == pytest.approx(0.5)
    assert between.main_share == pytest.approx(0.4)


def test_a_thread_that_ended_in_between_leaves_the_ticks() -> None:
    before = CpuReading(Ticks(1.0, 1.0), {1: 1_000_000_000, 2: 5})
    after = CpuReading(Ticks(1.75, 1.25), {1: 1_200_000_000})
    between = cpu_time(before, after)
    assert between.seconds == pytest.approx(1.0)
    assert between.system_share == pytest.approx(0.25)


def test_no_cpu_time_has_no_share() -> None:
    reading = CpuReading(Ticks(1.0, 1.0), {1: 7})
    assert cpu_time(reading, reading).system_share == 0.0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux' /proc")
def test_the_cpu_time_of_this_process_is_measured() -> None:
    before, began = read(os.getpid()), time.process_time()
    while time.process_time() - began < 0.1:
        pass
    assert cpu_time(before, read(os.getpid())).seconds >= 0.09
    assert rss(os.getpid()) > 1_000_000

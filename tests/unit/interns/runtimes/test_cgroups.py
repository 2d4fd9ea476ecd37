from pathlib import Path

import pytest

from tollhouse.interns.runtimes.base import SandboxLimits
from tollhouse.interns.runtimes.cgroups import Cgroups

LIMITS = SandboxLimits(
    memory_bytes=1 << 28, processes=64, cpus=1.5, disk_bytes=1 << 30, open_files=64, files=1_000_000
)
_SERVICE = "0::/tollhouse.service/server\n"


def mount(where: Path, kind: str, options: str, root: str = "/") -> str:
    return f"35 31 0:32 {root} {where} rw,relatime - {kind} cgroup rw,{options}\n"


def unified(top: Path, passed_on: str) -> Cgroups:
    own = top / "tollhouse.service" / "server"
    own.mkdir(parents=True)
    (own.parent / "cgroup.subtree_control").write_text(passed_on)
    return Cgroups("tollhouse-x-", mount(top, "cgroup2", "nsdelegate"), _SERVICE)


def test_version_2_makes_a_group_beside_the_servers(tmp_path: Path) -> None:
    group = unified(tmp_path, "cpu memory pids\n").make("s1", LIMITS)
    folder = tmp_path / "tollhouse.service" / "tollhouse-x-s1"
    assert group.limits_kept == {"memory_bytes", "processes", "cpus"}
    assert group.procs_files == [str(folder / "cgroup.procs")]
    assert {each.name: each.read_text() for each in folder.iterdir()} == {
        "memory.max": "268435456",
        "memory.swap.max": "0",
        "pids.max": "66",
        "cpu.max": "150000 100000",
    }


@pytest.mark.parametrize(("passed_on", "kept"), [("pids\n", {"processes"}), ("\n", set())])
def test_version_2_keeps_what_is_passed_on_alone(
    tmp_path: Path, passed_on: str, kept: set[str]
) -> None:
    assert unified(tmp_path, passed_on).make("s1", LIMITS).limits_kept == kept


def test_version_1_makes_a_group_below_the_servers_in_each_hierarchy(tmp_path: Path) -> None:
    mounts = ""
    for name in ("memory", "cpu,cpuacct"):
        (tmp_path / name / "service").mkdir(parents=True)
        mounts += mount(tmp_path / name, "cgroup", name)
    own = "4:memory:/service\n1:cpu,cpuacct:/service\n0::/\n"
    group = Cgroups("tollhouse-x-", mounts, own).make("s1", LIMITS)
    assert group.limits_kept == {"memory_bytes", "cpus"}
    memory = tmp_path / "memory" / "service" / "tollhouse-x-s1"
    assert (memory / "memory.limit_in_bytes").read_text() == "268435456"


def test_a_hierarchy_of_which_only_a_part_is_mounted_is_found(tmp_path: Path) -> None:
    mounts = mount(tmp_path, "cgroup", "pids", root="/docker/1")
    group = Cgroups("tollhouse-x-", mounts, "8:pids:/docker/1\n").make("s1", LIMITS)
    assert group.procs_files == [str(tmp_path / "tollhouse-x-s1" / "cgroup.procs")]


def test_the_kernel_counts_those_that_were_killed_for_memory(tmp_path: Path) -> None:
    group = unified(tmp_path, "memory\n").make("s1", LIMITS)
    events = tmp_path / "tollhouse.service" / "tollhouse-x-s1" / "memory.events"
    events.write_text("max 3\noom 1\noom_kill 0\noom_group_kill 7\n")
    assert not group.ran_out_of_memory()
    events.write_text("max 3\noom 1\noom_kill 2\n")
    assert group.ran_out_of_memory()
    used = events.with_name("memory.current")
    used.write_text(f"{LIMITS.memory_bytes - (8 << 20)}\n")
    assert not group.memory_full()
    used.write_text(f"{LIMITS.memory_bytes - (1 << 20)}\n")
    assert group.memory_full()


def test_a_sweep_takes_ours_wherever_they_stand_and_leaves_others(tmp_path: Path) -> None:
    kept = {"tollhouse-y-s1", "tollhouse-x-s2", "deep/tollhouse-xx-s1"}
    for name in (*kept, "tollhouse-x-s1", "deep/er/tollhouse-x-s3"):
        (tmp_path / name).mkdir(parents=True)
    mounts = mount(tmp_path, "cgroup", "pids")
    Cgroups("tollhouse-x-", mounts, "8:pids:/\n").sweep(frozenset({"s2"}))
    assert {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("tollhouse-*")} == kept


@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "a" * 101])
def test_a_name_that_is_no_name_makes_nothing(tmp_path: Path, name: str) -> None:
    cgroups = Cgroups("tollhouse-x-", mount(tmp_path, "cgroup", "pids"), "8:pids:/\n")
    with pytest.raises(ValueError, match="name"):
        cgroups.make(name, LIMITS)

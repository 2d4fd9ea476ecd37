"""Control groups: what limits all processes of a sandbox together, where the machine lets us.

    <a hierarchy>/<where the server is>/tollhouse-<installation>-<sandbox>

In version 1 each controller has a hierarchy of its own; a sandbox's group stands below the
server's, so that it uses of what the server may use. In version 2 a group that holds processes
cannot pass controllers on, so that it stands beside the server's, in the nearest group above that
passes them on and that we may write to. For a service of systemd's that is so with `Delegate=yes`
and `DelegateSubgroup=`, or as root.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/; cgroups(7).
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tollhouse.interns.runtimes.base import SandboxLimits

_LIMIT_OF_CONTROLLER: Final = {"memory": "memory_bytes", "pids": "processes", "cpu": "cpus"}
"""Controllers, and which limit each keeps."""
_PERIOD_MICROSECONDS: Final = 100_000
_LEAST_QUOTA: Final = 1_000
_OWN_PROCESSES: Final = 2
"""Processes of bubblewrap's that are counted with the sandbox's: the one outside, and its init."""
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-]{0,99}")
_V1: Final = 1
_V2: Final = 2
_MEMORY_FILES: Final = {
    _V1: ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    _V2: ("memory.max", "memory.current"),
}
_LEAST_MEMORY: Final = 4 * 1024 * 1024
"""With less to use, a shell does not start."""
_TRIES: Final = 100
_BETWEEN_SECONDS: Final = 0.02
_MOUNT_FIELDS: Final = 10


class CgroupHierarchy(NamedTuple):
    """Where groups can be made."""

    version: int
    controllers: tuple[str, ...]
    base: Path


@dataclass(frozen=True, slots=True)
class SandboxCgroups:
    """The groups of one sandbox, one in each hierarchy."""

    folders: tuple[tuple[CgroupHierarchy, Path], ...]

    @property
    def limits_kept(self) -> frozenset[str]:
        """Which fields of `SandboxLimits` it keeps."""
        return frozenset(
            _LIMIT_OF_CONTROLLER[name] for each, _ in self.folders for name in each.controllers
        )

    @property
    def procs_files(self) -> list[str]:
        """The files that a process enters it by."""
        return [str(folder / "cgroup.procs") for _, folder in self.folders]

    def ran_out_of_memory(self) -> bool:
        """Tell whether a process of it was killed since there was no memory left for it."""
        for hierarchy, folder in self.folders:
            if "memory" in hierarchy.controllers:
                name = "memory.events" if hierarchy.version == _V2 else "memory.oom_control"
                with suppress(OSError):
                    words = (folder / name).read_text()
                    found = re.search(r"^oom_kill (\d+)$", words, re.MULTILINE)
                    return found is not None and int(found[1]) > 0
        return False

    def memory_full(self) -> bool:
        """Tell whether its processes use all the memory that they may, give or take a little.

        The kernel takes some of it back all the time, so that they seldom have the last byte.
        """
        for hierarchy, folder in self.folders:
            if "memory" in hierarchy.controllers:
                most, used = _MEMORY_FILES[hierarchy.version]
                with suppress(OSError, ValueError):
                    left = int((folder / most).read_text()) - int((folder / used).read_text())
                    return left < _LEAST_MEMORY
        return False

    def remove(self) -> None:
        """End what is left in it, and remove it. Takes as long as the kernel takes to end that."""
        for _, folder in self.folders:
            _kill_and_remove(folder)


class Cgroups:
    """Makes groups for the sandboxes of one installation."""

    def __init__(self, mark: str, mounts: str, own: str) -> None:
        """Take the prefix of our groups' names, `/proc/self/mountinfo` and `/proc/self/cgroup`."""
        self._prefix = mark
        self._mounts = dict(_mounted(mounts))
        self._own = dict(_memberships(own))

    def make(self, sandbox: str, limits: SandboxLimits) -> SandboxCgroups:
        """Make the group of a sandbox, with what this machine keeps of its limits; maybe nothing.

        Raises `ValueError` where the name has more than letters, digits and hyphens.
        """
        if _NAME.fullmatch(sandbox) is None:
            raise ValueError("a sandbox has a name of letters, digits and hyphens")
        made: list[tuple[CgroupHierarchy, Path]] = []
        for hierarchy in self._hierarchies():
            folder = hierarchy.base / f"{self._prefix}{sandbox}"
            try:
                _kill_and_remove(folder)
                folder.mkdir()
                for name, value in _settings(hierarchy, limits):
                    (folder / name).write_text(value)
                for name, value in _swap(hierarchy, limits):
                    with suppress(OSError):  # a kernel that does not count swap has no such file
                        (folder / name).write_text(value)
            except OSError:
                _kill_and_remove(folder)
            else:
                made.append((hierarchy, folder))
        return SandboxCgroups(tuple(made))

    def existing(self) -> Iterator[Path]:
        """Yield all groups of this installation, wherever the server was when it made them."""
        for top, _ in set(self._mounts.values()):
            for folder, names, _ in os.walk(top):
                ours = [name for name in names if name.startswith(self._prefix)]
                yield from (Path(folder, name) for name in ours)
                names[:] = [name for name in names if name not in ours]

    def sweep(self, running: frozenset[str]) -> None:
        """Remove the groups of all sandboxes but those that run, with every process in them."""
        kept = {f"{self._prefix}{name}" for name in running}
        for folder in list(self.existing()):
            if folder.name not in kept:
                _kill_and_remove(folder)

    def _hierarchies(self) -> Iterator[CgroupHierarchy]:
        left = set(_LIMIT_OF_CONTROLLER)
        if "" in self._mounts and "" in self._own:
            base, controllers = _delegating(*self._below("", ""), left)
            if base is not None:
                left -= set(controllers)
                yield CgroupHierarchy(_V2, controllers, base)
        for name in sorted(left):
            if name in self._mounts and name in self._own:
                _, folder = self._below(name, name)
                if os.access(folder, os.W_OK):
                    yield CgroupHierarchy(_V1, (name,), folder)

    def _below(self, mount: str, controller: str) -> tuple[Path, Path]:
        top, root = self._mounts[mount]
        own = self._own[controller]
        relative = own.removeprefix(root) if root != "/" else own
        return top, top / relative.lstrip("/")


def _delegating(top: Path, own: Path, wanted: set[str]) -> tuple[Path | None, tuple[str, ...]]:
    """Return the nearest group above ours that passes controllers on, and which."""
    for folder in own.parents:
        if not folder.is_relative_to(top):
            break
        with suppress(OSError):
            passed = set((folder / "cgroup.subtree_control").read_text().split())
            if passed & wanted and os.access(folder, os.W_OK):
                return folder, tuple(sorted(passed & wanted))
    return None, ()


def _mounted(mounts: str) -> Iterator[tuple[str, tuple[Path, str]]]:
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < _MOUNT_FIELDS or "-" not in fields:
            continue
        kind, _, options = fields[fields.index("-") + 1 :][:3]
        where = Path(fields[4]), fields[3]
        if kind == "cgroup2":
            yield "", where
        elif kind == "cgroup":
            yield from (
                (name, where) for name in options.split(",") if name in _LIMIT_OF_CONTROLLER
            )


def _memberships(own: str) -> Iterator[tuple[str, str]]:
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        yield from ((name, path) for name in names.split(","))


def _settings(hierarchy: CgroupHierarchy, limits: SandboxLimits) -> Iterator[tuple[str, str]]:
    quota = max(_LEAST_QUOTA, int(limits.cpus * _PERIOD_MICROSECONDS))
    new = hierarchy.version == _V2
    if "memory" in hierarchy.controllers:
        yield "memory.max" if new else "memory.limit_in_bytes", str(limits.memory_bytes)
    if "pids" in hierarchy.controllers:
        yield "pids.max", str(limits.processes + _OWN_PROCESSES)
    if "cpu" in hierarchy.controllers and new:
        yield "cpu.max", f"{quota} {_PERIOD_MICROSECONDS}"
    elif "cpu" in hierarchy.controllers:
        yield "cpu.cfs_period_us", str(_PERIOD_MICROSECONDS)
        yield "cpu.cfs_quota_us", str(quota)


def _swap(hierarchy: CgroupHierarchy, limits: SandboxLimits) -> Iterator[tuple[str, str]]:
    if "memory" in hierarchy.controllers and hierarchy.version == _V2:
        yield "memory.swap.max", "0"
    elif "memory" in hierarchy.controllers:
        yield "memory.memsw.limit_in_bytes", str(limits.memory_bytes)


def _kill_and_remove(folder: Path) -> None:
    """End what is in a group, and remove it; a process takes its time to be gone."""
    for _ in range(_TRIES):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            with suppress(OSError, ValueError):
                for process in (folder / "cgroup.procs").read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
            time.sleep(_BETWEEN_SECONDS)
        else:
            return

"""A program that becomes a sandbox, or runs a daemon without one and ends all that it started.

    python -I -S launcher.py PLAN

It imports nothing of the gateway. The plan is one line of JSON:

    parent       process number of the server; when that is gone, so is this
    limits       pairs of a resource and its value
    command      what it becomes, or runs

To become a sandbox, by bubblewrap:

    groups       files of control groups that it enters before anything else
    user         number of the user that it becomes; null where it stays who it is
    show         paths that this user may not reach; each can be read as /tmp/<place in this list>

Only root can become another user. It then has mounts of its own, where a small file system over
/tmp holds what is to be shown: nobody needs a right to the folders above that.

To run a daemon without a sandbox:

    folder       where it begins
    environment  what it is told

Orphans of the daemon become children of this program, since it is their reaper: when it is told to
end, or the server or the daemon has ended, it kills until nothing is left below it.

Source: mount(2), mount_namespaces(7), prctl(2) (PR_SET_CHILD_SUBREAPER), keyctl(2).
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import signal
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_BIND = 0x2, 0x4, 0x1000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_BETWEEN_SECONDS = 0.005
_PLACE = Path("/tmp")  # noqa: S108 - a mount of its own, which nobody else sees
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_OOM_SCORE = "500"
"""Where the machine itself has no memory left, sandboxes go before the server does."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Told(Exception):
    """It is to end."""


def become_sandbox(plan: dict[str, Any]) -> None:
    """Become what the plan says; return only by an exception."""
    for file in plan["groups"]:
        Path(file).write_text("0")
    Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    _join_no_keys()
    if plan["user"] is not None:
        _show(plan["show"])
        os.setgroups([])
        os.setresgid(plan["user"], plan["user"], plan["user"])
        os.setresuid(plan["user"], plan["user"], plan["user"])
    os.umask(0o022)
    os.chdir("/")
    _take_limits(plan["limits"])
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != plan["parent"]:
        sys.exit(1)
    os.execv(plan["command"][0], plan["command"])  # noqa: S606 - no shell is wanted


def supervise(plan: dict[str, Any]) -> int:
    """Run a daemon without a sandbox; return the code to end with."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, _tell)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    code = 128 + signal.SIGKILL
    try:
        if os.getppid() == plan["parent"]:
            code = _code_of(_started(plan))
    except _Told:
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_all()
    return code


def _end_all() -> None:
    """Kill all below this process, until there is nothing."""
    while True:
        for child in _children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_BETWEEN_SECONDS)


def _started(plan: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        os.umask(0o022)
        os.chdir(plan["folder"])
        _take_limits(plan["limits"])
        os.execve(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606 - no shell
    finally:
        os._exit(127)


def _code_of(child: int) -> int:
    """Wait until the daemon has ended, and bury its orphans meanwhile."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _children() -> Iterator[int]:
    for thread in Path("/proc/self/task").iterdir():
        yield from map(int, (thread / "children").read_text().split())


def _tell(*_: object) -> None:
    raise _Told


def _take_limits(limits: list[tuple[int, int]]) -> None:
    """Take limits, as far as they are below what this process has."""
    for number, value in limits:
        _, highest = resource.getrlimit(number)
        kept = value if highest == resource.RLIM_INFINITY else min(value, highest)
        resource.setrlimit(number, (kept, kept))


def _join_no_keys() -> None:
    """Leave the keys that the kernel holds for the server's session."""
    number = _KEYCTL.get(platform.machine())
    if number is not None:
        _libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)


def _show(paths: list[str]) -> None:
    """Make paths readable for whom the folders above them are closed."""
    _checked(_libc.unshare(_CLONE_NEWNS))
    _mount("none", "/", None, _MS_REC | _MS_SLAVE, None)
    # Opened before the place hides what lies below it, and in these mounts.
    shown = [os.open(path, os.O_PATH) for path in paths]
    _mount("tmpfs", str(_PLACE), "tmpfs", _MS_NOSUID | _MS_NODEV, "size=256k,mode=755")
    for number, opened in enumerate(shown):
        target = _PLACE / str(number)
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            target.mkdir()
        else:
            target.touch()
        _mount(f"/proc/self/fd/{opened}", str(target), None, _MS_BIND, None)
        os.close(opened)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    texts = [None if each is None else each.encode() for each in (source, target, kind, options)]
    _checked(_libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    if "folder" in told:
        sys.exit(supervise(told))
    become_sandbox(told)

"""A program that becomes a sandbox: takes its limits, gives up its rights, then runs bubblewrap.

    python -I -S stage.py PLAN

It imports nothing of the gateway. The plan is one line of JSON:

    parent    process number of the server; when that is gone, so is this
    groups    files of control groups that it enters before anything else
    limits    pairs of a resource and its value
    user      number of the user that it becomes; null where it stays who it is
    show      paths that this user may not reach; each can be read as /tmp/<place in this list>
    command   what it becomes

Only root can become another user. It then has mounts of its own, where a small file system over
/tmp holds what is to be shown: nobody needs a right to the folders above that.

Source: mount(2), mount_namespaces(7), prctl(2), keyctl(2).
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
from pathlib import Path
from typing import Any

_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_BIND = 0x2, 0x4, 0x1000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_PR_SET_PDEATHSIG = 1
_PLACE = Path("/tmp")  # noqa: S108 - a mount of its own, which nobody else sees
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_OOM_SCORE = "500"
"""Where the machine itself has no memory left, sandboxes go before the server does."""

_libc = ctypes.CDLL(None, use_errno=True)


def main(plan: dict[str, Any]) -> None:
    """Become what the plan says; return only by an exception."""
    enter_groups(plan["groups"])
    Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    join_no_keys()
    if plan["user"] is not None:
        show(plan["show"])
        become(plan["user"])
    os.umask(0o022)
    os.chdir("/")
    take_limits(plan["limits"])
    end_with(plan["parent"], signal.SIGKILL)
    os.execv(plan["command"][0], plan["command"])  # noqa: S606 - no shell is wanted


def enter_groups(files: list[str]) -> None:
    """Enter control groups."""
    for file in files:
        Path(file).write_text("0")


def take_limits(limits: list[tuple[int, int]]) -> None:
    """Take limits, as far as they are below what this process has."""
    for number, value in limits:
        _, highest = resource.getrlimit(number)
        kept = value if highest == resource.RLIM_INFINITY else min(value, highest)
        resource.setrlimit(number, (kept, kept))


def end_with(parent: int, number: int) -> None:
    """Get a signal when the server ends, however it does; end now if it has already."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        sys.exit(1)


def join_no_keys() -> None:
    """Leave the keys that the kernel holds for the server's session."""
    number = _KEYCTL.get(platform.machine())
    if number is not None:
        _libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)


def show(paths: list[str]) -> None:
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


def become(user: int) -> None:
    """Become a user without any group but its own."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    texts = [None if each is None else each.encode() for each in (source, target, kind, options)]
    _checked(_libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""Why bubblewrap cannot start a sandbox on this machine, found by trying.

The messages reach the owner of an intern that cannot start: they name no path and repeat nothing
that a program has said. That is in the log.

Source: bwrap(1); user_namespaces(7); Ubuntu's kernel.apparmor_restrict_unprivileged_userns.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tollhouse.interns.runtimes.host import unreadable
from tollhouse.interns.runtimes.launching import own_program
from tollhouse.sandbox.syscalls.numbers import MACHINES

if TYPE_CHECKING:
    from tollhouse.interns.runtimes.host import Host

_log = structlog.get_logger(__name__)

_LEAST: Final = (0, 8)
"""Has `--disable-userns` and `--size`."""
_NOBODY: Final = 65534
_SECONDS: Final = 20
_TRIAL: Final = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"),
    *("--cap-drop", "ALL", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc"),
    *("--dev", "/dev", "--", "/bin/true"),
)


def find_problem(host: Host, *, as_root: bool) -> str | None:
    """Return what is wrong and what to do; None where a sandbox can be started. It blocks."""
    if sys.platform != "linux":
        return "sandboxes need Linux"
    if platform.machine() not in MACHINES:
        return f"there is no filter of system calls for {platform.machine()} yet"
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        return "bubblewrap is not installed: apt-get install bubblewrap, or dnf install bubblewrap"
    closed = unreadable(host) if as_root else None
    if closed is not None:
        _log.error("sandbox_cannot_read", path=str(closed))
        return (
            "sandboxes have users of their own, who may not read what the server's Python needs: "
            "the server's log names the folder, for chmod -R o+rX"
        )
    return _too_old(bubblewrap) or _trial(bubblewrap, as_root=as_root)


def _too_old(bubblewrap: str) -> str | None:
    said = _run((bubblewrap, "--version")).stdout
    version = re.search(r"(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < _LEAST:
        _log.error("bubblewrap_too_old", said=said.strip())
        return "bubblewrap is too old: 0.8.0 or newer is needed"
    return None


def _trial(bubblewrap: str, *, as_root: bool) -> str | None:
    plan = {
        "parent": os.getpid(),
        "groups": [],
        "limits": [],
        "user": _NOBODY if as_root else None,
        "show": [],
        "command": [bubblewrap, *_TRIAL],
    }
    done = _run((*own_program("stage.py"), msgspec.json.encode(plan).decode()))
    if done.returncode == 0:
        return None
    reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    _log.error("bubblewrap_failed", said=reason)
    return (
        "bubblewrap cannot make a sandbox here (the server's log has its words): allow user "
        "namespaces, by "
        "sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1 or "
        "kernel.apparmor_restrict_unprivileged_userns=0; a container needs a seccomp profile that "
        "lets unshare and mount pass"
    )


def _run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - ours, and bubblewrap
            command, capture_output=True, text=True, timeout=_SECONDS, check=False, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))

"""A program that runs a daemon without a sandbox, and ends all that it started.

    python -I -S supervisor.py PLAN

Orphans of the daemon become its own children, since it is their reaper: when it is told to end,
or the server or the daemon has ended, it kills until nothing is left below it. It imports nothing
of the gateway but what stands beside it. The plan is `stage`'s, with an `environment` and a
`folder` to begin in.

Source: prctl(2), PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_BETWEEN_SECONDS = 0.005


class _Told(Exception):
    """It is to end."""


def main(plan: dict[str, Any]) -> int:
    """Run it; return the code to end with."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, _tell)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    code = 128 + signal.SIGKILL
    try:
        if os.getppid() == plan["parent"]:
            code = _code_of(_started(plan))
    except _Told:
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_all()
    return code


def end_all() -> None:
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
        for number, value in plan["limits"]:
            _, highest = resource.getrlimit(number)
            kept = value if highest == resource.RLIM_INFINITY else min(value, highest)
            resource.setrlimit(number, (kept, kept))
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


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))

"""What a process that serves asks of the system: memory of its own, and enough open files."""

from __future__ import annotations

import ctypes
import resource
import sys
from contextlib import suppress
from typing import Final

import structlog

_PR_SET_DUMPABLE: Final = 4
_log = structlog.get_logger(__name__)


def keep_memory_private() -> None:
    """Let nothing of this process get into a core dump, nor its own user look into it.

    Source: setrlimit(2), RLIMIT_CORE; prctl(2), PR_SET_DUMPABLE.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        # A core pattern with a pipe ignores the limit; what is not dumpable is not piped either.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
            _log.warning("memory_not_private", errno=ctypes.get_errno())


def allow_open_files() -> None:
    """Allow as many open files as the system lets us: each stream holds two sockets.

    The usual soft limit of 1,024 is kept low for programs that use `select`.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS has a lower bound than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

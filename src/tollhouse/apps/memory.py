"""Keeping what is in memory there: secrets are, while they are sealed and opened."""

from __future__ import annotations

import ctypes
import resource
import sys
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

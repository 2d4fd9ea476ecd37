"""Limits that the kernel keeps for each process: less than groups of processes can, but everywhere.

Source: getrlimit(2).
"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tollhouse.interns.runtimes.base import SandboxLimits

_LOCKED_BYTES: Final = 8 * 1024 * 1024


def process_limits(limits: SandboxLimits, *, memory_is_kept: bool) -> list[tuple[int, int]]:
    """Return what each process of a sandbox is limited to: number of the resource, and value.

    Args:
        limits: Of the whole sandbox.
        memory_is_kept: Whether something better limits its memory. Where nothing does, each
            process may have as much as all of them together should. It is its data that is
            counted, not its addresses: Node and Go reserve far more of these than they use.
    """
    found = [
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_FSIZE, limits.disk_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, _LOCKED_BYTES),
    ]
    return found if memory_is_kept else [*found, (resource.RLIMIT_DATA, limits.memory_bytes)]

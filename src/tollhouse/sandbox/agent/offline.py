"""Commands that get no network: which system calls they may not make, and how they are started.

Where the filter cannot be made (a machine of a kind that it does not know), such a command is not
run at all.

Source: socket(2), seccomp(2).
"""

from __future__ import annotations

import errno
import platform
import sys
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tollhouse.sandbox.syscalls.bpf import if_equal, refuse
from tollhouse.sandbox.syscalls.filters import filter_of
from tollhouse.sandbox.syscalls.numbers import MACHINES

if TYPE_CHECKING:
    from collections.abc import Sequence

_REFUSED: Final = (
    "socket",  # of whatever kind: the way out has a socket in the file system, too
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),  # they open sockets past a filter
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"),  # others' sockets
)
_LAUNCHER: Final = str(Path(__file__).with_name("no_network.py"))


class NoFilter(Exception):
    """This kind of machine is not known."""


def offline(command: Sequence[str]) -> list[str]:
    """Return a command that runs another one, and all that it starts, without network.

    Args:
        command: A program's absolute path, and its arguments.

    Raises:
        NoFilter: This kind of machine is not known.
    """
    try:
        code = filter_program(platform.machine())
    except KeyError:
        raise NoFilter from None
    return [sys.executable, "-I", "-S", _LAUNCHER, code.hex(), *command]


@cache
def filter_program(machine: str) -> bytes:
    """Return the filter for a kind of machine.

    Pairs of sockets are left: they lead nowhere, and programs speak to their children by them.

    Args:
        machine: As `platform.machine()` says.

    Raises:
        KeyError: There is none for it.
    """
    found = MACHINES[machine]
    refused = (if_equal(found.numbers[name], refuse(errno.EACCES)) for name in _REFUSED)
    return filter_of(found, chain.from_iterable(refused))

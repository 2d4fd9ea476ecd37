"""What every filter of system calls begins and ends with. Pure."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tollhouse.sandbox.syscalls.bpf import (
    ARCHITECTURE,
    NUMBER,
    allow,
    if_greater,
    load,
    packed,
    refuse,
    unless_equal,
)
from tollhouse.sandbox.syscalls.numbers import LAST_KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tollhouse.sandbox.syscalls.bpf import Instruction
    from tollhouse.sandbox.syscalls.numbers import Machine


def filter_of(machine: Machine, rules: Iterable[Instruction]) -> bytes:
    """Return a filter as the kernel takes it.

    Args:
        machine: The kind of machine that it is for.
        rules: Run with the call's number loaded; what they let pass, the filter allows.

    Raises:
        ValueError: It is longer than the kernel allows.
    """
    return packed(
        [
            load(ARCHITECTURE),
            # 32-bit programs, whose calls have other numbers.
            *unless_equal(machine.audit_architecture, refuse(errno.ENOSYS)),
            load(NUMBER),
            # Calls that nobody has looked at yet; and x32's, whose numbers begin at 2 ** 30.
            *if_greater(LAST_KNOWN, refuse(errno.ENOSYS)),
            *rules,
            allow(),
        ]
    )

"""Classic BPF as seccomp runs it: the few instructions that a filter of system calls needs. Pure.

A program is made of blocks, and every jump stays inside its block, so that no offset is ever
longer than the eight bits it has.

Source: Linux, Documentation/networking/filter.rst; seccomp(2); <linux/filter.h>.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

LOAD: Final = 0x20
"""BPF_LD | BPF_W | BPF_ABS: a word of `struct seccomp_data`."""
JUMP_EQUAL: Final = 0x15
JUMP_GREATER: Final = 0x25
JUMP_ANY_BIT: Final = 0x45
AND: Final = 0x54
RETURN: Final = 0x06

ALLOW: Final = 0x7FFF0000
ERRNO: Final = 0x00050000
"""SECCOMP_RET_ERRNO; the number of the error stands in the lower half."""

NUMBER: Final = 0
"""Offset of the call's number in `struct seccomp_data`."""
ARCHITECTURE: Final = 4
_ARGUMENTS: Final = 16
_MOST_INSTRUCTIONS: Final = 4096


class Instruction(NamedTuple):
    """One `struct sock_filter`."""

    code: int
    if_true: int
    """How many instructions are skipped where a comparison holds."""
    if_false: int
    operand: int


def load(offset: int) -> Instruction:
    """Load a word of what is known of the call."""
    return Instruction(LOAD, 0, 0, offset)


def low(argument: int) -> int:
    """Return where the lower half of an argument stands, on a little-endian machine."""
    return _ARGUMENTS + 8 * argument


def high(argument: int) -> int:
    """Return where its upper half stands."""
    return low(argument) + 4


def allow() -> Instruction:
    """Let the call pass."""
    return Instruction(RETURN, 0, 0, ALLOW)


def refuse(error: int) -> Instruction:
    """Let the call fail with an error number, without being made."""
    return Instruction(RETURN, 0, 0, ERRNO | error)


def unless_equal(value: int, then: Instruction) -> list[Instruction]:
    """Do something where the loaded word is another one."""
    return [Instruction(JUMP_EQUAL, 1, 0, value), then]


def if_equal(value: int, *then: Instruction) -> list[Instruction]:
    """Do something where the loaded word is this one. It must return, or be the last there is."""
    return [Instruction(JUMP_EQUAL, 0, len(then), value), *then]


def if_greater(value: int, then: Instruction) -> list[Instruction]:
    """Do something where the loaded word is greater, without a sign."""
    return [Instruction(JUMP_GREATER, 0, 1, value), then]


def if_any_bit(mask: int, then: Instruction) -> list[Instruction]:
    """Do something where the loaded word has one of these bits."""
    return [Instruction(JUMP_ANY_BIT, 0, 1, mask), then]


def keep_bits(mask: int) -> Instruction:
    """Clear all other bits of the loaded word."""
    return Instruction(AND, 0, 0, mask)


def packed(program: Iterable[Instruction]) -> bytes:
    """Return a program as the kernel takes it.

    Raises:
        ValueError: It is longer than the kernel allows.
    """
    instructions = list(program)
    if len(instructions) > _MOST_INSTRUCTIONS:
        message = f"a filter of {len(instructions)} instructions is too long"
        raise ValueError(message)
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)

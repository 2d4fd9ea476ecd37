"""A program of its own that takes the network away from itself, and becomes another one.

    python -I -S no_network.py <filter, hexadecimal> <program> <arguments>

It imports nothing of ours, so that it starts in milliseconds. What it sets is kept by whatever the
program starts:

- the filter of system calls (`shell.network_filter`): no socket can be made;
- where the kernel has Landlock: no process outside can be taken over through its memory, and no
  TCP be spoken through a socket that came from somewhere else.

Source: prctl(2), PR_SET_NO_NEW_PRIVS and PR_SET_SECCOMP; landlock(7).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_LANDLOCK_CREATE_RULESET = 444  # one number on every machine
_LANDLOCK_RESTRICT_SELF = 446
_WITH_NETWORK = 4  # the first version of Landlock that knows of TCP
_TCP = 3  # bind and connect
_INSTRUCTION_BYTES = 8


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def main(arguments: list[str]) -> None:
    """Give the network up, and become the program."""
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    one = ctypes.c_ulong(1)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, one, zero, zero, zero):
        _fail("cannot promise to gain no privileges")
    _shut_in(libc)
    code = bytes.fromhex(arguments[0])
    program = _Program(len(code) // _INSTRUCTION_BYTES, code)
    if libc.prctl(
        _PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program), zero, zero
    ):
        _fail("cannot filter system calls")
    os.execv(arguments[1], arguments[1:])  # noqa: S606 - without a shell is what is meant


def _shut_in(libc: ctypes.CDLL) -> None:
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < _WITH_NETWORK:  # what it adds, the filter does not need
        return
    handled = struct.pack("QQ", 0, _TCP)
    rules = libc.syscall(
        _LANDLOCK_CREATE_RULESET, ctypes.c_char_p(handled), ctypes.c_size_t(len(handled)), 0
    )
    if rules < 0 or libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0):
        _fail("cannot shut itself in")
    os.close(rules)


def _fail(what: str) -> None:
    sys.exit(f"no_network: {what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main(sys.argv[1:])

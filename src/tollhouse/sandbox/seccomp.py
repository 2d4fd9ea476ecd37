"""Filters of system calls, for seccomp: classic BPF, and the numbers of the calls. Pure.

Runtimes limit a whole sandbox with one, and the agent, inside, a single command. A program
is made of blocks, and every jump stays inside its block, so that no offset is ever longer than the
eight bits it has.

Source: Linux, Documentation/networking/filter.rst; seccomp(2); <linux/filter.h>;
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LAST_KNOWN: Final = 466
"""`removexattrat`, Linux 6.13: newer calls have not been looked at. The same on all machines."""

# Since Linux 5.1 a new call has one number everywhere.
_COMMON: Final = """
pidfd_getfd 438, process_madvise 440, clone3 435, io_uring_setup 425, io_uring_enter 426,
io_uring_register 427, open_tree 428, move_mount 429, fsopen 430, fsconfig 431, fsmount 432,
fspick 433, mount_setattr 442, quotactl_fd 443, set_mempolicy_home_node 450
"""
_X86_64: Final = """
ioctl 16, socket 41, socketpair 53, clone 56, ptrace 101, syslog 103, uselib 134,
personality 135, ustat 136, sysfs 139, vhangup 153, modify_ldt 154, pivot_root 155,
_sysctl 156, adjtimex 159, setrlimit 160, chroot 161, acct 163, settimeofday 164, mount 165,
umount2 166, swapon 167, swapoff 168, reboot 169, sethostname 170, setdomainname 171,
iopl 172, ioperm 173, create_module 174, init_module 175, delete_module 176,
get_kernel_syms 177, query_module 178, quotactl 179, nfsservctl 180, lookup_dcookie 212,
clock_settime 227, mbind 237, set_mempolicy 238, get_mempolicy 239, kexec_load 246,
add_key 248, request_key 249, keyctl 250, migrate_pages 256, unshare 272, move_pages 279,
fallocate 285, perf_event_open 298, fanotify_init 300, prlimit64 302, name_to_handle_at 303,
open_by_handle_at 304, clock_adjtime 305, setns 308, process_vm_readv 310,
process_vm_writev 311, kcmp 312, finit_module 313, kexec_file_load 320, bpf 321,
userfaultfd 323
"""
_AARCH64: Final = """
lookup_dcookie 18, ioctl 29, umount2 39, mount 40, pivot_root 41, nfsservctl 42,
fallocate 47, chroot 51, vhangup 58, quotactl 60, acct 89, personality 92, unshare 97,
kexec_load 104, init_module 105, delete_module 106, clock_settime 112, syslog 116,
ptrace 117, reboot 142, sethostname 161, setdomainname 162, setrlimit 164, settimeofday 170,
adjtimex 171, socket 198, socketpair 199, add_key 217, request_key 218, keyctl 219,
clone 220, swapon 224, swapoff 225, mbind 235, get_mempolicy 236, set_mempolicy 237,
migrate_pages 238, move_pages 239, perf_event_open 241, prlimit64 261, fanotify_init 262,
name_to_handle_at 264, open_by_handle_at 265, clock_adjtime 266, setns 268,
process_vm_readv 270, process_vm_writev 271, kcmp 272, finit_module 273, bpf 280,
userfaultfd 282, kexec_file_load 294
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of machine."""

    audit_architecture: int
    """Its `AUDIT_ARCH_*`, from <linux/audit.h>."""
    numbers: Mapping[str, int]


def _numbers(*tables: str) -> dict[str, int]:
    calls = (call.split() for table in tables for call in table.split(","))
    return {name: int(number) for name, number in calls}


MACHINES: Final[Mapping[str, Machine]] = {
    "x86_64": Machine(0xC000003E, _numbers(_COMMON, _X86_64)),
    "aarch64": Machine(0xC00000B7, _numbers(_COMMON, _AARCH64)),
}
_MOST_INSTRUCTIONS: Final = 4096
_RETURN: Final = 0x06
_JUMP_EQUAL: Final = 0x15


class Instruction(NamedTuple):
    """One `struct sock_filter`."""

    code: int
    if_true: int
    """How many instructions are skipped where a comparison holds."""
    if_false: int
    operand: int


def load(offset: int) -> Instruction:
    """Load a word of `struct seccomp_data`: BPF_LD | BPF_W | BPF_ABS."""
    return Instruction(0x20, 0, 0, offset)


def low_half(argument: int) -> int:
    """Return where the lower half of an argument stands, on a little-endian machine."""
    return 16 + 8 * argument


def high_half(argument: int) -> int:
    """Return where its upper half stands."""
    return low_half(argument) + 4


def allow() -> Instruction:
    """Let the call pass: SECCOMP_RET_ALLOW."""
    return Instruction(_RETURN, 0, 0, 0x7FFF0000)


def refuse(error: int) -> Instruction:
    """Let the call fail with an error number, without being made: SECCOMP_RET_ERRNO."""
    return Instruction(_RETURN, 0, 0, 0x00050000 | error)


def unless_equal(value: int, then: Instruction) -> list[Instruction]:
    """Do something where the loaded word is another one."""
    return [Instruction(_JUMP_EQUAL, 1, 0, value), then]


def if_equal(value: int, *then: Instruction) -> list[Instruction]:
    """Do something where the loaded word is this one. It must return, or be the last there is."""
    return [Instruction(_JUMP_EQUAL, 0, len(then), value), *then]


def if_greater(value: int, then: Instruction) -> list[Instruction]:
    """Do something where the loaded word is greater, without a sign."""
    return [Instruction(0x25, 0, 1, value), then]


def if_any_bit(mask: int, then: Instruction) -> list[Instruction]:
    """Do something where the loaded word has one of these bits."""
    return [Instruction(0x45, 0, 1, mask), then]


def keep_bits(mask: int) -> Instruction:
    """Clear all other bits of the loaded word."""
    return Instruction(0x54, 0, 0, mask)


def build_filter(machine: Machine, rules: Iterable[Instruction]) -> bytes:
    """Return a filter for a kind of machine, as the kernel takes it.

    The rules run with the call's number loaded; what they let pass, the filter allows. It is a
    `ValueError` that it is longer than the kernel allows.
    """
    program = [
        load(4),  # the architecture
        # 32-bit programs, whose calls have other numbers.
        *unless_equal(machine.audit_architecture, refuse(errno.ENOSYS)),
        load(0),  # the number of the call
        # Calls that nobody has looked at yet; and x32's, whose numbers begin at 2 ** 30.
        *if_greater(LAST_KNOWN, refuse(errno.ENOSYS)),
        *rules,
        allow(),
    ]
    if len(program) > _MOST_INSTRUCTIONS:
        raise ValueError(f"a filter of {len(program)} instructions is too long")
    return b"".join(struct.pack("=HBBI", *each) for each in program)

"""Which system calls a sandbox may make. Pure.

Refused is what asks the kernel for more than an unprivileged program needs: changes of mounts and
namespaces, looking into other processes, and the large interfaces in which kernels had their
holes. A refusal is an error number, never a killed process: programs probe for much of this, and
have a way without it. `clone3` hides its flags behind a pointer that a filter cannot follow; it
is told not to exist, and C libraries fall back to `clone`.

Sockets are of this machine alone (`lo` is all the network there is), and never raw.

The limit of a file's size cannot be changed inside: by it the host stops a sandbox from writing
whose workspace is full.

Source: flatpak, common/flatpak-run.c (`setup_seccomp`); Docker's default profile (moby,
profiles/seccomp/default.json); seccomp(2), clone(2), socket(2), ioctl_tty(2).
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Final

from tollhouse.sandbox.syscalls.bpf import (
    Instruction,
    allow,
    high,
    if_any_bit,
    if_equal,
    keep_bits,
    load,
    low,
    refuse,
    unless_equal,
)
from tollhouse.sandbox.syscalls.filters import filter_of
from tollhouse.sandbox.syscalls.numbers import MACHINES

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORBIDDEN: Final = (
    # mounts, roots, namespaces
    *("mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "open_tree", "move_mount"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "sethostname", "setdomainname"),
    # other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"),
    # large interfaces that no intern needs
    *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter"),
    *("io_uring_register", "keyctl", "add_key", "request_key", "fanotify_init"),
    # files behind the back of the mounts
    *("name_to_handle_at", "open_by_handle_at", "quotactl", "quotactl_fd", "acct"),
    # the machine itself
    *("kexec_load", "kexec_file_load", "create_module", "init_module", "finit_module"),
    *("delete_module", "query_module", "get_kernel_syms", "syslog", "reboot", "swapon", "swapoff"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "vhangup", "nfsservctl"),
    *("iopl", "ioperm", "modify_ldt", "uselib", "ustat", "sysfs", "_sysctl", "lookup_dcookie"),
    # where memory lies
    *("mbind", "get_mempolicy", "set_mempolicy", "set_mempolicy_home_node", "migrate_pages"),
    "move_pages",
)
_NEW_NAMESPACES: Final = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET; `clone` has no NEWTIME."""
_TIOCSTI: Final = 0x5412
_TIOCLINUX: Final = 0x541C
_PERSONALITY_QUERY: Final = 0xFFFFFFFF
_RLIMIT_FSIZE: Final = 1
_GIVES_SPACE_BACK: Final = 0x02 | 0x08
"""FALLOC_FL_PUNCH_HOLE and FALLOC_FL_COLLAPSE_RANGE."""
_NETLINK: Final = 16
_NETLINK_ROUTE: Final = 0
_TYPE_BITS: Final = 0xF
"""Of a socket's type; flags such as SOCK_CLOEXEC stand above them."""
_INTERNET_PROTOCOLS: Final = (0, socket.IPPROTO_TCP, socket.IPPROTO_UDP)


def filter_program(machine: str) -> bytes:
    """Return the filter for a kind of machine, as `bwrap --seccomp` and the kernel take it.

    Args:
        machine: As `platform.machine()` says.

    Raises:
        KeyError: There is none for it.
    """
    found = MACHINES[machine]
    rules = if_equal(found.numbers["clone3"], refuse(errno.ENOSYS))
    for name in _FORBIDDEN:
        if name in found.numbers:  # some are of one machine alone
            rules += if_equal(found.numbers[name], refuse(errno.EPERM))
    for name, rule in _RULES.items():
        rules += if_equal(found.numbers[name], *rule)
    return filter_of(found, rules)


def _clone() -> list[Instruction]:
    return [load(low(0)), *if_any_bit(_NEW_NAMESPACES, refuse(errno.EPERM)), allow()]


def _ioctl() -> list[Instruction]:
    # The kernel looks at the lower half of the request alone.
    return [
        load(low(1)),
        *if_equal(_TIOCSTI, refuse(errno.EPERM)),
        *if_equal(_TIOCLINUX, refuse(errno.EPERM)),
        allow(),
    ]


def _personality() -> list[Instruction]:
    return [
        load(low(0)),
        *if_equal(0, allow()),
        *if_equal(_PERSONALITY_QUERY, allow()),
        refuse(errno.EPERM),
    ]


def _socket() -> list[Instruction]:
    internet = [
        load(low(1)),
        keep_bits(_TYPE_BITS),
        *if_equal(socket.SOCK_STREAM, *_protocols()),
        *if_equal(socket.SOCK_DGRAM, *_protocols()),
        refuse(errno.EPERM),
    ]
    # glibc asks NETLINK_ROUTE which addresses there are.
    netlink = [
        load(low(2)),
        *if_equal(_NETLINK_ROUTE, allow()),
        refuse(errno.EAFNOSUPPORT),
    ]
    return [
        load(low(0)),
        *if_equal(socket.AF_UNIX, allow()),
        *if_equal(socket.AF_INET, *internet),
        *if_equal(socket.AF_INET6, *internet),
        *if_equal(_NETLINK, *netlink),
        refuse(errno.EAFNOSUPPORT),
    ]


def _protocols() -> list[Instruction]:
    allowed = [step for each in _INTERNET_PROTOCOLS for step in if_equal(each, allow())]
    return [load(low(2)), *allowed, refuse(errno.EPERM)]


def _socketpair() -> list[Instruction]:
    return [load(low(0)), *if_equal(socket.AF_UNIX, allow()), refuse(errno.EAFNOSUPPORT)]


def _setrlimit() -> list[Instruction]:
    return [load(low(0)), *if_equal(_RLIMIT_FSIZE, refuse(errno.EPERM)), allow()]


def _prlimit() -> list[Instruction]:
    asks_only = [
        load(low(2)),
        *unless_equal(0, refuse(errno.EPERM)),
        load(high(2)),
        *unless_equal(0, refuse(errno.EPERM)),
        allow(),
    ]
    return [load(low(1)), *if_equal(_RLIMIT_FSIZE, *asks_only), allow()]


def _fallocate() -> list[Instruction]:
    # What reserves space takes a whole disk before anybody can look. A library writes instead.
    return [load(low(1)), *if_any_bit(_GIVES_SPACE_BACK, allow()), refuse(errno.EOPNOTSUPP)]


_RULES: Final[Mapping[str, list[Instruction]]] = {
    "clone": _clone(),
    "ioctl": _ioctl(),
    "personality": _personality(),
    "socket": _socket(),
    "socketpair": _socketpair(),
    "setrlimit": _setrlimit(),
    "prlimit64": _prlimit(),
    "fallocate": _fallocate(),
}

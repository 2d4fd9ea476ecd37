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

from tollhouse.sandbox.seccomp import (
    MACHINES,
    Instruction,
    allow,
    build_filter,
    high_half,
    if_any_bit,
    if_equal,
    keep_bits,
    load,
    low_half,
    refuse,
    unless_equal,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """Return the filter for a `platform.machine()`, as `bwrap --seccomp` and the kernel take it.

    Raises `KeyError` where there is none for it.
    """
    found = MACHINES[machine]
    rules = if_equal(found.numbers["clone3"], refuse(errno.ENOSYS))
    for name in _FORBIDDEN:
        if name in found.numbers:  # some are of one machine alone
            rules += if_equal(found.numbers[name], refuse(errno.EPERM))
    for name, rule in _RULES.items():
        rules += if_equal(found.numbers[name], *rule)
    return build_filter(found, rules)


_PROTOCOLS: Final = (
    load(low_half(2)),
    *(step for each in _INTERNET_PROTOCOLS for step in if_equal(each, allow())),
    refuse(errno.EPERM),
)
_INTERNET: Final = (
    load(low_half(1)),
    keep_bits(_TYPE_BITS),
    *if_equal(socket.SOCK_STREAM, *_PROTOCOLS),
    *if_equal(socket.SOCK_DGRAM, *_PROTOCOLS),
    refuse(errno.EPERM),
)
_READS_LIMIT: Final = (
    load(low_half(2)),
    *unless_equal(0, refuse(errno.EPERM)),
    load(high_half(2)),
    *unless_equal(0, refuse(errno.EPERM)),
    allow(),
)
_RULES: Final[Mapping[str, Sequence[Instruction]]] = {
    "clone": [load(low_half(0)), *if_any_bit(_NEW_NAMESPACES, refuse(errno.EPERM)), allow()],
    "ioctl": [
        load(low_half(1)),  # the kernel looks at the lower half of the request alone
        *if_equal(_TIOCSTI, refuse(errno.EPERM)),
        *if_equal(_TIOCLINUX, refuse(errno.EPERM)),
        allow(),
    ],
    "personality": [
        load(low_half(0)),
        *if_equal(0, allow()),
        *if_equal(_PERSONALITY_QUERY, allow()),
        refuse(errno.EPERM),
    ],
    "socket": [
        load(low_half(0)),
        *if_equal(socket.AF_UNIX, allow()),
        *if_equal(socket.AF_INET, *_INTERNET),
        *if_equal(socket.AF_INET6, *_INTERNET),
        *if_equal(
            _NETLINK,
            load(low_half(2)),
            *if_equal(_NETLINK_ROUTE, allow()),  # by which glibc asks which addresses there are
            refuse(errno.EAFNOSUPPORT),
        ),
        refuse(errno.EAFNOSUPPORT),
    ],
    "socketpair": [
        load(low_half(0)),
        *if_equal(socket.AF_UNIX, allow()),
        refuse(errno.EAFNOSUPPORT),
    ],
    "setrlimit": [load(low_half(0)), *if_equal(_RLIMIT_FSIZE, refuse(errno.EPERM)), allow()],
    "prlimit64": [load(low_half(1)), *if_equal(_RLIMIT_FSIZE, *_READS_LIMIT), allow()],
    # What reserves space takes a whole disk before anybody can look. A library writes instead.
    "fallocate": [
        load(low_half(1)),
        *if_any_bit(_GIVES_SPACE_BACK, allow()),
        refuse(errno.EOPNOTSUPP),
    ],
}

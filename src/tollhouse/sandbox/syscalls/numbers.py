"""Numbers of the system calls that a filter speaks of, for each kind of machine. Data alone.

Source: Linux, arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LAST_KNOWN: Final = 466
"""`removexattrat`, Linux 6.13: newer calls have not been looked at. The same on all machines."""

_COMMON: Final[Mapping[str, int]] = {
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "clone3": 435,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "set_mempolicy_home_node": 450,
}
"""Since Linux 5.1 a new call has one number everywhere."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of machine."""

    audit_architecture: int
    """Its `AUDIT_ARCH_*`, from <linux/audit.h>."""
    numbers: Mapping[str, int]


MACHINES: Final[Mapping[str, Machine]] = {
    "x86_64": Machine(
        0xC000003E,
        {
            **_COMMON,
            "ioctl": 16,
            "socket": 41,
            "socketpair": 53,
            "clone": 56,
            "ptrace": 101,
            "syslog": 103,
            "uselib": 134,
            "personality": 135,
            "ustat": 136,
            "sysfs": 139,
            "vhangup": 153,
            "modify_ldt": 154,
            "pivot_root": 155,
            "_sysctl": 156,
            "adjtimex": 159,
            "setrlimit": 160,
            "chroot": 161,
            "acct": 163,
            "settimeofday": 164,
            "mount": 165,
            "umount2": 166,
            "swapon": 167,
            "swapoff": 168,
            "reboot": 169,
            "sethostname": 170,
            "setdomainname": 171,
            "iopl": 172,
            "ioperm": 173,
            "create_module": 174,
            "init_module": 175,
            "delete_module": 176,
            "get_kernel_syms": 177,
            "query_module": 178,
            "quotactl": 179,
            "nfsservctl": 180,
            "lookup_dcookie": 212,
            "clock_settime": 227,
            "mbind": 237,
            "set_mempolicy": 238,
            "get_mempolicy": 239,
            "kexec_load": 246,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "migrate_pages": 256,
            "unshare": 272,
            "move_pages": 279,
            "fallocate": 285,
            "perf_event_open": 298,
            "fanotify_init": 300,
            "prlimit64": 302,
            "name_to_handle_at": 303,
            "open_by_handle_at": 304,
            "clock_adjtime": 305,
            "setns": 308,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "kcmp": 312,
            "finit_module": 313,
            "kexec_file_load": 320,
            "bpf": 321,
            "userfaultfd": 323,
        },
    ),
    "aarch64": Machine(
        0xC00000B7,
        {
            **_COMMON,
            "lookup_dcookie": 18,
            "ioctl": 29,
            "umount2": 39,
            "mount": 40,
            "pivot_root": 41,
            "nfsservctl": 42,
            "fallocate": 47,
            "chroot": 51,
            "vhangup": 58,
            "quotactl": 60,
            "acct": 89,
            "personality": 92,
            "unshare": 97,
            "kexec_load": 104,
            "init_module": 105,
            "delete_module": 106,
            "clock_settime": 112,
            "syslog": 116,
            "ptrace": 117,
            "reboot": 142,
            "sethostname": 161,
            "setdomainname": 162,
            "setrlimit": 164,
            "settimeofday": 170,
            "adjtimex": 171,
            "socket": 198,
            "socketpair": 199,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "clone": 220,
            "swapon": 224,
            "swapoff": 225,
            "mbind": 235,
            "get_mempolicy": 236,
            "set_mempolicy": 237,
            "migrate_pages": 238,
            "move_pages": 239,
            "perf_event_open": 241,
            "prlimit64": 261,
            "fanotify_init": 262,
            "name_to_handle_at": 264,
            "open_by_handle_at": 265,
            "clock_adjtime": 266,
            "setns": 268,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "kcmp": 272,
            "finit_module": 273,
            "bpf": 280,
            "userfaultfd": 282,
            "kexec_file_load": 294,
        },
    ),
}

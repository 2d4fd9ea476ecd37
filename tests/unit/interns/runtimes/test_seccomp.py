"""The filters of system calls: of a sandbox, and of commands in it that get no network."""

import errno
import socket
from collections.abc import Callable

import pytest

from tests.unit.interns.runtimes.bpf_interpreter import ALLOWED, verdict
from tollhouse.interns.runtimes.seccomp import filter_program
from tollhouse.sandbox.agent.tools.shell import network_filter
from tollhouse.sandbox.seccomp import MACHINES

_I386 = 0x40000003
_OTHER_CALLS = (0, 1, 3, 25, 63, 64, 93, 200, 281, 439, 449, 451)
"""Numbers that mean nothing forbidden on either machine."""
_FLAGS = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK


@pytest.fixture(params=sorted(MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def call(
    machine: str, name: str, *arguments: int, of: Callable[[str], bytes] = filter_program
) -> str | int:
    found = MACHINES[machine]
    return verdict(of(machine), found.audit_architecture, found.numbers[name], arguments)


def test_ordinary_calls_pass(machine: str) -> None:
    audit = MACHINES[machine].audit_architecture
    program = filter_program(machine)
    assert {verdict(program, audit, number) for number in _OTHER_CALLS} == {ALLOWED}


@pytest.mark.parametrize(
    "name",
    [
        *("mount", "umount2", "pivot_root", "unshare", "setns", "open_tree", "fsopen"),
        *("mount_setattr", "ptrace", "process_vm_readv", "process_vm_writev", "bpf"),
        *("perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "keyctl"),
        *("add_key", "request_key", "kexec_load", "kexec_file_load", "init_module"),
        *("finit_module", "delete_module", "open_by_handle_at", "pidfd_getfd", "reboot"),
    ],
)
def test_what_no_intern_needs_is_refused(machine: str, name: str) -> None:
    assert call(machine, name) == errno.EPERM


def test_clone3_does_not_exist_so_that_clone_is_tried(machine: str) -> None:
    assert call(machine, "clone3") == errno.ENOSYS


def test_calls_that_are_too_new_do_not_exist(machine: str) -> None:
    audit = MACHINES[machine].audit_architecture
    program = filter_program(machine)
    assert {verdict(program, audit, number) for number in (467, 1000)} == {errno.ENOSYS}


def test_calls_of_other_architectures_do_not_exist(machine: str) -> None:
    program = filter_program(machine)
    others = {_I386, *(each.audit_architecture for each in MACHINES.values())}
    for audit in others - {MACHINES[machine].audit_architecture}:
        assert {verdict(program, audit, number) for number in range(600)} == {errno.ENOSYS}


def test_calls_of_x32_do_not_exist() -> None:
    audit = MACHINES["x86_64"].audit_architecture
    program = filter_program("x86_64")
    found = {verdict(program, audit, 0x40000000 | number) for number in range(600)}
    assert found == {errno.ENOSYS}


@pytest.mark.parametrize("bit", [17, 25, 26, 27, 28, 29, 30])
def test_a_clone_with_a_new_namespace_is_refused(machine: str, bit: int) -> None:
    assert call(machine, "clone", 1 << bit | 17) == errno.EPERM


def test_threads_and_forks_pass(machine: str) -> None:
    assert call(machine, "clone", 0x3D0F00) == ALLOWED
    assert call(machine, "clone", 0x01200011) == ALLOWED


@pytest.mark.parametrize("upper", [0, 1 << 32])
def test_terminals_are_not_typed_into(machine: str, upper: int) -> None:
    assert call(machine, "ioctl", 0, 0x5412 | upper) == errno.EPERM
    assert call(machine, "ioctl", 0, 0x541C | upper) == errno.EPERM
    assert call(machine, "ioctl", 0, 0x5413 | upper) == ALLOWED  # its size


def test_the_personality_stays(machine: str) -> None:
    assert call(machine, "personality", 0) == ALLOWED
    assert call(machine, "personality", 0xFFFFFFFF) == ALLOWED  # asks
    assert call(machine, "personality", 0x0040000) == errno.EPERM


@pytest.mark.parametrize(
    ("family", "kind", "protocol", "wanted"),
    [
        (1, 1, 0, ALLOWED),
        (1, 5, 0, ALLOWED),
        (2, 1, 0, ALLOWED),
        (2, 2 | _FLAGS, 17, ALLOWED),
        (10, 1 | _FLAGS, 6, ALLOWED),
        (16, 3 | _FLAGS, 0, ALLOWED),  # NETLINK_ROUTE
        (16, 3, 12, errno.EAFNOSUPPORT),  # NETLINK_NETFILTER
        (2, 3, 1, errno.EPERM),
        (2, 3 | _FLAGS, 255, errno.EPERM),
        (10, 3, 58, errno.EPERM),
        (2, 10, 0, errno.EPERM),  # SOCK_PACKET
        (2, 2, 1, errno.EPERM),  # ping
        (2, 1, 262, errno.EPERM),  # MPTCP
        (17, 3, 0, errno.EAFNOSUPPORT),  # AF_PACKET
        (38, 5, 0, errno.EAFNOSUPPORT),  # AF_ALG
        (40, 1, 0, errno.EAFNOSUPPORT),  # AF_VSOCK
    ],
)
def test_sockets_are_of_this_machine_and_never_raw(
    machine: str, family: int, kind: int, protocol: int, wanted: str | int
) -> None:
    assert call(machine, "socket", family, kind, protocol) == wanted


def test_the_largest_size_of_files_is_asked_for_and_never_set(machine: str) -> None:
    assert call(machine, "setrlimit", 1) == errno.EPERM
    assert call(machine, "setrlimit", 7) == ALLOWED
    assert call(machine, "prlimit64", 0, 1, 0) == ALLOWED
    assert call(machine, "prlimit64", 0, 7, 0x7FFF00000000) == ALLOWED
    for pointer in (0x7FFF00000000, 0x1000):  # either half may be zero
        assert call(machine, "prlimit64", 0, 1, pointer) == errno.EPERM


def test_space_of_files_is_given_back_and_never_reserved(machine: str) -> None:
    allocate, keep_size, punch_hole, collapse, zero = 0, 1, 2, 8, 16
    for mode in (allocate, keep_size, zero, zero | keep_size):
        assert call(machine, "fallocate", 3, mode) == errno.EOPNOTSUPP
    for mode in (punch_hole | keep_size, collapse):
        assert call(machine, "fallocate", 3, mode) == ALLOWED


def test_no_number_stands_twice(machine: str) -> None:
    numbers = MACHINES[machine].numbers
    assert len(set(numbers.values())) == len(numbers)


# The filter of commands that get no network


@pytest.mark.parametrize(
    "family", [socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, 40]
)
def test_no_socket_can_be_made(machine: str, family: int) -> None:
    assert call(machine, "socket", family, socket.SOCK_STREAM, 0, of=network_filter) == errno.EACCES


@pytest.mark.parametrize(
    "name", ["io_uring_setup", "pidfd_getfd", "ptrace", "process_vm_writev", "process_vm_readv"]
)
def test_no_socket_can_be_had_in_another_way(machine: str, name: str) -> None:
    assert call(machine, name, of=network_filter) == errno.EACCES


def test_programs_may_speak_to_their_children(machine: str) -> None:
    assert (
        call(machine, "socketpair", socket.AF_UNIX, socket.SOCK_STREAM, 0, of=network_filter)
        == ALLOWED
    )
    assert call(machine, "clone", 0x01200011, of=network_filter) == ALLOWED


def test_there_is_no_way_around_by_other_numbers(machine: str) -> None:
    program = network_filter(machine)
    audit = MACHINES[machine].audit_architecture
    assert verdict(program, _I386, 359) == errno.ENOSYS
    assert verdict(program, audit, 0x40000000 | 41) == errno.ENOSYS
    assert verdict(program, audit, 1000) == errno.ENOSYS

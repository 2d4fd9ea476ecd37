"""The filter of commands that get no network."""

from __future__ import annotations

import errno
import socket

import pytest

from tests.unit.interns.runtimes.bpf_interpreter import ALLOWED, verdict
from tollhouse.sandbox.agent.tools.shell import network_filter
from tollhouse.sandbox.seccomp import MACHINES

_I386 = 0x40000003


@pytest.fixture(params=sorted(MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def made(machine: str, name: str, *arguments: int) -> str | int:
    found = MACHINES[machine]
    return verdict(
        network_filter(machine), found.audit_architecture, found.numbers[name], arguments
    )


@pytest.mark.parametrize(
    "family", [socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, 40]
)
def test_no_socket_can_be_made(machine: str, family: int) -> None:
    assert made(machine, "socket", family, socket.SOCK_STREAM, 0) == errno.EACCES


@pytest.mark.parametrize(
    "name", ["io_uring_setup", "pidfd_getfd", "ptrace", "process_vm_writev", "process_vm_readv"]
)
def test_no_socket_can_be_had_in_another_way(machine: str, name: str) -> None:
    assert made(machine, name) == errno.EACCES


def test_programs_may_speak_to_their_children(machine: str) -> None:
    assert made(machine, "socketpair", socket.AF_UNIX, socket.SOCK_STREAM, 0) == ALLOWED
    assert made(machine, "clone", 0x01200011) == ALLOWED


def test_there_is_no_way_around_by_other_numbers(machine: str) -> None:
    program = network_filter(machine)
    audit = MACHINES[machine].audit_architecture
    assert verdict(program, _I386, 359) == errno.ENOSYS
    assert verdict(program, audit, 0x40000000 | 41) == errno.ENOSYS
    assert verdict(program, audit, 1000) == errno.ENOSYS

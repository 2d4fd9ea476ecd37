"""A script that is piped into an intern, and its output."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.component.sandbox.daemon.tcp_proxy import ATTACH_ARGUMENTS, PYTHON
from tests.support.server_process import restore_sigint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.component.sandbox.daemon.daemon_process import DaemonProcess
    from tests.component.sandbox.daemon.tcp_proxy import TcpProxy

SECONDS = 60


@pytest.fixture
def start(tcp_proxy: TcpProxy) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Start a client between pipes."""
    processes = list[subprocess.Popen[bytes]]()

    def begin() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [PYTHON, *ATTACH_ARGUMENTS],
            env={**os.environ, **tcp_proxy.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=restore_sigint,  # noqa: PLW1509 - no thread here holds a lock
            bufsize=0,  # what is read by hand is not kept from `communicate`
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def run(process: subprocess.Popen[bytes], script: bytes) -> tuple[bytes, bytes, int]:
    output, errors = process.communicate(script, SECONDS)
    return output, errors, process.returncode


def test_a_scripts_output_is_all_there_is(start: Callable[[], subprocess.Popen[bytes]]) -> None:
    assert run(start(), b"echo one; echo two >&2; exit 3\n") == (b"one\ntwo\n", b"", 3)


def test_a_dropped_connection_loses_nothing_and_repeats_nothing(
    start: Callable[[], subprocess.Popen[bytes]], tcp_proxy: TcpProxy
) -> None:
    data = b"".join(b"%d\n" % number for number in range(300_000))
    process = start()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"exec cat\n")
    found = bytearray()
    for part in range(3):
        piece = data[part * 50_000 : (part + 1) * 50_000]
        process.stdin.write(piece)
        process.stdin.flush()
        while len(found) < len(piece) * (part + 1) - 30_000:
            found += process.stdout.read(10_000)
        tcp_proxy.reset_connections()
    output, errors, code = run(process, data[150_000:])
    assert (bytes(found) + output == data, errors, code) == (True, b"", 0)


def test_who_reads_no_more_ends_the_script(
    start: Callable[[], subprocess.Popen[bytes]], daemon: DaemonProcess
) -> None:
    process = start()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"yes\n")
    process.stdin.close()
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.wait(SECONDS) == 128 + signal.SIGPIPE
    eventually(lambda: daemon.processes() == [daemon.process.pid])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_ends_it_ends_the_script_there(
    start: Callable[[], subprocess.Popen[bytes]], daemon: DaemonProcess, number: signal.Signals
) -> None:
    process = start()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"echo begun; sleep 1000\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(number)
    process.wait(SECONDS)
    eventually(lambda: daemon.processes() == [daemon.process.pid])


def eventually(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)

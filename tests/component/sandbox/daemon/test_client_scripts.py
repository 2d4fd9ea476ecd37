"""A script that is piped into an intern, and its output."""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import IO

import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.component.sandbox.daemon.tcp_proxy import ATTACH, TcpProxy
from tests.support.forked import ForkedProcess
from tests.support.waiting import wait_until

SECONDS = 60


class Client(ForkedProcess):
    """A client between pipes."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def run(self, script: bytes) -> tuple[bytes, bytes, int]:
        output, errors = self.communicate(script, SECONDS)
        return output, errors, self.returncode


@pytest.fixture
def client(tcp_proxy: TcpProxy) -> Iterator[Client]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = {**os.environ, **tcp_proxy.environment}
    # Without buffers, what is read by hand is not kept from `communicate`.
    client = Client(["attach"], script=ATTACH, env=environment, bufsize=0, **pipes)
    yield client
    client.kill()
    client.wait()
    for pipe in (client.stdin, client.stdout, client.stderr):
        assert pipe is not None
        pipe.close()


def test_a_scripts_output_is_all_there_is(client: Client) -> None:
    assert client.run(b"echo one; echo two >&2; exit 3\n") == (b"one\ntwo\n", b"", 3)


def test_a_dropped_connection_loses_nothing_and_repeats_nothing(
    client: Client, tcp_proxy: TcpProxy
) -> None:
    data = b"".join(b"%d\n" % number for number in range(300_000))
    client.stdin.write(b"exec cat\n")
    found = bytearray()
    for part in range(3):
        piece = data[part * 50_000 : (part + 1) * 50_000]
        client.stdin.write(piece)
        while len(found) < len(piece) * (part + 1) - 30_000:
            found += client.stdout.read(10_000)
        tcp_proxy.reset_connections()
    output, errors, code = client.run(data[150_000:])
    assert (bytes(found) + output == data, errors, code) == (True, b"", 0)


def test_who_reads_no_more_ends_the_script(client: Client, daemon: DaemonProcess) -> None:
    client.stdin.write(b"yes\n")
    client.stdin.close()
    assert client.stdout.readline() == b"y\n"
    client.stdout.close()
    assert client.wait(SECONDS) == 128 + signal.SIGPIPE
    wait_until(lambda: daemon.processes() == [daemon.process.pid])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_ends_it_ends_the_script_there(
    client: Client, daemon: DaemonProcess, number: signal.Signals
) -> None:
    client.stdin.write(b"echo begun; sleep 1000\n")
    assert client.stdout.readline() == b"begun\n"
    client.send_signal(number)
    client.wait(SECONDS)
    wait_until(lambda: daemon.processes() == [daemon.process.pid])

"""Free ports, for programs that cannot choose one themselves."""

from __future__ import annotations

import socket
from contextlib import suppress
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from bench.processes import BenchError

if TYPE_CHECKING:
    from bench.processes import Child


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_listening(child: Child, port: int, seconds: float) -> None:
    """Return once a process accepts connections.

    Raises:
        BenchError: It ended, or does not listen in time.
    """
    deadline = perf_counter() + seconds
    while perf_counter() < deadline:
        if not child.running:
            # Its first line never comes; hearing says why.
            child.receive_object(1.0)
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        sleep(0.01)
    raise BenchError(f"{child.name} did not listen within {seconds:.0f} s")

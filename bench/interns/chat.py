"""A chat through the gateway, and the same one with the daemon alone, in one round.

    client ──> server ──> timestamp daemon        through
    client ─────────────> timestamp daemon        alone

The server is a real one with a running intern, whose daemon's socket a timestamp daemon has taken
over: measured is the path of a chat, not an agent.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from contextlib import contextmanager
from functools import partial
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Final

from bench import cpu
from bench.interns.figures import ChatRound, ChatSide
from bench.processes import BenchError, Child
from tollhouse.interns.sandboxes import socket_name

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from bench.gateway import Gateway
    from bench.interns.figures import InternDose

_STAMP: Final = re.compile(rb'"(?:text|content)":\s*"([0-9]{20})"')
_SECONDS: Final = 60.0
_OK: Final = b"HTTP/1.1 200 "
_THROUGH_END: Final = b"[DONE]"
_ALONE_END: Final = b"run.ended"
_LONGEST_STAMP: Final = 64
"""Bytes that may hold the beginning of a stamp whose end has not come yet."""


@contextmanager
def replaced_daemon(data: Path, intern: str) -> Generator[tuple[Child, Path]]:
    """Replace an intern's daemon with a timestamp daemon; yields the process and its socket.

    Raises:
        BenchError: It does not start.
    """
    path = data / "interns" / "run" / socket_name(intern)
    path.unlink()
    command = [sys.executable, "-m", "bench.interns.timestamp_daemon", str(path)]
    with Child("the talker", command) as child:
        child.receive_object()
        yield child, path


def measure(
    gateway: Gateway, intern: str, talker: Child, path: Path, dose: InternDose
) -> ChatRound:
    """Measure one round: paced for the delay, and at full speed for the CPU time.

    Raises:
        BenchError: Something was answered wrongly.
    """
    sides: list[ChatSide] = []
    for ask in (partial(_ask_talker, path), partial(_ask_gateway, gateway, intern)):
        delays = _whole(ask(dose.paced_pieces, dose.paced_milliseconds), dose.paced_pieces)
        before = cpu.read(gateway.pid), cpu.read(talker.pid)
        began = perf_counter()
        _whole(ask(dose.fast_pieces, 0), dose.fast_pieces)
        seconds = perf_counter() - began
        spent = [
            cpu.cpu_time(earlier, cpu.read(pid)).seconds
            for earlier, pid in zip(before, (gateway.pid, talker.pid), strict=True)
        ]
        sides.append(
            ChatSide(
                delay_seconds=median(delays[1:]),
                first_seconds=delays[0],
                server_seconds=spent[0] / dose.fast_pieces,
                talker_seconds=spent[1] / dose.fast_pieces,
                piece_seconds=seconds / dose.fast_pieces,
            )
        )
    return ChatRound(*sides)


def _ask_talker(path: Path, pieces: int, milliseconds: float) -> list[float]:
    body = {"input": f"{pieces} {milliseconds}", "approval_mode": "self-drive"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(_SECONDS)
        wire.connect(str(path))
        return _delays(wire, "/sessions/s/runs", "none", body, _ALONE_END)


def _ask_gateway(gateway: Gateway, intern: str, pieces: int, milliseconds: float) -> list[float]:
    url, key = f"/v1/interns/{intern}/chat/completions", gateway.keys.api_key
    message = {"role": "user", "content": f"{pieces} {milliseconds}"}
    body = {"stream": True, "messages": [message]}
    with socket.create_connection(("127.0.0.1", gateway.port), _SECONDS) as wire:
        return _delays(wire, url, key, body, _THROUGH_END)


def _whole(delays: list[float], pieces: int) -> list[float]:
    if len(delays) != pieces:
        raise BenchError(f"{len(delays)} of {pieces} pieces of a chat came")
    return delays


def _delays(
    wire: socket.socket, path: str, key: str, body: dict[str, object], end: bytes
) -> list[float]:
    """Return how long after it was written each piece came, in seconds."""
    sent = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
    head += f"Connection: close\r\nContent-Length: {len(sent)}\r\n\r\n"
    wire.sendall(head.encode() + sent)
    found: list[float] = []
    rest, seen = b"", b""
    while end not in seen:
        came = wire.recv(1 << 16)
        now = perf_counter_ns()
        if not came or not (found or seen or came.startswith(_OK)):
            raise BenchError(f"a chat was answered with {(seen + came)[:300]!r}")
        seen = rest + came
        last = 0
        for stamp in _STAMP.finditer(seen):
            found.append((now - int(stamp[1])) / 1e9)
            last = stamp.end()
        rest = seen[max(last, len(seen) - _LONGEST_STAMP) :]
    return found

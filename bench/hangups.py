"""How long it takes until a provider learns that the client has hung up.

client ── closes ──> gateway ── closes ──> upstream, which says when it saw that
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from bench.cases import SLOW
from bench.formats.chat import PATH, request_body
from bench.gateway import Gateway, write_config
from bench.processes import BenchError
from bench.target import start_upstream

if TYPE_CHECKING:
    from pathlib import Path

    from bench.processes import Child

_SECONDS = 10.0


def hang_ups(folder: Path, times: int) -> list[float]:
    """Hang up in mid-stream so many times, one after the other; return the milliseconds of each."""
    upstream = start_upstream(folder / "up", 5.0, 200.0, tell=True)
    config = write_config(folder / "provider.yaml", upstream.ports)
    with upstream.child, Gateway(folder / "data", config) as gateway:
        return [_hang_up(gateway, upstream.child) for _ in range(times)]


def _hang_up(gateway: Gateway, upstream: Child) -> float:
    body = request_body(SLOW.model, stream=True)
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1:{gateway.port}\r\n"
        f"authorization: Bearer {gateway.keys.api_key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", gateway.port), _SECONDS) as client:
        client.sendall(head.encode() + body)
        said = b""
        while b"data: " not in said:
            piece = client.recv(65_536)
            if not piece:
                raise BenchError(f"no stream, but {said[:200]!r}")
            said += piece
        closed = time.monotonic_ns()
    return (int(upstream.receive_object(_SECONDS)["lost_ns"]) - closed) / 1e6

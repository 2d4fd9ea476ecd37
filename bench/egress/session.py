"""A session of the proxy, held open over the server's control socket."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import cpu
from bench.egress.client import Route
from bench.processes import BenchError
from tollhouse.vault.egress.process import COMMAND

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from bench.gateway import Gateway

_SECONDS: Final = 60.0
_MOST_HOSTS: Final = 100
"""Of one secret."""
_COMMAND: Final = COMMAND[-1].encode()


class Session:
    """A session; as a context manager it is ended on the way out."""

    def __init__(self, data: Path, gateway: Gateway, port: int) -> None:
        """Begin it.

        Args:
            data: The server's data folder.
            gateway: The server.
            port: The hosts'.

        Raises:
            BenchError: It is refused.
        """
        self._connection = _UnixConnection(data / "control.sock")
        body = json.dumps({"workspace_id": "default"})
        headers = {"content-type": "application/json"}
        self._connection.request("POST", "/v1/egress-sessions", body, headers)
        self._response = self._connection.getresponse()
        line = self._response.readline()
        if self._response.status != http.client.OK:
            raise BenchError(f"the session was refused: {line.decode(errors='replace')}")
        said = json.loads(line)["data"]
        folder = Path(said["folder"])
        self.route = Route(
            port, str(folder / "ca.pem"), str(folder / "proxy.sock"), said["password"]
        )
        pid = find_proxy(gateway.pid)
        if pid is None:
            raise BenchError("the server has no egress proxy")
        self.pid = pid

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self._response.close()
        self._connection.close()


class _UnixConnection(http.client.HTTPConnection):
    """Speaks HTTP over a socket with a path."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_SECONDS)
        self.sock.connect(self._path)


def store(gateway: Gateway, name: str, value: str, hosts: Sequence[str]) -> None:
    """Store a secret of the workspace's; several of them where it has many hosts.

    Raises:
        BenchError: It is not taken.
    """
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=_SECONDS)
    headers = {
        "authorization": f"Bearer {gateway.keys.api_key}",
        "content-type": "application/json",
    }
    for number, at in enumerate(range(0, len(hosts), _MOST_HOSTS)):
        each = name if not number else f"{name}_{number}"
        body = json.dumps({"value": value, "hosts": list(hosts[at : at + _MOST_HOSTS])})
        connection.request("PUT", f"/v1/vault/secrets/{each}", body, headers)
        response = connection.getresponse()
        said = response.read()
        if response.status not in range(200, 300):
            raise BenchError(f"a secret was answered with {response.status}: {said[:500]!r}")
    connection.close()


def find_proxy(server: int, proc: Path = cpu.PROC) -> int | None:
    """Return the process id of a server's proxy; None where it has none yet."""
    for pid in cpu.children(server, proc):
        if _COMMAND in (proc / str(pid) / "cmdline").read_bytes().split(b"\0"):
            return pid
    return None

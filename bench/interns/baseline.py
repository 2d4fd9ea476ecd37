"""Baselines of an intern's boot and suspension: their parts without a gateway."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

import tollhouse
from bench.interns.figures import Files
from bench.processes import BenchError, Child
from tollhouse.interns.runtimes.command import daemon_command

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_TOKEN: Final = "yardstick"
_SECONDS: Final = 20.0
_WAITING: Final = 8
_OK: Final = b" 200 "
_SANDBOX: Final = (
    *("bwrap", "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"),
    *("--disable-userns", "--cap-drop", "ALL", "--die-with-parent", "--ro-bind", "/", "/"),
    *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--", "/bin/true"),  # noqa: S108 - the sandbox's own
)


class StandaloneDaemon:
    """An intern's daemon without a sandbox; as a context manager it is ended on the way out."""

    def __init__(self, folder: Path) -> None:
        """Start it and wait for its first answer.

        Args:
            folder: Where its socket is made; it stands for the workspace, too.

        Raises:
            BenchError: It does not answer.
        """
        path = folder / "daemon.sock"
        path.unlink(missing_ok=True)
        source = str(Path(tollhouse.__file__).resolve().parents[1])
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            listener.listen(_WAITING)
            settings = {
                "listener": listener.fileno(),
                "token_sha256": sha256(_TOKEN.encode()).hexdigest(),
                "workspace": str(folder),
            }
            command = daemon_command(Path(sys.executable), source)
            self._child = Child("the daemon", command, descriptors=(listener.fileno(),))
        try:
            self._child.send_line(json.dumps(settings))
            # The socket listens already: one request waits there until it is answered.
            _ask(path)
            self.seconds = perf_counter() - self._child.started
        except BaseException:
            self._child.stop()
            raise

    def __enter__(self) -> Self:
        """Return the daemon."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self._child.stop()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid


def sandbox_seconds() -> float:
    """Return how long bubblewrap takes for a sandbox in which `true` runs, by the clock.

    Raises:
        BenchError: It cannot make one.
    """
    began = perf_counter()
    done = subprocess.run(_SANDBOX, capture_output=True, check=False)
    if done.returncode:
        raise BenchError(f"bubblewrap makes no sandbox: {done.stderr.decode(errors='replace')}")
    return perf_counter() - began


def bubblewrap_version() -> str:
    """Return bubblewrap's version."""
    told = subprocess.run(("bwrap", "--version"), capture_output=True, text=True, check=False)
    found = re.search(r"\d[\d.]*", told.stdout)
    return found[0] if found else "unknown"


def flush_and_read(folder: Path, files: int, size: int) -> Files:
    """Write files, and return how long it takes to flush and to read them, by the clock.

    Args:
        folder: An empty one on the disk that workspaces are on; emptied again.
        files: How many.
        size: Bytes of each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [folder / f"{number:05}" for number in range(files)]
    for name in names:
        name.write_bytes(os.urandom(size))
    began = perf_counter()
    for name in names:
        opened = os.open(name, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)
    flushed = perf_counter()
    for name in names:
        with name.open("rb", buffering=0) as file:
            hashlib.file_digest(file, "sha256")
    ended = perf_counter()
    for name in names:
        name.unlink()
    return Files(flushed - began, ended - flushed)


def _ask(path: Path) -> None:
    """Return once a daemon has answered.

    Raises:
        BenchError: It does not, or refuses.
    """
    request = f"GET /healthz HTTP/1.1\r\nHost: daemon\r\nAuthorization: Bearer {_TOKEN}\r\n\r\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(str(path))
            connection.sendall(request.encode())
            answer = connection.recv(4096)
    except OSError as error:
        raise BenchError(f"the daemon does not answer without a sandbox: {error}") from None
    if _OK not in answer.split(b"\r\n", 1)[0]:
        raise BenchError(f"the daemon answered without a sandbox: {answer[:100]!r}")

"""`tollhouse` as a fork of a process that has imported it, which saves a second at each start.

    process = ForkedProcess(["tollhouse", "serve"], env=..., stdin=DEVNULL, stdout=PIPE, stderr=log)

    our process ── arguments, streams ──> parent, imports once ── fork ──> tollhouse
         └─────────────── process number, exit code <──┘

A `ForkedProcess` is a `subprocess.Popen`: the fork has its environment, folder and streams as if
it had been executed. That the installed program starts by itself is tested in `cli`.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST: Final = 200_000
"""Bytes of arguments and environment."""
_CODE: Final = struct.Struct("i")
_FIRST_FREE: Final = 3
"""The number after those of the standard streams."""


class ForkedProcess(subprocess.Popen[bytes]):
    """A forked `tollhouse`; with `record_replies` its replies are recorded, see `reply_tee`."""

    def __init__(self, command: list[str], *, record_replies: bool = False, **options: Any) -> None:
        self._record_replies = record_replies
        super().__init__(command, **options)

    def _execute_child(self, args: list[str], *given: Any) -> None:  # type: ignore[override]
        _, _, _, _, folder, environment, _, _, _, *pipes = given[:15]
        self._news, theirs = socket.socketpair()
        asked = {
            "arguments": [str(each) for each in args[1:]],
            "folder": str(folder or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            "record_replies": self._record_replies,
        }
        streams = [
            own if pipe == -1 else pipe for own, pipe in enumerate((pipes[0], pipes[3], pipes[5]))
        ]
        with theirs:
            socket.send_fds(
                _fork_server(), [json.dumps(asked).encode()], [*streams, theirs.fileno()]
            )
        self.pid = _CODE.unpack(self._news.recv(_CODE.size))[0]
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        self._receive_exit_code(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if not self._receive_exit_code(timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def _receive_exit_code(self, seconds: float | None) -> bool:
        """Wait for the exit code, and return whether it is known."""
        if self.returncode is None and select.select([self._news], [], [], seconds)[0]:
            with self._waitpid_lock:  # type: ignore[attr-defined]
                if self.returncode is None:
                    self.returncode = _CODE.unpack(self._news.recv(_CODE.size))[0]
                    self._news.close()
        return self.returncode is not None


def run_forked(
    *args: str | Path, env: Mapping[str, str], given: bytes | None = None, seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run `tollhouse` to its end, with nothing on its standard input unless it is `given`."""
    streams = {
        "stdin": subprocess.DEVNULL if given is None else subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    with ForkedProcess(["tollhouse", *map(str, args)], env=env, **streams) as process:
        try:
            out, err = process.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())


@cache
def _fork_server() -> socket.socket:
    """Return a socket to the process that forks; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.forked", str(theirs.fileno())],
            cwd=Path(__file__).parents[2],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ).returncode = 0  # nobody waits for it
    return ours


def _serve_forks(request_socket: int) -> dict[str, Any]:
    """Fork on request until the other side closes; return the request in each fork."""
    asking = socket.socket(fileno=request_socket)
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([request_socket, *running], [], [])[0]:
            if ready != request_socket:
                pid, news = running.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _send_number(news, code)
                os.close(news)
                os.close(ready)
                continue
            message, files, _, _ = socket.recv_fds(asking, _MOST, 4)
            if not message:
                os._exit(0)
            *streams, news = files
            pid = os.fork()
            if not pid:
                asking.detach()
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                os.closerange(_FIRST_FREE, max([request_socket, *files, *running]) + 1)
                return json.loads(message)
            _send_number(news, pid)
            running[os.pidfd_open(pid)] = pid, news
            for stream in streams:
                os.close(stream)


def _send_number(news: int, number: int) -> None:
    with suppress(BrokenPipeError):  # who asked is gone
        os.write(news, _CODE.pack(number))


def _run(asked: dict[str, Any]) -> int:
    """Run the command in this process, with the given environment and folder."""
    # Made anew: the old ones know whether the parent's could be sought in.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["tollhouse", *asked["arguments"]]
    if asked["record_replies"]:
        reply_tee.install()
    gc.unfreeze()
    return main()


if __name__ == "__main__":
    import tollhouse.apps.serve  # noqa: F401
    from tests import reply_tee
    from tollhouse.cli.main import main

    sys.path.pop(0)  # the folder that this started in, which no `tollhouse` has

    gc.freeze()
    sys.exit(_run(_serve_forks(int(sys.argv[1]))))

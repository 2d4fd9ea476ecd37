"""`tollhouse` as a fork of a process that has imported it, which saves a second at each start.

    process = ForkedProcess(["tollhouse", "serve"], env=..., stdin=DEVNULL, stdout=PIPE, stderr=log)
    subprocess.run([forking_program(), "models", "list"], ...)

    our process ── arguments, streams ──> parent, imports once ── fork ──> tollhouse
         └─────────────── process number, exit code <──┘

A `ForkedProcess` is a `subprocess.Popen`: the fork has its environment, folder and streams as if
it had been executed. That the installed program starts by itself is tested in `cli`.

A `ForkedDaemon` is the daemon of a sandbox; its agents are forks of it. `/proc` shows for them the
command line and the mark that they would have if they had been executed.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import logging
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_MOST: Final = 200_000
"""Bytes of arguments and environment."""
_CODE: Final = struct.Struct("i")
_FIRST_FREE: Final = 3
"""The number after those of the standard streams."""
_DAEMON: Final = "daemon"
_TITLE_BYTES: Final = 64
_MARK: Final = "DAEMON_UNDER_TEST"
"""A variable of 32 characters, by which a daemon's processes are found."""


class ForkedProcess(subprocess.Popen[bytes]):
    """A forked `tollhouse`, or a forked `python SCRIPT` whose imports are mostly `tollhouse`'s.

    With `record_replies` its replies are recorded, see `reply_tee`; with `terminal` it leads a
    session of its own, whose terminal is its standard input; a `script` is run in its place;
    `become` names a user whose it is, and the folders of `become_user`.
    """

    _kind = "tollhouse"

    def __init__(
        self,
        command: list[str],
        *,
        record_replies: bool = False,
        terminal: bool = False,
        script: str | None = None,
        become: tuple[int, list[str]] | None = None,
        **options: Any,
    ) -> None:
        self._flags = {
            "record_replies": record_replies,
            "terminal": terminal,
            "script": script,
            "become": become,
        }
        super().__init__(command, **options)

    def _execute_child(self, args: list[str], *given: Any) -> None:  # type: ignore[override]
        _, _, _, others, folder, environment, _, _, _, *pipes = given[:15]
        self._news = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._news.connect(_fork_server(self._kind))
        asked = {
            "arguments": [str(each) for each in args[1:]],
            "folder": str(folder or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            "streams": [*range(3), *others],
            **self._flags,
        }
        streams = [
            own if pipe == -1 else pipe for own, pipe in enumerate((pipes[0], pipes[3], pipes[5]))
        ]
        socket.send_fds(self._news, [json.dumps(asked).encode()], [*streams, *others])
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


class ForkedDaemon(ForkedProcess):
    """A forked daemon of a sandbox, in a session of its own, and its forked agents."""

    _kind = _DAEMON


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
def forking_program() -> Path:
    """Return a program that runs `tollhouse` as a fork, for what starts programs by their path.

    It passes its arguments, environment, folder, streams and signals on; it has no terminal.
    """
    server = _fork_server("tollhouse")
    program = Path(server).with_name("tollhouse")
    program.write_text(f"#!{sys.executable} -IS\nSERVER = {server!r}\n{_PROGRAM}")
    program.chmod(0o755)
    return program


_PROGRAM: Final = """
import json, os, signal, socket, sys

FORWARDED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
streams = []
for number in range(3):
    try:
        os.fstat(number)
    except OSError:
        continue
    streams.append(number)
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(SERVER)
asked = {
    "arguments": sys.argv[1:],
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "streams": streams,
}
socket.send_fds(connection, [json.dumps(asked).encode()], streams)
for number in streams:
    os.close(number)
fork = int.from_bytes(connection.recv(4), sys.byteorder)
for each in FORWARDED:
    signal.signal(each, lambda number, _: os.kill(fork, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
code = int.from_bytes(connection.recv(4), sys.byteorder, signed=True)
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@cache
def _fork_server(kind: str) -> str:
    """Start the process that forks, which ends with this one; return its socket's path."""
    folder = tempfile.mkdtemp(prefix="tollhouse-forks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = f"{folder}/socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(64)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.forked", str(listener.fileno()), kind),
                "-" * _TITLE_BYTES,
            ],
            env={**os.environ, _MARK: "-" * 32},
            cwd=Path(__file__).parents[2],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
    atexit.register(process.communicate)  # it ends when its input does
    return path


class _Fork(NamedTuple):
    pid: int
    ended: int
    """A descriptor that is readable when the fork has ended."""
    client: socket.socket


def _serve_forks(listener: socket.socket) -> dict[str, Any]:
    """Fork on request until the tests have ended; return the request in each fork.

    A fork is killed when the program that asked for it is.
    """
    forks: list[_Fork] = []
    while True:
        watched = [each for fork in forks for each in (fork.ended, fork.client)]
        ready = select.select([0, listener, *watched], [], [])[0]
        if 0 in ready:
            os._exit(0)
        for fork in forks.copy():
            if fork.ended in ready:
                forks.remove(fork)
                code = os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1])
                with fork.client:
                    _send_number(fork.client, code)
                os.close(fork.ended)
            elif fork.client in ready:
                os.kill(fork.pid, signal.SIGKILL)
        if listener not in ready:
            continue
        client = listener.accept()[0]
        message, streams, _, _ = socket.recv_fds(client, _MOST, 8)
        asked = json.loads(message)
        pid = os.fork()
        if not pid:
            for each in (listener, client, *(fork.client for fork in forks)):
                each.detach()
            _take_streams(dict(zip(asked["streams"], streams, strict=True)))
            _close_all(but=asked["streams"])
            return asked
        _send_number(client, pid)
        forks.append(_Fork(pid, os.pidfd_open(pid), client))
        for stream in streams:
            os.close(stream)


def _take_streams(given: Mapping[int, int]) -> None:
    """Give descriptors their numbers; close the standard streams that are not given."""
    # None stands in the place of another.
    copies = {number: fcntl.fcntl(each, fcntl.F_DUPFD, 512) for number, each in given.items()}
    for number in {*range(_FIRST_FREE), *given}:
        if number in given:
            os.dup2(copies[number], number)
        else:
            os.close(number)


def _close_all(but: Collection[int]) -> None:
    """Close all descriptors but these and the standard streams."""
    for number in [int(each.name) for each in Path("/dev/fd").iterdir()]:
        if number >= _FIRST_FREE and number not in but:
            with suppress(OSError):  # the folder's own
                os.close(number)


def _send_number(client: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # who asked is gone
        client.send(_CODE.pack(number))


def _run(asked: dict[str, Any]) -> int:
    """Run the command in this process, with the given environment and folder."""
    if asked.get("become"):
        user, folders = asked["become"]
        become_user(user, [Path(each) for each in folders])
    # As a shell starts it: whoever runs the tests in the background has them ignore both.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if asked.get("terminal"):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Made anew: the old ones know whether the parent's could be sought in.
    sys.stdin = _open_stream(0, "r")
    sys.stdout = _open_stream(1, "w")
    sys.stderr = _open_stream(2, "w", buffering=1, errors="backslashreplace")
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["tollhouse", *asked["arguments"]]
    if asked.get("record_replies"):
        reply_tee.install()
    if asked.get("script") is None:
        return main()
    sys.path.insert(0, str(Path(asked["script"]).parent))
    runpy.run_path(asked["script"], run_name="__main__")
    return 0


def _run_to_end(run: Callable[[dict[str, Any]], int], asked: dict[str, Any]) -> NoReturn:
    """Run, and end as Python ends, but without taking all modules apart, which takes 80 ms."""
    try:
        code = run(asked)
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        code = ended.code
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    with suppress(OSError, ValueError):
        for each in (sys.stdout, sys.stderr):
            if each is not None:
                each.flush()
        os._exit(code)
    sys.exit(code)  # which says what could not be written


def _run_daemon(asked: dict[str, Any]) -> int:
    """Run the daemon of a sandbox in this process, and its agents in forks of it."""
    os.setsid()
    _show("-" * _TITLE_BYTES, daemon.__name__)
    _show("-" * 32, asked["environment"][_MARK])
    spawn = os.posix_spawn

    def fork_agent(path: str, arguments: list[str], *given: Any, **options: Any) -> int:
        if agent.__name__ not in arguments[-1]:
            return spawn(path, arguments, *given, **options)
        becomes, become = os.pipe()
        pid = os.fork()
        if not pid:
            _become_agent(*given, **options)
        os.close(become)
        os.read(becomes, 1)  # returns once it is an agent to all who look, as a spawned one is
        os.close(becomes)
        return pid

    os.posix_spawn = fork_agent
    return _run(asked)


def _become_agent(
    environment: Mapping[str, str], *, file_actions: list[tuple[int, ...]], **_: object
) -> None:
    """Run the agent in this fork of its daemon, as it would be if it had been executed."""
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for _, source, number in file_actions:
            os.dup2(source, number)
        _show(daemon.__name__.ljust(_TITLE_BYTES, "\0"), agent.__name__)
        _close_all(but=())
        os.environ.clear()
        os.environ.update(environment)
        logging.root.handlers.clear()
        code = agent.main()
    finally:
        os._exit(code)


def _show(instead: str, text: str) -> None:
    """Replace an argument or a variable, as `/proc` shows it."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[48])  # from the first argument to the last variable
    place = start + ctypes.string_at(start, end - start).rindex(instead.encode())
    ctypes.memmove(place, text.encode().ljust(len(instead), b"\0"), len(instead))


def _open_stream(number: int, mode: str, **options: Any) -> Any:
    """Open a standard stream as Python does at a start: one that is closed is None."""
    try:
        return os.fdopen(number, mode, encoding="utf-8", closefd=False, **options)
    except OSError:
        return None


def _prepare() -> None:
    """Do what every command and server would begin with."""
    for package in (tollhouse.apps, tollhouse.cli):
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(each.name)
    for name in (
        "aiosqlite",
        "anyio._backends._asyncio",
        "asyncpg",
        "httpcore2",
        "pydantic.v1",
        "truststore",
    ):
        importlib.import_module(name)  # libraries do, when they are first used
    share_certificates()
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):  # forks have none of our variables
        os.environ.pop(name, None)
    httpcore2.default_ssl_context()
    typer.main.get_command = cache(typer.main.get_command)
    sys.argv = ["tollhouse", "version"]
    main()
    sys.path.pop(0)  # the folder that this started in, which no `tollhouse` has
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the tests
    gc.collect()
    gc.freeze()


def _prepare_daemon() -> None:
    """Import what a daemon and its agent begin with."""
    agent.load_runner()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the tests
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    listener = socket.socket(fileno=int(sys.argv[1]))
    if sys.argv[2] == _DAEMON:
        from tollhouse.sandbox.agent import main as agent
        from tollhouse.sandbox.daemon import __main__ as daemon

        main = daemon.main
        _prepare_daemon()
        _run_to_end(_run_daemon, _serve_forks(listener))

    import httpcore2
    import typer.main

    import tollhouse.apps
    import tollhouse.cli
    from tests.support import reply_tee
    from tests.support.become_user import become_user
    from tests.support.certificates import share_certificates
    from tollhouse.cli.main import main

    _prepare()
    _run_to_end(_run, _serve_forks(listener))

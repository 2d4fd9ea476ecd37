"""A `tollhouse serve` of its own process, as a user starts it.

    with start_server(tmp_path) as server:
        httpx2.get(f"{server.base_url}/key", headers=server.authorization)
                                    # SIGTERM at the end; exit code 0 is asserted

The data lies in `tmp_path/data` and outlives the process: after `kill()`, `start_server` with the
same path starts again on it (then without keys: they are shown on a first start only). Its first
start finds an empty database of the latest schema, which costs half a second to make; that a server
makes one itself is shown in `cli/test_serve.py`. The server's log goes to a file, and stands in
every failure.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.canaries import PROVIDER_KEY, PROVIDER_KEY_NAME
from tests.support.forked import ForkedProcess
from tollhouse.storage.failures import sqlite_url
from tollhouse.storage.migrator import upgrade

TOLLHOUSE = Path(sys.executable).with_name("tollhouse")
RECORDED_PROGRAM = (sys.executable, "-P", str(Path(__file__).with_name("reply_tee.py")))
"""`tollhouse` with its replies recorded, which are checked at the end of the run."""
DRIVER = "TOLLHOUSE_SERVER__INFERENCE_DRIVER"
KEPT_FROM_OUR_ENVIRONMENT = (
    *("PATH", "HOME", "TMPDIR", "LANG", "TOLLHOUSE_TEST_REPLIES", DRIVER),
    "COVERAGE_PROCESS_CONFIG",  # has programs of tests measured, too
)
DATABASE_URL = "TOLLHOUSE_DATABASE_URL"
START_SECONDS = 30.0
STOP_SECONDS = 40.0

_starts = count()
new_database: Callable[[], str] | None = None
"""Makes a PostgreSQL database, where `--database=postgresql` has each data folder have one."""
_urls: dict[Path, str] = {}
"""The databases of data folders."""


class ServerFailedError(AssertionError):
    """The server did not start or end as expected; contains its log."""


class ServerProcess:
    """A running server, its addresses and its keys."""

    def __init__(
        self, process: subprocess.Popen[bytes], data_dir: Path, log: Path, url: str | None
    ) -> None:
        self.process = process
        self.data_dir = data_dir
        self.database: Path | str = data_dir / "tollhouse.db" if url is None else url
        """The SQLite file, or the URL of a PostgreSQL database."""
        self.announced: dict[str, Any] = {}
        self._log = log
        self._ended_by_us = False

    @property
    def origin(self) -> str:
        """The address without a path, `http://127.0.0.1:PORT`."""
        return self.announced["address"]

    @property
    def base_url(self) -> str:
        """The address that client libraries want, ending in `/v1`."""
        return self.announced["base_url"]

    @property
    def api_key(self) -> str:
        return self._first_start("api_key")

    @property
    def management_key(self) -> str:
        return self._first_start("management_key")

    @property
    def authorization(self) -> dict[str, str]:
        """The header that shows the API key."""
        return {"Authorization": f"Bearer {self.api_key}"}

    @property
    def control_socket(self) -> Path:
        return self.data_dir / "control.sock"

    def stderr_text(self) -> str:
        """Return the server's log so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End it with SIGTERM and assert exit code 0; does nothing if it was ended already."""
        if self._ended_by_us:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self._ended_by_us = True
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._end(signal.SIGKILL)
            raise self.failure(f"did not stop within {seconds:g} s after SIGTERM") from None
        self._close()
        if self.process.returncode != 0:
            raise self.failure(f"ended with {self.process.returncode}, not with 0")

    def kill(self) -> None:
        """End it with SIGKILL, as a power cut would; the data stays."""
        self._ended_by_us = True
        self._end(signal.SIGKILL)

    def failure(self, problem: str) -> ServerFailedError:
        """Return an error that shows the log."""
        return ServerFailedError(f"tollhouse serve {problem}\n--- its log\n{self.stderr_text()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
            return
        # A second failure, about the stop, would hide the first one.
        self.kill()
        error.add_note(f"--- log of tollhouse serve\n{self.stderr_text()}")

    def wait_until_serving(self) -> None:
        """Read the one line that it prints when it serves."""
        try:
            self.announced = json.loads(self._first_line(time.monotonic() + START_SECONDS))
        except ValueError:
            self.kill()
            raise self.failure("printed something else than a line of JSON") from None

    def _first_line(self, deadline: float) -> bytes:
        assert self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(pipe, 65_536) if ready else b""
            if not piece:
                self.kill()
                how = f"ended with {self.process.returncode}" if ready else "did not start in time"
                raise self.failure(how)
            line += piece
        return line

    def _first_start(self, name: str) -> str:
        shown = self.announced[name]
        assert shown is not None, f"{name} is shown on the first start of a data folder only"
        return shown

    def _end(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(STOP_SECONDS)
        self._close()

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()


def start_server(
    tmp_path: Path,
    *,
    config: str | None = None,
    env: Mapping[str, str] | None = None,
    args: Sequence[str] = (),
    program: Sequence[str] = RECORDED_PROGRAM,
    become: tuple[int, list[str]] | None = None,
) -> ServerProcess:
    """Start a server on a free port and return once it serves.

    Args:
        tmp_path: Gets the data folder `data`, the config file and the log.
        config: The text of the configuration file; without one the simulated provider answers.
        env: What the server sees besides PATH and HOME: our own environment stays out of it.
        args: More arguments of `tollhouse serve`.
        program: What is run in place of `tollhouse`.
        become: The user as whom it runs, see `server_users`; its replies are not recorded then.

    Raises:
        ServerFailedError: It ended, or did not say in time that it serves.
    """
    number = next(_starts)
    data_dir, log = tmp_path / "data", tmp_path / f"server-{number}.log"
    url = (env or {}).get(DATABASE_URL) or _own_database(data_dir)
    if url is None and not data_dir.exists():
        data_dir.mkdir(mode=0o700)
        data_dir.joinpath("tollhouse.db").write_bytes(_empty_database())
    command = [*program, "serve", "--json", "--port", "0", "--data-dir", str(data_dir)]
    if config is not None:
        file = tmp_path / f"server-{number}.yaml"
        file.write_text(config, encoding="utf-8")
        command += ["--config", str(file)]
    with log.open("wb") as stderr:
        process = _start(
            [*command, *args],
            become,
            cwd=tmp_path,
            env=clean_environment({**(env or {}), **({DATABASE_URL: url} if url else {})}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    server = ServerProcess(process, data_dir, log, url)
    server.wait_until_serving()
    return server


def _start(
    command: list[str], become: tuple[int, list[str]] | None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a program; `tollhouse`, and a script around it, as a fork, which needs no imports."""
    if tuple(command[: len(RECORDED_PROGRAM)]) == RECORDED_PROGRAM:
        command = command[len(RECORDED_PROGRAM) - 1 :]
        return ForkedProcess(command, record_replies=become is None, become=become, **options)
    if command[0] == str(TOLLHOUSE):
        return ForkedProcess(command, **options)
    if command[0] == sys.executable and Path(command[1]).suffix == ".py":
        return ForkedProcess(command[1:], script=command[1], **options)
    return subprocess.Popen(command, **options)


def _own_database(data_dir: Path) -> str | None:
    """Return the PostgreSQL database of a data folder, for its commands too; None on SQLite."""
    if new_database is None:
        return None
    if data_dir not in _urls:
        _urls[data_dir] = new_database()
        data_dir.mkdir(mode=0o700, exist_ok=True)
        data_dir.joinpath("tollhouse.yaml").write_text(f"database_url: {_urls[data_dir]}\n")
    return _urls[data_dir]


@cache
def _empty_database() -> bytes:
    """Return the file of an empty database of the latest schema."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tollhouse.db"
        upgrade(sqlite_url(file))
        return file.read_bytes()


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return our environment without TOLLHOUSE_* variables and proxies.

    The variable that forces a driver stays, so that any test can be run on either.
    """
    kept = {name: os.environ[name] for name in KEPT_FROM_OUR_ENVIRONMENT if name in os.environ}
    return {**kept, PROVIDER_KEY_NAME: PROVIDER_KEY, **(more or {})}


def restore_sigint() -> None:
    """Make a child heed Ctrl-C: for `preexec_fn`.

    A shell has what it runs in the background ignore SIGINT, and whoever is started there inherits
    it: the tests, and so what they start.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)

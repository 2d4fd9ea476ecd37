"""`tollhouse` as a user runs it, and a faster way for tests with many commands.

tollhouse("keys", "list", ...)      the program, a process of its own: see `forked`
CommandRunner().run("keys", ...)    the same entry point again and again in one other process,
                                    which saves a second of imports for each command, and the
                                    making of all others; its standard streams are memory

Only tests of a process, of its start, signals, pipes and terminal, need the first.
"""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.command_loop import command_loop
from tests.support.forked import run_forked
from tests.support.server_process import clean_environment

SECONDS = 60


@dataclass(frozen=True)
class CommandResult:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Assert exit code 0 and return the output, one JSON value."""
        assert self.code == 0, self
        return json.loads(self.out)

    def error_line(self, code: int) -> str:
        """Assert the exit code and return the one line on stderr."""
        assert self.code == code, self
        assert self.out == "", self
        assert len(self.err.splitlines()) == 1, self
        assert "Traceback" not in self.err, self
        return self.err.strip()


def tollhouse(*args: str | Path, env: Mapping[str, str] | None = None) -> CommandResult:
    """Run the program in a clean environment."""
    done = run_forked(*args, env=clean_environment(env), seconds=SECONDS)
    return CommandResult(done.returncode, done.stdout, done.stderr)


class CommandRunner:
    """Runs commands one after the other in one process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", command_loop()],
            env=clean_environment({"SSL_CERT_FILE": os.environ["SSL_CERT_FILE"]}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *args: str | Path, env: Mapping[str, str] | None = None, given: bytes = b""
    ) -> CommandResult:
        """Run one command in a clean environment, with this on its standard input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(
            json.dumps(
                {
                    "args": [*map(str, args)],
                    "env": dict(env or {}),
                    "given": base64.b64encode(given).decode(),
                }
            )
            + "\n"
        )
        self._process.stdin.flush()
        return CommandResult(*json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=SECONDS)

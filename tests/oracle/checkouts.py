"""Checkouts that answer inputs, each in a process of its own interpreter."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

HERE = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("worker.py")
SEAM = Path("tests/oracle/seam.py")


class NoAnswer(Exception):
    """A checkout cannot be asked, or it ended before its last answer."""


def answers(repo: Path, lines: Sequence[str], hash_seed: int = 0) -> Iterator[str]:
    """Return a checkout's answers to inputs, one for one, as they come.

    It is asked through its own seam if it has one, and otherwise through this checkout's. The seed
    decides in which order its sets are; an answer must not depend on it.
    """
    interpreter = repo / ".venv" / "bin" / "python"
    if not interpreter.exists():
        raise NoAnswer(f"{repo} has no .venv: run `make setup-dev` there.")
    tests = repo if (repo / SEAM).exists() else HERE
    process = subprocess.Popen(
        [str(interpreter), "-P", str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="ascii",
        cwd=repo,
        env=os.environ | {"PYTHONPATH": str(tests), "PYTHONHASHSEED": str(hash_seed)},
    )
    assert process.stdin
    assert process.stdout
    writer = threading.Thread(target=_write, args=(process.stdin, lines), daemon=True)
    writer.start()
    try:
        for number in range(1, len(lines) + 1):
            line = process.stdout.readline()
            if not line:
                raise NoAnswer(f"{repo} ended at input {number}, with {process.wait()}.")
            yield line.rstrip("\n")
    finally:
        process.kill()
        process.wait()
        writer.join()
        process.stdout.close()


def _write(target: IO[str], lines: Sequence[str]) -> None:
    with suppress(BrokenPipeError), target:
        target.writelines(f"{line}\n" for line in lines)

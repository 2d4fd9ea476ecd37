"""What of this machine a sandbox sees, and why bubblewrap cannot start one here.

Of the system: its programs and libraries, and the few files of /etc that programs want to read and
that say nothing of the machine's owner. Of the server: its Python with the packages, and of its
own source what the daemon is made of.

What is wrong is found by trying. The messages reach the owner of an intern that cannot start: they
name no path and repeat nothing that a program has said. That is in the log.

Source: bwrap(1); user_namespaces(7); Ubuntu's kernel.apparmor_restrict_unprivileged_userns.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

import tollhouse
from tollhouse.interns.runtimes.sandbox_process import own_program
from tollhouse.sandbox.seccomp import MACHINES

if TYPE_CHECKING:
    from collections.abc import Iterator

_SYSTEM: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC: Final = (
    *("alternatives", "ca-certificates", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"),
    *("mime.types", "os-release", "pki/ca-trust/extracted", "pki/tls/certs", "protocols"),
    *("services", "ssl/certs", "ssl/openssl.cnf"),
)
_HIDDEN_PROC_FILES: Final = (
    *("kcore", "key-users", "keys", "kallsyms", "kmsg", "sched_debug", "timer_list"),
)
_SOURCE: Final = ("__init__.py", "sandbox")
_MOST_LINKS: Final = 40


@dataclass(frozen=True, slots=True)
class HostView:
    """What is shown of this machine."""

    links: tuple[tuple[str, str], ...]
    """Symbolic links of the root folder: target and path."""
    system: tuple[Path, ...]
    """Shown at their own paths; everybody may reach them."""
    python: tuple[Path, ...]
    """Folders of the server's Python, shown at their own paths."""
    interpreters: tuple[tuple[Path, Path], ...]
    """Where the way from the server's Python to its program leaves these folders: program, path."""
    hidden: tuple[Path, ...]
    """Folders within what is shown that are not."""
    unseen: tuple[str, ...]
    """Files of /proc that tell of the machine."""
    source: tuple[tuple[Path, str], ...]
    """What the daemon is made of: path, and name below the folder that Python imports it from."""
    program: Path
    """The server's Python."""


def inspect_host(data: Path) -> HostView:
    """Return what is shown of this machine, the server's data folder never."""
    links, system = _system()
    python = tuple(
        prefix
        for prefix in dict.fromkeys((Path(sys.base_prefix), Path(sys.prefix)))
        if not any(prefix.is_relative_to(each) for each in system)
    )
    shown = (*system, *python)
    package = Path(tollhouse.__file__).resolve().parent
    return HostView(
        links=links,
        system=system,
        python=python,
        interpreters=tuple(_interpreters(Path(sys.executable), shown)),
        hidden=tuple(
            each
            for each in (package, data.resolve())
            if each.is_dir() and any(each.is_relative_to(top) for top in shown)
        ),
        unseen=tuple(
            f"/proc/{name}" for name in _HIDDEN_PROC_FILES if Path("/proc", name).exists()
        ),
        source=tuple((package / name, f"tollhouse/{name}") for name in _SOURCE),
        program=Path(sys.executable),
    )


def first_unreadable(host: HostView) -> Path | None:
    """Return something of the server's Python that not everybody may read, if there is such."""
    library = Path(os.__file__)
    for path in (*host.python, host.program.resolve(), library, *(path for path, _ in host.source)):
        wanted = 0o5 if path.is_dir() else 0o4
        if path.stat().st_mode & wanted != wanted:
            return path
    return None


def _system() -> tuple[tuple[tuple[str, str], ...], tuple[Path, ...]]:
    links: list[tuple[str, str]] = []
    shown = [Path("/usr")]
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            links.append((str(path.readlink()), str(path)))
        elif path.is_dir():
            shown.append(path)
    shown += [path for name in _ETC if (path := Path("/etc", name)).exists()]
    return tuple(links), tuple(shown)


def _interpreters(program: Path, shown: tuple[Path, ...]) -> Iterator[tuple[Path, Path]]:
    """Yield the links between a program's name and itself that stand in no folder that is shown."""
    for _ in range(_MOST_LINKS):
        if not any(program.is_relative_to(each) for each in shown):
            yield program.resolve(), program
            return
        if not program.is_symlink():
            return
        program = Path(os.path.normpath(program.parent / program.readlink()))


_log = structlog.get_logger(__name__)

_LEAST_VERSION: Final = (0, 8)
"""Has `--disable-userns` and `--size`."""
_NOBODY: Final = 65534
_SECONDS: Final = 20
_TRIAL_ARGUMENTS: Final = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"),
    *("--cap-drop", "ALL", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc"),
    *("--dev", "/dev", "--", "/bin/true"),
)


def find_problem(host: HostView, *, as_root: bool) -> str | None:
    """Return what is wrong and what to do; None where a sandbox can be started. It blocks."""
    if sys.platform != "linux":
        return "sandboxes need Linux"
    if platform.machine() not in MACHINES:
        return f"there is no filter of system calls for {platform.machine()} yet"
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        return "bubblewrap is not installed: apt-get install bubblewrap, or dnf install bubblewrap"
    closed = first_unreadable(host) if as_root else None
    if closed is not None:
        _log.error("sandbox_cannot_read", path=str(closed))
        return (
            "sandboxes have users of their own, who may not read what the server's Python needs: "
            "the server's log names the folder, for chmod -R o+rX"
        )
    return _version_problem(bubblewrap) or _trial_problem(bubblewrap, as_root=as_root)


def _version_problem(bubblewrap: str) -> str | None:
    said = _run((bubblewrap, "--version")).stdout
    version = re.search(r"(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < _LEAST_VERSION:
        _log.error("bubblewrap_too_old", said=said.strip())
        return "bubblewrap is too old: 0.8.0 or newer is needed"
    return None


def _trial_problem(bubblewrap: str, *, as_root: bool) -> str | None:
    plan = {
        "parent": os.getpid(),
        "groups": [],
        "limits": [],
        "user": _NOBODY if as_root else None,
        "show": [],
        "command": [bubblewrap, *_TRIAL_ARGUMENTS],
    }
    done = _run((*own_program("launcher.py"), msgspec.json.encode(plan).decode()))
    if done.returncode == 0:
        return None
    reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    _log.error("bubblewrap_failed", said=reason)
    return (
        "bubblewrap cannot make a sandbox here (the server's log has its words): allow user "
        "namespaces, by "
        "sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1 or "
        "kernel.apparmor_restrict_unprivileged_userns=0; a container needs a seccomp profile that "
        "lets unshare and mount pass"
    )


def _run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - ours, and bubblewrap
            command, capture_output=True, text=True, timeout=_SECONDS, check=False, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))

"""What of this machine a sandbox sees. Looked up once; the files stay where they are.

Of the system: its programs and libraries, and the few files of /etc that programs want to read and
that say nothing of the machine's owner. Of the server: its Python with the packages, and of its
own source what the daemon is made of.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tollhouse

if TYPE_CHECKING:
    from collections.abc import Iterator

_SYSTEM: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC: Final = (
    "alternatives",
    "ca-certificates",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "os-release",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
)
_UNSEEN: Final = ("kcore", "key-users", "keys", "kallsyms", "kmsg", "sched_debug", "timer_list")
_SOURCE: Final = ("__init__.py", "sandbox")
_MOST_LINKS: Final = 40


@dataclass(frozen=True, slots=True)
class Host:
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


def look_around(data: Path) -> Host:
    """Return what is shown of this machine.

    Args:
        data: The server's data folder, which never is.
    """
    links, system = _system()
    python = tuple(
        prefix
        for prefix in dict.fromkeys((Path(sys.base_prefix), Path(sys.prefix)))
        if not any(prefix.is_relative_to(each) for each in system)
    )
    shown = (*system, *python)
    package = Path(tollhouse.__file__).resolve().parent
    return Host(
        links=links,
        system=system,
        python=python,
        interpreters=tuple(_interpreters(Path(sys.executable), shown)),
        hidden=tuple(
            each
            for each in (package, data.resolve())
            if each.is_dir() and any(each.is_relative_to(top) for top in shown)
        ),
        unseen=tuple(f"/proc/{name}" for name in _UNSEEN if Path("/proc", name).exists()),
        source=tuple((package / name, f"tollhouse/{name}") for name in _SOURCE),
        program=Path(sys.executable),
    )


def unreadable(host: Host) -> Path | None:
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

"""Arguments of bubblewrap: what a sandbox sees, and what it may. Pure.

    /usr, /bin, /lib*, some of /etc    the machine's, read-only
    <Python's own folders>             the server's, read-only
    /workspace                         the sandbox's own, and the one place that it keeps
    /tmp, /run, /dev/shm               small, in memory
    /run/egress, /run/tollhouse        the way out, and the daemon's source; read-only

Arguments are carried out in their order, and what is mounted later lies over what was before. The
root folder, /etc and /dev are closed last.

Source: bwrap(1), 0.8.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from tollhouse.vault.egress.session_folder import environment, gateway_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.interns.runtimes.host import HostView

WORKSPACE: Final = "/workspace"
EGRESS: Final = PurePosixPath("/run/egress")
FORWARDER: Final = "http://127.0.0.1:3128"
"""Where the daemon takes connections that it passes on to the way out."""
_SOURCE: Final = "/run/tollhouse"
_ID: Final = "1000"
_MIB: Final = 1024 * 1024
_RUN_BYTES: Final = 16 * _MIB
_MOST_SHARED_BYTES: Final = 64 * _MIB

ETC_FILES: Final[Mapping[str, str]] = {
    "passwd": f"intern:x:{_ID}:{_ID}:intern:{WORKSPACE}:/bin/bash\n",
    "group": f"intern:x:{_ID}:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "resolv.conf": "# Names are resolved by the proxy.\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
"""Files of /etc that are ours."""

MARK_VARIABLE: Final = "TOLLHOUSE_SANDBOX"
"""Variable that says whose a sandbox is."""


def daemon_command(program: Path, folder: str = _SOURCE) -> tuple[str, ...]:
    """Return the command of the daemon, for a Python program.

    It imports the daemon alone of the package `tollhouse` in the folder: a sandbox's, by default.
    """
    start = "from tollhouse.sandbox.daemon.__main__ import main; sys.exit(main())"
    return (str(program), "-I", "-c", f"import sys; sys.path.insert(0, {folder!r}); {start}")


@dataclass(frozen=True, slots=True)
class PassedDescriptors:
    """Numbers of the descriptors that bubblewrap reads from, or writes to."""

    seccomp: int
    """The filter."""
    info: int
    """It writes which process is the sandbox's first."""
    block: int
    """It waits for a byte here before it runs anything of the sandbox."""
    etc: Mapping[str, int]
    """Content of `ETC_FILES`'s files."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What differs between two sandboxes."""

    name: str
    mark: str
    """By which the sandbox is found when the server was killed; see `kill_marked`."""
    workspace: Path
    egress: Path
    memory_bytes: int
    command: Sequence[str]


def bubblewrap_arguments(
    bubblewrap: str,
    host: HostView,
    asked: SandboxSpec,
    passed: PassedDescriptors,
    where: Mapping[Path, Path],
) -> list[str]:
    """Return the command line of a sandbox.

    `where` says under which other path something of the host can be reached.
    """
    return [
        *(bubblewrap, *_namespaces(asked.name, passed), *_environment(host, asked)),
        *_system(host),
        *_created(host, asked, passed),
        *_python(host, where),
        *("--ro-bind", str(where.get(asked.egress, asked.egress)), str(EGRESS)),
        *("--bind", str(where.get(asked.workspace, asked.workspace)), WORKSPACE),
        *_remounted_read_only("/run/tollhouse", "/dev", "/"),
        *("--chdir", WORKSPACE, "--", *asked.command),
    ]


def staged_paths(host: HostView, asked: SandboxSpec) -> list[Path]:
    """Return what a sandbox sees that its user may be unable to reach."""
    return [
        *host.python,
        *(program for program, _ in host.interpreters),
        *(path for path, _ in host.source),
        asked.workspace,
        asked.egress,
    ]


def program_environment(home: str, egress: PurePosixPath, path: str) -> dict[str, str]:
    """Return the environment of a daemon, and of all that it runs.

    `home` is its workspace and `egress` the folder with the way out, both as it sees them.
    """
    return {
        "HOME": home,
        "LANG": "C.UTF-8",
        "LOGNAME": "intern",
        "PATH": path,
        "SHELL": "/bin/bash",
        "USER": "intern",
        **environment(FORWARDER, egress),
        **gateway_environment(),
    }


def search_path(host: HostView) -> str:
    """Return where programs are looked for: the machine's own programs first."""
    system = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
    return ":".join((*system, *(str(each / "bin") for each in host.python)))


def _namespaces(name: str, passed: PassedDescriptors) -> list[str]:
    return [
        *("--unshare-all", "--unshare-user", "--uid", _ID, "--gid", _ID),
        *("--disable-userns", "--cap-drop", "ALL", "--new-session", "--die-with-parent"),
        *("--hostname", name[:63], "--seccomp", str(passed.seccomp)),
        *("--info-fd", str(passed.info), "--block-fd", str(passed.block)),
    ]


def _environment(host: HostView, asked: SandboxSpec) -> list[str]:
    found = program_environment(WORKSPACE, EGRESS, search_path(host))
    found[MARK_VARIABLE] = asked.mark
    return ["--clearenv", *(word for each in found.items() for word in ("--setenv", *each))]


def _system(host: HostView) -> list[str]:
    found = [word for target, path in host.links for word in ("--symlink", target, path)]
    for path in host.system:
        found += ["--ro-bind", str(path), str(path)]
    return found


def _created(host: HostView, asked: SandboxSpec, passed: PassedDescriptors) -> list[str]:
    shared = str(min(_MOST_SHARED_BYTES, asked.memory_bytes // 4))
    found = ["--proc", "/proc"]
    for path in host.unseen:
        found += ["--ro-bind", "/dev/null", path]
    found += ["--dev", "/dev", "--perms", "1777", "--size", shared, "--tmpfs", "/dev/shm"]  # noqa: S108 - the sandbox's own
    found += ["--perms", "1777", "--size", str(asked.memory_bytes // 4), "--tmpfs", "/tmp"]  # noqa: S108 - the sandbox's own
    found += _tmpfs("/run", min(_RUN_BYTES, asked.memory_bytes // 4))
    for name, descriptor in passed.etc.items():
        found += ["--perms", "0444", "--ro-bind-data", str(descriptor), f"/etc/{name}"]
    return found


def _python(host: HostView, where: Mapping[Path, Path]) -> list[str]:
    # Where these stand may lie below /tmp, and they may hold what is hidden.
    found: list[str] = []
    for path, seen in (*((path, path) for path in host.python), *host.interpreters):
        found += ["--ro-bind", str(where.get(path, path)), str(seen)]
    for path in host.hidden:
        found += [*_tmpfs(str(path), _MIB), *_remounted_read_only(str(path))]
    found += _tmpfs(_SOURCE, _MIB)
    for path, name in host.source:
        found += ["--ro-bind", str(where.get(path, path)), f"{_SOURCE}/{name}"]
    return found


def _tmpfs(path: str, size: int) -> list[str]:
    return ["--perms", "0755", "--size", str(size), "--tmpfs", path]


def _remounted_read_only(*paths: str) -> list[str]:
    return [word for path in paths for word in ("--remount-ro", path)]

from itertools import pairwise
from pathlib import Path

from tollhouse.interns.runtimes.command import (
    ETC_FILES,
    PassedDescriptors,
    SandboxSpec,
    bubblewrap_arguments,
    daemon_command,
    staged_paths,
)
from tollhouse.interns.runtimes.host import HostView

PREFIX = Path("/root/python")
VENV = Path("/srv/tollhouse/venv")
HOST = HostView(
    links=(("usr/bin", "/bin"),),
    system=(Path("/usr"), Path("/etc/ssl/certs")),
    python=(PREFIX, VENV),
    interpreters=((Path("/opt/python3"), Path("/opt/link")),),
    hidden=(VENV / "lib/tollhouse",),
    unseen=("/proc/keys",),
    source=((VENV / "lib/tollhouse/__init__.py", "tollhouse/__init__.py"),),
    program=VENV / "bin/python",
)
ASKED = SandboxSpec(
    name="intern-1",
    mark="tollhouse-x-intern-1",
    workspace=Path("/srv/data/w"),
    egress=Path("/srv/data/e"),
    memory_bytes=1 << 30,
    command=daemon_command(HOST.program),
)
PASSED = PassedDescriptors(seccomp=10, info=11, block=12, etc=dict.fromkeys(ETC_FILES, 13))


def words(where: dict[Path, Path] | None = None) -> list[str]:
    return bubblewrap_arguments("/usr/bin/bwrap", HOST, ASKED, PASSED, where or {})


def binds(found: list[str], kind: str) -> dict[str, str]:
    places = [at for at, word in enumerate(found) if word == kind]
    return {found[at + 2]: found[at + 1] for at in places}


def test_every_namespace_is_its_own_and_no_right_is_kept() -> None:
    found = words()
    for wanted in ("--unshare-all", "--unshare-user", "--disable-userns", "--new-session"):
        assert wanted in found
    assert ("--cap-drop", "ALL") in set(pairwise(found))
    assert ("--seccomp", "10") in set(pairwise(found))
    assert "--die-with-parent" in found
    assert not {"--share-net", "--cap-add"} & set(found)


def test_the_workspace_is_all_that_can_be_written() -> None:
    found = words()
    assert binds(found, "--bind") == {"/workspace": "/srv/data/w"}
    assert not {"--bind-try", "--dev-bind", "--dev-bind-try"} & set(found)


def test_what_is_shown_is_what_was_asked_for() -> None:
    shown = binds(words(), "--ro-bind")
    assert shown == {
        "/usr": "/usr",
        "/etc/ssl/certs": "/etc/ssl/certs",
        "/root/python": "/root/python",
        "/srv/tollhouse/venv": "/srv/tollhouse/venv",
        "/opt/link": "/opt/python3",
        "/proc/keys": "/dev/null",
        "/run/tollhouse/tollhouse/__init__.py": "/srv/tollhouse/venv/lib/tollhouse/__init__.py",
        "/run/egress": "/srv/data/e",
    }


def test_what_is_hidden_is_hidden_after_it_was_shown_and_closed() -> None:
    found = words()
    hidden = str(VENV / "lib/tollhouse")
    covered = found.index(hidden)
    assert found[covered - 1] == "--tmpfs"
    assert covered > found.index(str(VENV))
    assert found[covered + 1 : covered + 3] == ["--remount-ro", hidden]


def test_the_root_and_the_devices_are_closed_last() -> None:
    found = words()
    last = found.index("--chdir")
    assert found[last - 4 : last] == ["--remount-ro", "/dev", "--remount-ro", "/"]


def test_the_environment_is_only_what_is_set() -> None:
    found = words()
    assert found.index("--clearenv") < found.index("--setenv")
    names = {found[at + 1] for at, word in enumerate(found) if word == "--setenv"}
    assert {"HOME", "PATH", "HTTPS_PROXY", "SSL_CERT_FILE", "TOLLHOUSE_SANDBOX"} <= names


def test_what_its_user_cannot_reach_is_read_elsewhere() -> None:
    shown = staged_paths(HOST, ASKED)
    found = words({path: Path("/tmp", str(number)) for number, path in enumerate(shown)})  # noqa: S108 - the stage's
    assert binds(found, "--bind") == {"/workspace": f"/tmp/{shown.index(ASKED.workspace)}"}  # noqa: S108
    assert binds(found, "--ro-bind")["/root/python"] == "/tmp/0"  # noqa: S108
    assert "/srv/data/e" not in found


def test_the_daemon_is_imported_from_what_is_mounted_alone() -> None:
    program, *options = daemon_command(HOST.program)
    assert program == str(HOST.program)
    assert options[0] == "-I"
    assert "sys.path.insert(0, '/run/tollhouse')" in options[-1]

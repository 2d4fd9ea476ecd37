"""Lock files fix versions and hashes, and name no package registry."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted(
    [*ROOT.glob("requirements/*.txt"), *ROOT.glob("tests/contract/clients/*/requirements.txt")]
)
REGISTRY_HOSTS = [
    ".".join(labels)  # joined, so that this file does not name them
    for labels in [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("yarnpkg", "com")]
]


def test_every_set_has_a_lock() -> None:
    names = {str(path.relative_to(ROOT)) for path in LOCKS}
    assert names >= {f"requirements/{name}.txt" for name in ("uv", "run", "dev", "mutation")}
    assert len(LOCKS) == 4 + len(list(ROOT.glob("tests/contract/clients/*/requirements.in")))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
class TestLock:
    def test_a_lock_fixes_every_version_with_a_hash(self, lock: Path) -> None:
        logical_lines = re.sub(r"\\\n", " ", lock.read_text()).splitlines()
        entries = [line for line in logical_lines if line.strip() and line.lstrip()[0] != "#"]
        assert entries
        for entry in entries:
            assert re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", entry)

    def test_a_lock_names_no_address_no_path_and_no_index(self, lock: Path) -> None:
        foreign = r"://|@ |^-|--(?:index|extra-index|find-links)|(?:^|\s)[/~]|\.\./"
        assert re.findall(foreign, lock.read_text(), re.MULTILINE) == []


def test_the_lock_of_the_agents_fixes_every_package_with_a_hash_and_no_address() -> None:
    lock = json.loads((ROOT / "tests/contract/clients/agents/package-lock.json").read_text())
    packages = {name: each for name, each in lock["packages"].items() if name}
    assert packages
    for name, each in packages.items():
        assert each["integrity"].startswith("sha512-"), name
        assert "resolved" not in each, name


def test_the_dev_lock_has_the_run_lock_in_the_same_versions() -> None:
    pinned = re.compile(r"^[\w.-]+==\S+", re.MULTILINE)
    run, dev = (
        set(pinned.findall((ROOT / "requirements" / name).read_text()))
        for name in ("run.txt", "dev.txt")
    )
    assert run
    assert run <= dev


def test_no_file_of_the_project_names_a_registry() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so there is no list of the project's files")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    named = [
        f"{path.relative_to(ROOT)} names {host}"
        for path in paths
        if path.is_file()
        for host in REGISTRY_HOSTS
        if host.encode() in path.read_bytes()
    ]
    assert paths
    assert named == []

"""A server starts with the keys that open its vaults, or names those that are missing."""

import base64
import re
import resource
import shutil
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest

from tests.support.canaries import PLANTED
from tests.support.forked import run_forked
from tests.support.server_process import ServerProcess, start_server

SECRET = {"value": PLANTED[42], "hosts": ["api.example.com"]}


def stored_names(server: ServerProcess, key: str) -> list[str]:
    url, headers = f"{server.base_url}/vault/secrets", {"Authorization": f"Bearer {key}"}
    data = httpx2.get(url, headers=headers).raise_for_status().json()["data"]
    return [each["name"] for each in data]


def write(server: ServerProcess, key: str, name: str = "token") -> dict[str, object]:
    url, headers = f"{server.base_url}/vault/secrets/{name}", {"Authorization": f"Bearer {key}"}
    return httpx2.put(url, json=SECRET, headers=headers).raise_for_status().json()["data"]


@pytest.fixture
def stopped_server(tmp_path: Path) -> tuple[Path, str]:
    """A folder with a data folder that has a secret, and its API key."""
    with start_server(tmp_path) as server:
        key = server.api_key
        write(server, key)
    return tmp_path, key


def refused(folder: Path, **environment: str) -> str:
    """Assert that a server does not start on a folder; return its standard error."""
    command = ["serve", "--data-dir", folder / "data", "--port", "0"]
    ended = run_forked(*command, env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **environment})
    assert ended.returncode == 2, ended.stderr
    return ended.stderr


def content(folder: Path) -> dict[str, bytes]:
    """Return every file that a start could change, but the lock."""
    data = folder / "data"
    names = ("tollhouse.db", "vault.keys")
    return {name: (data / name).read_bytes() for name in names if (data / name).exists()}


def test_a_missing_key_file_is_an_error_and_none_is_made(stopped_server: tuple[Path, str]) -> None:
    folder, _ = stopped_server
    (folder / "data" / "vault.keys").unlink()
    before = content(folder)
    assert "vault.keys is not there" in refused(folder)
    assert content(folder) == before


def test_another_key_is_refused_and_both_are_named(stopped_server: tuple[Path, str]) -> None:
    folder, _ = stopped_server
    other = base64.b64encode(bytes(range(32))).decode()
    (folder / "data" / "vault.keys").write_text(other + "\n")
    before = content(folder)
    said = refused(folder)
    named = set(re.findall(r"\b[0-9a-f]{16}\b", said))
    assert len(named) == 2
    assert sha256(b"tollhouse/kek-id/1" + bytes(range(32))).hexdigest()[:16] in named
    assert "put it back" in said
    assert other not in said
    assert content(folder) == before


def test_keys_that_others_may_read_are_refused(stopped_server: tuple[Path, str]) -> None:
    folder, _ = stopped_server
    (folder / "data" / "vault.keys").chmod(0o644)
    assert "chmod 600" in refused(folder)


@pytest.mark.parametrize("key", ["", "short", "c2hvcnQ="])
def test_an_invalid_key_in_the_settings_is_refused_and_not_repeated(
    tmp_path: Path, key: str
) -> None:
    settings = {"TOLLHOUSE_VAULT__KEYS": "settings", "TOLLHOUSE_VAULT__KEY": key}
    said = refused(tmp_path, **settings)
    assert "vault.key" in said
    assert not key or key not in said


@pytest.mark.sqlite
def test_a_folder_that_was_copied_with_its_keys_serves_its_secrets(
    stopped_server: tuple[Path, str], tmp_path: Path
) -> None:
    folder, key = stopped_server
    restored = tmp_path / "restored"
    shutil.copytree(folder / "data", restored / "data")
    with start_server(restored) as server:
        assert stored_names(server, key) == ["token"]
        fingerprint = write(server, key)["fingerprint"]
    with start_server(folder) as server:
        # The same value has the same fingerprint: both have the vault's data key.
        assert write(server, key)["fingerprint"] == fingerprint


@pytest.mark.sqlite
def test_a_database_without_its_keys_is_refused(
    stopped_server: tuple[Path, str], tmp_path: Path
) -> None:
    folder, _ = stopped_server
    restored = tmp_path / "restored"
    (restored / "data").mkdir(parents=True)
    shutil.copy(folder / "data" / "tollhouse.db", restored / "data")
    assert "put its copy back" in refused(restored)


def test_a_server_leaves_no_core_dump(tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_CORE)
    assert limits == (0, 0)

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tollhouse.kernel.errors import StartError
from tollhouse.storage.data_folder import DataFolder, FolderInUse, Owner


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "data"


def test_naming_a_folder_touches_nothing(path: Path) -> None:
    folder = DataFolder(path)
    assert folder.database == path / "tollhouse.db"
    assert folder.control_socket == path / "control.sock"
    assert not path.exists()


def test_locking_makes_a_private_folder(path: Path) -> None:
    with DataFolder(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert stat.S_IMODE((path / ".lock").stat().st_mode) == 0o600


def test_the_lock_names_its_owner(path: Path) -> None:
    folder = DataFolder(path)
    folder.lock("http://127.0.0.1:8080")
    assert DataFolder(path).owner() == Owner(os.getpid(), "http://127.0.0.1:8080")
    folder.release()


def test_a_second_lock_is_refused_and_says_who_has_the_first(path: Path) -> None:
    first = DataFolder(path)
    first.lock("http://127.0.0.1:8080")
    with pytest.raises(FolderInUse) as refused:
        DataFolder(path).lock()
    first.release()
    assert str(refused.value) == (
        f"the data folder {path} is in use by process {os.getpid()}, which serves "
        "http://127.0.0.1:8080: stop it, or choose another folder with --data-dir"
    )
    assert refused.value.owner == Owner(os.getpid(), "http://127.0.0.1:8080")


def test_a_command_that_holds_the_folder_serves_nothing(path: Path) -> None:
    with DataFolder(path), pytest.raises(FolderInUse, match=rf"process {os.getpid()}: stop it"):
        DataFolder(path).lock("http://127.0.0.1:8080")


def test_another_process_is_refused_too(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tollhouse.storage.data_folder import *\n"
        "try: DataFolder(Path(sys.argv[1])).lock()\n"
        "except FolderInUse as error: print(error.owner.pid)"
    )
    with DataFolder(path):
        command = [sys.executable, "-c", program, str(path)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(os.getpid())


def test_a_process_that_was_killed_holds_nothing(path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from tollhouse.storage.data_folder import *\n"
        "DataFolder(Path(sys.argv[1])).lock(); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", program, str(path)]
    assert subprocess.run(command, check=False).returncode == -9
    with DataFolder(path) as folder:
        assert folder.owner() == Owner(os.getpid(), None)


def test_a_lock_without_a_readable_owner_is_refused_all_the_same(path: Path) -> None:
    with DataFolder(path):
        (path / ".lock").write_text("")
        with pytest.raises(FolderInUse, match="in use by another process: stop it"):
            DataFolder(path).lock()


class TestUnwritable:
    # Root may write anywhere, so the folder lies below a file.

    def test_is_refused_in_one_line_that_says_what_to_do(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        path = tmp_path / "file" / "data"
        with pytest.raises(StartError) as refused:
            DataFolder(path).lock()
        assert str(refused.value) == (
            f"the data folder {path} cannot be written (Not a directory): "
            "mend its permissions, or choose another folder with --data-dir"
        )

    def test_leaves_nothing_half_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StartError):
            DataFolder(tmp_path / "file" / "data").lock()
        assert [entry.name for entry in tmp_path.iterdir()] == ["file"]

    def test_is_also_a_full_disk(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "pwrite", full)
        folder = DataFolder(path)
        with pytest.raises(StartError, match="No space left on device"):
            folder.lock()
        monkeypatch.undo()
        with DataFolder(path):
            assert json.loads((path / ".lock").read_text())["pid"] == os.getpid()

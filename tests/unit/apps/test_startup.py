"""What a server takes for itself before it starts."""

from pathlib import Path

import pytest

from tollhouse.apps.startup import acquire_resources
from tollhouse.kernel.errors import StartError
from tollhouse.settings.sections import Settings


def settings(folder: Path, database: Path) -> Settings:
    return Settings.model_validate(
        {"data_dir": folder, "database_url": f"sqlite:///{database}", "server": {"port": 0}}
    )


def test_an_sqlite_file_is_for_one_server_whatever_their_data_folders(tmp_path: Path) -> None:
    database, link = tmp_path / "shared.db", tmp_path / "link.db"
    link.symlink_to(database)
    with (
        acquire_resources(settings(tmp_path / "one", database)),
        pytest.raises(StartError, match="another server uses the database"),
        acquire_resources(settings(tmp_path / "other", link)),
    ):
        pytest.fail("two servers have it")
    with acquire_resources(settings(tmp_path / "other", link)):
        pass


def test_two_sqlite_files_in_a_folder_are_for_two_servers(tmp_path: Path) -> None:
    files = tmp_path / "one.db", tmp_path / "other.db"
    with (
        acquire_resources(settings(tmp_path / "one", files[0])),
        acquire_resources(settings(tmp_path / "other", files[1])),
    ):
        pass

from collections.abc import Callable
from pathlib import Path

import platformdirs
import pytest

from tollhouse.settings.loader import CONFIG_FILE, config_file, data_folder, load
from tollhouse.settings.problems import ConfigError
from tollhouse.settings.sections import Settings

Load = Callable[..., Settings]


def test_the_config_file_of_the_flag_goes_first(tmp_path: Path) -> None:
    env = {"TOLLHOUSE_CONFIG": "env.yaml"}
    found = config_file(Path("flag.yaml"), env, tmp_path, tmp_path)
    assert found == tmp_path / "flag.yaml"


def test_the_config_file_of_the_environment_goes_second(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).touch()
    found = config_file(None, {"TOLLHOUSE_CONFIG": "env.yaml"}, tmp_path, tmp_path)
    assert found == tmp_path / "env.yaml"


def test_a_config_file_in_the_data_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text("server: {port: 1}")
    settings = load(config=None, env={"TOLLHOUSE_DATA_DIR": str(tmp_path)}, overrides={})
    assert settings.server.port == 1


def test_a_named_config_file_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: the config file cannot be read"):
        load(config=None, env={"TOLLHOUSE_CONFIG": "none.yaml"}, overrides={}, cwd=tmp_path)


@pytest.mark.parametrize(("flags", "name"), [({"data_dir": "flag"}, "flag"), ({}, "env")])
def test_the_data_folder_of_the_flag_goes_before_that_of_the_environment(
    load_text: Load, tmp_path: Path, flags: dict[str, str], name: str
) -> None:
    settings = load_text("data_dir: file", {"TOLLHOUSE_DATA_DIR": "env"}, flags)
    assert settings.data_dir == tmp_path / name


def test_the_data_folder_of_the_file_starts_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    file = tmp_path / "etc" / "config.yaml"
    file.write_text("data_dir: ../data")
    settings = load(config=file, env={}, overrides={}, cwd=tmp_path / "elsewhere")
    assert settings.data_dir == tmp_path / "data"


def test_the_platforms_data_folder_goes_last(tmp_path: Path) -> None:
    expected = platformdirs.user_data_path("tollhouse", appauthor=False)
    assert data_folder({}, None, tmp_path) == expected


def test_a_tilde_is_the_home_folder(tmp_path: Path) -> None:
    assert data_folder({}, Path("~/t"), tmp_path) == Path.home().resolve() / "t"


def test_a_loop_of_links_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match="is not a usable path"):
        data_folder({}, tmp_path / "loop" / "x", tmp_path)


def test_loading_creates_nothing(tmp_path: Path) -> None:
    load(config=None, env={}, overrides={"data_dir": tmp_path / "new"})
    assert list(tmp_path.iterdir()) == []

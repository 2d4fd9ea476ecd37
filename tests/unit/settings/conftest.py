"""A configuration file from a text, loaded as the program does."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

import pytest
import yaml

from tollhouse.kernel.secret import Secret
from tollhouse.settings.loader import load
from tollhouse.settings.problems import ConfigError
from tollhouse.settings.sections import Settings

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]


def rows(name: str) -> Any:
    """Return a table of this folder."""
    return yaml.load(Path(__file__).with_name(name).read_bytes(), yaml.CSafeLoader)


def written(setting: Any) -> Any:
    """Return a setting as the tables have it: exact numbers and networks as text."""
    match setting:
        case Secret():
            return setting.reveal()
        case Decimal():
            return f"{setting.normalize():f}"
        case IPv4Network() | IPv6Network() | Path():
            return str(setting)
        case tuple():
            return [written(each) for each in setting]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return setting


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    def _load(
        text: str,
        env: Mapping[str, str] | None = None,
        overrides: Mapping[str, object] | None = None,
    ) -> Settings:
        file = tmp_path / "config.yaml"
        file.write_text(text, encoding="utf-8")
        return load(config=file, env=env or {}, overrides=overrides or {}, cwd=tmp_path)

    return _load


@pytest.fixture
def problems_of(load_text: Load, tmp_path: Path) -> Problems:
    """Return the lines of the error, without the file's name and its line."""
    place = re.compile(re.escape(str(tmp_path / "config.yaml")) + r"(:\d+)?: ")

    def _problems(
        text: str,
        env: Mapping[str, str] | None = None,
        overrides: Mapping[str, object] | None = None,
    ) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load_text(text, env, overrides)
        assert str(caught.value) == "\n".join(caught.value.lines)
        assert all("\n" not in line for line in caught.value.lines)
        return [place.sub("", line, count=1) for line in caught.value.lines]

    return _problems

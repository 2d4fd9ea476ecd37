"""A configuration file from a text, loaded as the program does."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tollhouse.settings.loader import load
from tollhouse.settings.problems import ConfigError
from tollhouse.settings.sections import Settings

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]


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

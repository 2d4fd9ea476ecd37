"""The name of a machine is made once, and whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ids import SequentialIds
from tollhouse.interns.workspaces.folders import machine_name


def test_a_machine_keeps_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "interns"
    made = machine_name(folder, SequentialIds())
    assert made
    assert machine_name(folder, SequentialIds()) == made
    assert [path.name for path in folder.iterdir()] == ["machine"]


def test_a_name_that_was_cut_off_before_it_was_written_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "machine").touch()
    assert machine_name(tmp_path, SequentialIds())


def test_a_name_is_never_there_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object) -> None:
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", cut)
        with pytest.raises(OSError):  # noqa: PT011 - any
            machine_name(tmp_path, SequentialIds())
    assert not (tmp_path / "machine").exists()

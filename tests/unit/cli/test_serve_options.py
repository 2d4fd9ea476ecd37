"""`serve` is started without typer; what its own parser takes, typer takes in the same way."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.tables import tables
from tollhouse.cli.commands import serve
from tollhouse.cli.program import app
from tollhouse.cli.serving import ServeOptions

CASES = tables(__file__)

TAKEN = CASES["TAKEN"]
LEFT = CASES["LEFT"]


@pytest.mark.parametrize("line", TAKEN)
def test_known_options_are_read_as_typer_reads_them(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ServeOptions] = []

    def run_server(options: ServeOptions) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(serve, "run_server", run_server)
    assert CliRunner().invoke(app, line.split()).exit_code == 0
    assert [ServeOptions.parse(line.split())] == seen


@pytest.mark.parametrize("line", LEFT)
def test_anything_else_is_left_to_typer(line: str) -> None:
    assert ServeOptions.parse(line.split()) is None


def test_an_empty_value_is_left_to_typer() -> None:
    assert ServeOptions.parse(["serve", "--data-dir", ""]) is None


def test_a_value_may_hold_spaces() -> None:
    options = ServeOptions.parse(["serve", "--data-dir", "my data"])
    assert options == ServeOptions(data_dir=Path("my data"))


def test_the_password_of_a_database_is_not_shown() -> None:
    options = ServeOptions.parse(["serve", "--database-url", "postgresql://u:hunter2@h/d"])
    assert "hunter2" not in repr(options)

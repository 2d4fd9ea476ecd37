"""The question before something is deleted."""

import io
import sys

import pytest
import typer

from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.options import confirm_option


class Stdin(io.StringIO):
    def __init__(self, text: str, *, terminal: bool) -> None:
        super().__init__(text)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def ask(monkeypatch: pytest.MonkeyPatch, answer: str, *, terminal: bool, yes: bool = False) -> bool:
    monkeypatch.setattr(sys, "stdin", Stdin(answer, terminal=terminal))
    context = typer.Context(typer.core.TyperCommand("delete"))
    context.params["key"] = "ci"
    return confirm_option("Revoke {key}?").callback(context, yes)


def test_a_terminal_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(monkeypatch, "y\n", terminal=True)
    assert capsys.readouterr().err == "Revoke ci? [y/N] "


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_anything_but_yes_deletes_nothing(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    with pytest.raises(CommandFailed, match="nothing was deleted"):
        ask(monkeypatch, answer, terminal=True)


@pytest.mark.parametrize(("terminal", "yes"), [(False, False), (True, True)])
def test_nobody_is_asked_in_a_pipe_or_after_yes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    terminal: bool,  # noqa: FBT001
    yes: bool,  # noqa: FBT001
) -> None:
    ask(monkeypatch, "", terminal=terminal, yes=yes)
    assert capsys.readouterr().err == ""

"""How the egress proxy's process is started: one reader of arguments for both ways to it."""

import sys

import pytest

from tollhouse.apps import egress
from tollhouse.apps.egress import EgressOptions, options_of
from tollhouse.cli.main import main

GIVEN = (
    *("--link", "3", "--doors", "4", "--user", "proxy", "--core-dumps"),
    *("--log-level", "debug", "--log-format", "json"),
)
MEANT = EgressOptions(3, 4, "proxy", core_dumps=True, log_level="debug", log_format="json")


def test_arguments_are_options() -> None:
    assert options_of(GIVEN) == MEANT


def test_without_arguments_there_are_no_sockets_and_nothing_is_special() -> None:
    plain = EgressOptions(-1, -1, None, core_dumps=False, log_level="info", log_format="auto")
    assert options_of(()) == plain


def test_the_command_takes_the_same_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[EgressOptions] = []
    monkeypatch.setattr(egress, "run_egress", begun.append)
    monkeypatch.setattr(sys, "argv", ["tollhouse", "serve", "egress", *GIVEN])
    assert main() == 0
    assert begun == [MEANT]


@pytest.mark.parametrize("wrong", [("--link", "x"), ("--links", "3"), ("--more",)])
def test_what_is_no_argument_is_refused(wrong: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as refused:
        options_of(wrong)
    assert refused.value.code == 2

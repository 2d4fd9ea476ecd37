"""What is said of a machine that cannot make sandboxes: what to do, and nothing that is ours."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from structlog.testing import capture_logs

from tollhouse.interns.runtimes import host

if TYPE_CHECKING:
    from tollhouse.interns.runtimes.host import HostView

HOST = cast("HostView", None)
SAID = "bwrap: Can't mkdir /srv/secret-place: Permission denied"


def saying(version: str, trial: int) -> object:
    def run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        if "--version" in command:
            return subprocess.CompletedProcess(command, 0, version, "")
        return subprocess.CompletedProcess(command, trial, "", SAID)

    return run


@pytest.fixture(autouse=True)
def bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has bubblewrap on every machine, and nothing of it run."""
    monkeypatch.setattr(host.shutil, "which", lambda _: "/opt/secret-place/bwrap")
    monkeypatch.setattr(host, "first_unreadable", lambda _: None)
    monkeypatch.setattr(host, "_run", saying("bubblewrap 0.9.0", 0))


def test_a_machine_that_can_make_sandboxes_has_no_problem() -> None:
    assert host.find_problem(HOST, as_root=True) is None


def test_the_words_of_a_trial_that_failed_are_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "_run", saying("bubblewrap 0.9.0", 1))
    with capture_logs() as logs:
        said = host.find_problem(HOST, as_root=True)
    assert said is not None
    assert "allow user namespaces" in said
    assert "secret-place" not in said
    assert [entry["said"] for entry in logs] == [SAID]


def test_the_folder_that_sandboxes_cannot_read_is_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "first_unreadable", lambda _: Path("/root/secret-place"))
    with capture_logs() as logs:
        said = host.find_problem(HOST, as_root=True)
    assert said is not None
    assert "chmod -R o+rX" in said
    assert "secret-place" not in said
    assert [entry["path"] for entry in logs] == ["/root/secret-place"]


def test_what_an_old_bubblewrap_says_of_itself_is_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "_run", saying("/srv/secret-place 0.4", 0))
    assert host.find_problem(HOST, as_root=False) == (
        "bubblewrap is too old: 0.8.0 or newer is needed"
    )

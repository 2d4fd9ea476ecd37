"""Kills at every step of an intern's boot, resumption, suspension and deletion, of every process.

After each: what is shown is true, nothing runs that should not, nothing is left of what was
killed, and what was written to the workspace is there.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.intern_crashes import POINTS, Crash, InternCrashes, crashes_of
from tests.support.intern_client import InternClient
from tests.support.server_process import start_server
from tests.support.server_users import USERS, owner

pytestmark = pytest.mark.sandbox
SOME = (
    Crash("provision", "intern.sandbox.made", "bubblewrap"),
    Crash("suspend", "intern.suspend.before", "daemon"),
    Crash("resume", "intern.sandbox.after", "init"),
    Crash("delete", "intern.archive.after", "server"),
)
"""For everyday; the soak has each operation with each victim."""
SUSPENSIONS = 15


def killed(folder: Path, schedule: Sequence[Crash]) -> None:
    """Kill as a schedule says, one after the other, on one server."""
    trial = InternCrashes(folder)
    try:
        for cell in schedule:
            trial.go(cell)
        trial.end()
    finally:
        trial.server.kill()


def test_an_intern_outlives_some_kills(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert all(cell in crashes_of(cell.operation) for cell in SOME)
    killed(tmp_path_factory.mktemp("k"), SOME)


@pytest.mark.soak
@pytest.mark.parametrize("operation", POINTS)
def test_an_intern_outlives_a_kill_of_each_process_at_each_step(
    tmp_path_factory: pytest.TempPathFactory, operation: str
) -> None:
    schedule = crashes_of(operation)
    random.Random(operation).shuffle(schedule)  # what one kill leaves must not matter to the next
    killed(tmp_path_factory.mktemp("k"), schedule)


@pytest.mark.soak
@pytest.mark.parametrize("user", USERS)
def test_an_intern_is_suspended_and_resumed_many_times(
    tmp_path_factory: pytest.TempPathFactory, soak_factor: int, user: str
) -> None:
    folder = tmp_path_factory.mktemp("s")
    with start_server(folder, become=owner(user, folder)) as server:
        interns = InternClient(server)
        intern = interns.run()
        interns.script_output(
            "ada", "head -c 1000000 /dev/urandom > data; mkdir -p a/b; ln -s a/b link"
        )
        digest = interns.script_output("ada", "sha256sum data")
        for _ in range(SUSPENSIONS * soak_factor):
            interns.suspend(intern)
            assert interns.run() == intern  # it compares its files with those that were suspended
        assert interns.script_output("ada", "sha256sum data") == digest

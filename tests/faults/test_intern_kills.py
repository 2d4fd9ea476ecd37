"""Kills at every step of an intern's boot, resumption, suspension and deletion, of every process.

After each: what is shown is true, nothing runs that should not, nothing is left of what was
killed, and what was written to the workspace is there.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.intern_rooms import Rooms
from tests.acceptance.server_process import start_server
from tests.acceptance.server_users import USERS, program_as
from tests.faults.intern_trial import POINTS, Cell, Trial, cells

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.sandbox
TEN = (
    Cell("provision", "workspace to be prepared", "server"),
    Cell("provision", "way out open", "egress"),
    Cell("provision", "sandbox half made", "bubblewrap"),
    Cell("resume", "key made, no way out", "server"),
    Cell("resume", "sandbox started", "init"),
    Cell("resume", "door open", "daemon"),
    Cell("suspend", "to be suspended", "daemon"),
    Cell("suspend", "files safe", "server"),
    Cell("delete", "to be deleted", "bubblewrap"),
    Cell("delete", "archived", "server"),
)
"""Each operation and each victim, for everyday."""
SUSPENSIONS = 15


def killed(folder: Path, schedule: Sequence[Cell]) -> None:
    """Kill as a schedule says, one after the other, on one server."""
    trial = Trial(folder)
    try:
        for cell in schedule:
            trial.go(cell)
        trial.end()
    finally:
        trial.server.kill()


@pytest.mark.parametrize("operation", POINTS)
def test_an_intern_outlives_some_kills(
    tmp_path_factory: pytest.TempPathFactory, operation: str
) -> None:
    chosen = [cell for cell in TEN if cell.operation == operation]
    assert set(chosen) <= set(cells(operation))
    killed(tmp_path_factory.mktemp("k"), chosen)


@pytest.mark.soak
@pytest.mark.parametrize("operation", POINTS)
def test_an_intern_outlives_a_kill_of_each_process_at_each_step(
    tmp_path_factory: pytest.TempPathFactory, operation: str
) -> None:
    schedule = cells(operation)
    random.Random(operation).shuffle(schedule)  # what one kill leaves must not matter to the next
    killed(tmp_path_factory.mktemp("k"), schedule)


@pytest.mark.soak
@pytest.mark.parametrize("user", USERS)
def test_an_intern_is_suspended_and_resumed_many_times(
    tmp_path_factory: pytest.TempPathFactory, soak_factor: int, user: str
) -> None:
    folder = tmp_path_factory.mktemp("s")
    with start_server(folder, program=program_as(user, folder)) as server:
        rooms = Rooms(server)
        intern = rooms.run()
        rooms.output("ada", "head -c 1000000 /dev/urandom > data; mkdir -p a/b; ln -s a/b link")
        digest = rooms.output("ada", "sha256sum data")
        for _ in range(SUSPENSIONS * soak_factor):
            rooms.suspend(intern)
            assert rooms.run() == intern  # it compares its files with those that were suspended
        assert rooms.output("ada", "sha256sum data") == digest

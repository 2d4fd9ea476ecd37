"""What a start removes, puts aside and leaves alone of files that no intern has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from tests.support.waiting import until
from tollhouse.storage.tables.interns import intern_machines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.component.interns.machine import Machine

DAY = 24 * 60 * 60


@pytest.fixture
def strange(machine: Machine) -> Path:
    """A workspace of an intern that the database does not know."""
    path = machine.workspaces.path("strange")
    path.mkdir(parents=True)
    (path / "note").write_text("kept")
    machine.logs.note("strange", "running")
    return path


def notes_of(machine: Machine, intern_id: str) -> list[str]:
    path = machine.workspaces.path(intern_id)
    return [path.joinpath("note").read_text()] if path.exists() else []


def aside(machine: Machine) -> list[str]:
    """Return the notes in what was put aside."""
    found = (machine.folder / "files").glob("strange.gone-*")
    return [(each / "note").read_text() for each in found]


async def test_a_database_that_does_not_know_the_machine_has_nothing_removed(
    machine: Machine, strange: Path
) -> None:
    await machine.blobs.put("interns/strange/attempt/00000", b"under way")
    async with machine.interns.database.writing() as write:
        await write.execute(sa.delete(intern_machines))
    await machine.kill()
    await machine.running_intern()
    assert (strange / "note").read_text() == "kept"
    assert machine.logs.tail("strange", 1)
    assert list(machine.blobs.blobs) == ["interns/strange/attempt/00000"]


async def test_what_nobody_has_is_kept_aside_for_a_week(machine: Machine, strange: Path) -> None:
    assert notes_of(machine, strange.name) == ["kept"]
    await machine.kill()
    assert notes_of(machine, strange.name) == []
    assert aside(machine) == ["kept"]
    machine.interns.clock.advance(6 * DAY)
    await machine.kill()
    await machine.running_intern()
    assert aside(machine) == ["kept"]
    machine.interns.clock.advance(DAY)
    await machine.kill()
    await until(lambda: not aside(machine))


async def test_a_workspace_comes_back_with_its_intern(machine: Machine) -> None:
    intern = await machine.interns.create()
    path = machine.workspaces.path(intern.id)
    path.mkdir(parents=True)
    (path / "note").write_text("kept")
    machine.workspaces.put_aside([], machine.interns.clock.now())
    assert not path.exists()
    await machine.kill()
    assert (path / "note").read_text() == "kept"


async def test_unfinished_archives_of_nobody_are_removed_beside_the_work(
    machine: Machine,
) -> None:
    await machine.blobs.put("interns/strange/attempt/00000", b"half")
    await machine.kill()
    await until(lambda: not machine.blobs.blobs)

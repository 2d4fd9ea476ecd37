"""Interns keep running, and go on where a server ended, whatever ended it."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.component.interns.machine import Machine, hold
from tests.support.waiting import until, wait_for_event
from tollhouse.interns.lifecycle import BOOTING, FAILED, QUEUED, RUNNING, STOPPED
from tollhouse.interns.reconciler import MOST_RESTARTS
from tollhouse.interns.types import Operation
from tollhouse.storage.tables.interns import intern_machines


async def test_one_that_ends_again_and_again_has_failed(machine: Machine) -> None:
    intern = await machine.running_intern()
    for restarts in range(MOST_RESTARTS + 1):
        await machine.until(
            intern, lambda found, at=restarts: found.restarts == at and found.state == RUNNING
        )
        machine.runtime.running[0].end("a bug")
    failed = await machine.until_state(intern, FAILED)
    assert failed.last_failure_message == "its sandbox ended: a bug"
    assert machine.runtime.running == []
    assert await machine.active_key_hashes() == []


async def test_one_that_ran_well_in_between_is_started_anew_each_time(machine: Machine) -> None:
    intern = await machine.running_intern()
    ended = 0
    for _ in range(MOST_RESTARTS + 2):
        await until(lambda at=ended: len(machine.runtime.started) > at)
        await machine.until_state(intern, RUNNING)
        machine.interns.clock.advance(600)
        ended = len(machine.runtime.started)
        machine.runtime.running[0].end("a bug")
    await until(lambda: len(machine.runtime.started) > ended)
    assert (await machine.until_state(intern, RUNNING)).restarts == 1


async def test_whose_lease_is_lost_is_taken_down(machine: Machine) -> None:
    intern = await machine.running_intern()
    interns = machine.interns
    interns.clock.advance(31)
    other = await interns.lease(await interns.get(intern.id), machine.workspaces.machine)
    assert other is not None
    await machine.reconciler._extend()  # noqa: SLF001 - what it does every ten seconds
    await until(lambda: machine.sandboxes.get(intern.id) is None)
    assert machine.runtime.running == []
    assert (await interns.get(intern.id)).state == RUNNING


async def test_what_is_taken_down_is_taken_down_though_its_caller_goes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running_intern()
    sandbox = machine.runtime.running[0]
    begun, may_end = sandbox.slow_stop(monkeypatch)
    taking = asyncio.create_task(machine.sandboxes.take_down(intern.id, 5))
    await wait_for_event(begun)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert machine.sandboxes.get(intern.id) is not None
    may_end.set()
    await machine.sandboxes.take_down(intern.id, 0)
    assert sandbox.ended.done()


async def test_what_others_have_given_up_is_taken_down(machine: Machine) -> None:
    intern = await machine.running_intern()
    await machine.interns.set_state(intern, FAILED)
    machine.interns.notifications.notify(intern.id)
    await until(lambda: not machine.runtime.running)


async def test_a_server_that_stops_takes_them_down_and_the_next_has_them_run(
    machine: Machine,
) -> None:
    intern = await machine.running_intern()
    await machine.stop()
    assert machine.runtime.running == []
    assert (await machine.interns.get(intern.id)).state == QUEUED
    await machine.kill()
    again = await machine.until_state(intern, RUNNING)
    assert again.restarts == 0
    assert len(machine.runtime.running) == 1
    assert len(await machine.active_key_hashes()) == 1


async def test_nothing_is_said_to_run_that_a_killed_server_ran(machine: Machine) -> None:
    intern = await machine.running_intern()
    machine.runtime.held = asyncio.Event()
    await machine.kill()
    booting = await machine.interns.get(intern.id)
    assert booting.state in {QUEUED, BOOTING}
    machine.runtime.held.set()
    await machine.until_state(intern, RUNNING)


async def test_sockets_of_a_killed_server_are_removed(machine: Machine) -> None:
    (machine.folder / "run").mkdir(exist_ok=True)
    (machine.folder / "run" / "0123456789ab.sock").touch()
    await machine.kill()
    assert list((machine.folder / "run").iterdir()) == []


@pytest.mark.parametrize("step", [1, 2, 3, 4])
async def test_a_boot_goes_on_after_a_kill_at_any_step(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    with monkeypatch.context() as patch:
        held = {
            1: (machine.workspaces, "prepare"),
            2: (machine.egress, "open"),
            3: (machine.runtime, "start"),
            4: (machine.port_forwarder, "open"),
        }
        at_step = hold(patch, *held[step])
        intern = await machine.interns.create(provision=True)
        await wait_for_event(at_step)
        assert (await machine.interns.get(intern.id)).step == step
        patch.undo()
        await machine.kill()
    await machine.until_state(intern, RUNNING)
    assert len(machine.runtime.running) == 1
    assert len(await machine.active_key_hashes()) == 1
    assert list(machine.egress.open_for) == [intern.id]


@pytest.mark.parametrize(
    ("operation", "step"), [(Operation.SUSPEND, "digest"), (Operation.DELETE, "archive")]
)
async def test_an_operation_goes_on_after_a_kill(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, operation: Operation, step: str
) -> None:
    intern = await machine.running_intern()
    begun = hold(monkeypatch, machine.workspaces, step)
    asking = asyncio.create_task(machine.request(operation, intern))
    await wait_for_event(begun)
    asking.cancel()
    await machine.kill()
    if operation is Operation.DELETE:
        await machine.until_gone(intern)
    else:
        await machine.until_state(intern, STOPPED)
    assert machine.runtime.running == []
    assert await machine.active_key_hashes() == []


async def test_files_of_what_is_gone_are_removed_at_the_next_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running_intern()
    hold(monkeypatch, machine.workspaces, "remove")
    await machine.request(Operation.DELETE, intern)
    await machine.until_gone(intern)
    assert machine.workspace_names()
    assert machine.logs.tail(intern.id, 1)
    await machine.kill()
    assert not machine.logs.tail(intern.id, 1)
    await until(lambda: not machine.workspace_names())


async def test_a_server_that_stops_says_of_nobody_that_it_runs_while_it_takes_them_down(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running_intern()
    stopping, may_end = machine.runtime.running[0].slow_stop(monkeypatch)
    ending = asyncio.create_task(machine.reconciler.stop(0.1))
    await wait_for_event(stopping)
    assert (await machine.interns.get(intern.id)).state == QUEUED
    may_end.set()
    await ending


async def test_logs_of_what_is_gone_are_removed_at_the_next_start(machine: Machine) -> None:
    intern = await machine.running_intern()
    for name in (f"{intern.id}.log.1", "gone.log", "gone.log.1"):
        (machine.folder / "logs" / name).touch()
    await machine.kill()
    left = {path.name for path in (machine.folder / "logs").iterdir()}
    assert left == {f"{intern.id}.log", f"{intern.id}.log.1"}


async def test_a_stopping_server_accepts_nothing(machine: Machine) -> None:
    intern = await machine.interns.create()
    await machine.stop()
    with pytest.raises(Exception, match="Nobody runs interns at the moment"):
        await machine.request(Operation.PROVISION, intern)


async def test_what_became_of_an_intern_is_told(machine: Machine) -> None:
    intern = await machine.running_intern()
    machine.runtime.running[0].end("a bug")
    await machine.until(intern, lambda found: found.restarts == 1 and found.state == RUNNING)
    told = [line.text for line in machine.service.log(intern, 100)]
    boot = [
        "provisioning (1/4: Preparing the workspace)",
        "provisioning (2/4: Opening the way out)",
        "provisioning (3/4: Starting the sandbox)",
        "provisioning (4/4: Waiting for the daemon)",
        "running",
    ]
    assert told == [*boot, "its sandbox ended: a bug", *boot]


# What a start removes, puts aside and leaves alone of files that no intern has


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
    return [(each / "note").read_text() for each in folders_aside(machine)]


def folders_aside(machine: Machine) -> list[Path]:
    """Return what was put aside; while it is removed, its note may be gone already."""
    return list((machine.folder / "files").glob("strange.gone-*"))


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
    await until(lambda: not folders_aside(machine))


async def test_a_workspace_comes_back_with_its_intern(machine: Machine) -> None:
    intern = await machine.interns.create()
    path = machine.workspaces.path(intern.id)
    path.mkdir(parents=True)
    (path / "note").write_text("kept")
    machine.workspaces.put_aside([], machine.interns.clock.now())
    assert not path.exists()
    await machine.kill()
    assert (path / "note").read_text() == "kept"


async def test_unfinished_archives_of_nobody_are_removed_beside_the_work(machine: Machine) -> None:
    await machine.blobs.put("interns/strange/attempt/00000", b"half")
    await machine.kill()
    await until(lambda: not machine.blobs.blobs)

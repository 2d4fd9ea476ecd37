"""Several machines on one database: what is said of interns whose machine is away."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.component.interns.machine import AWAY, Machine
from tests.support.waiting import until
from tollhouse.interns import repository
from tollhouse.interns.lifecycle import FAILED, QUEUED, RUNNING, STOPPED
from tollhouse.interns.policy import ServiceUnreachable
from tollhouse.interns.service import InternService, NoReconciler
from tollhouse.interns.types import DesiredState, Intern, InternState, InternStatus, Operation

STOPPING = InternState(InternStatus.RUNNING, DesiredState.STOPPED)
BOOTING = InternState(InternStatus.PROVISIONING, DesiredState.RUNNING)


@pytest.fixture
async def other(machine: Machine, tmp_path: Path) -> AsyncIterator[Machine]:
    """Another server on the same database, with files of its own."""
    folder = tmp_path / "other"
    folder.mkdir()
    other = Machine(machine.interns, folder)
    await other.start()
    yield other
    await other.stop()


async def passes(machine: Machine, seconds: float, step: float = 10) -> None:
    """Let time pass for a machine that says all the time that it is there."""
    for _ in range(int(seconds / step)):
        machine.interns.clock.advance(step)
        await machine.reconciler._extend()  # noqa: SLF001 - what it does every ten seconds


async def placed(machine: Machine, state: InternState, *, where: str = "gone") -> Intern:
    """Return an intern whose files are on another machine, put into a state."""
    intern = await machine.interns.create()
    async with machine.interns.database.writing() as write:
        await repository.update_settings(write, intern.id, machine=where)
    return await machine.interns.set_state(intern, state)


@pytest.mark.parametrize("state", [RUNNING, QUEUED, BOOTING, STOPPING], ids=str)
async def test_what_is_not_running_any_more_on_a_machine_that_is_away_has_failed(
    machine: Machine, state: InternState
) -> None:
    intern = await placed(machine, state)
    await passes(machine, AWAY)
    failed = await machine.until_state(intern, FAILED)
    assert "does not answer" in str(failed.last_failure_message)


async def test_the_key_of_what_ran_on_a_machine_that_is_away_is_revoked(
    machine: Machine, other: Machine
) -> None:
    intern = await placed(machine, STOPPED, where=other.workspaces.machine)
    await machine.request(Operation.PROVISION, intern)
    await machine.until_state(intern, RUNNING)
    await other.stop()
    assert await machine.active_key_hashes() != []
    await passes(machine, AWAY + 10)
    assert (await machine.until_state(intern, FAILED)).run is None
    assert await machine.active_key_hashes() == []


async def test_nobody_is_judged_before_as_much_time_has_passed_here(machine: Machine) -> None:
    intern = await placed(machine, RUNNING)
    await passes(machine, AWAY - 10)
    async with machine.interns.database.reading() as read:
        now = machine.interns.clock.now()
        assert list(await repository.stranded(read, {}, now)) == [intern.id]
    assert (await machine.interns.get(intern.id)).state == RUNNING


async def test_a_machine_whose_clock_is_wrong_is_there_while_its_word_changes(
    machine: Machine,
) -> None:
    intern = await placed(machine, RUNNING, where="slow")
    for _ in range(20):
        behind = machine.interns.clock.now() - timedelta(hours=1)
        async with machine.interns.database.writing() as write:
            await repository.save_heartbeat(write, "slow", behind)
        await passes(machine, 10)
        await machine.reconciler._give_up_stranded(machine.interns.clock.now())  # noqa: SLF001
    assert (await machine.interns.get(intern.id)).state == RUNNING


async def test_a_machine_whose_clock_is_ahead_is_away_once_its_word_stays_the_same(
    machine: Machine,
) -> None:
    intern = await placed(machine, RUNNING, where="fast")
    async with machine.interns.database.writing() as write:
        ahead = machine.interns.clock.now() + timedelta(hours=1)
        await repository.save_heartbeat(write, "fast", ahead)
    await passes(machine, AWAY + 10)
    await machine.until_state(intern, FAILED)


async def test_a_machine_that_speaks_at_the_last_moment_keeps_its_interns(machine: Machine) -> None:
    intern = await placed(machine, RUNNING, where="back")
    clock, database = machine.interns.clock, machine.interns.database
    said = clock.now()
    async with database.writing() as write:
        await repository.save_heartbeat(write, "back", said + timedelta(seconds=1))
        held = await repository.acquire_stranded_lease(
            write, intern.id, {"back": said}, clock.now(), clock.now()
        )
    assert held is None


async def test_who_cannot_say_that_it_is_there_judges_nobody(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: sa.Connection) -> None:
        raise OSError

    monkeypatch.setattr(sa.Connection, "commit", failing)
    for _ in range(20):
        with pytest.raises(OSError):  # noqa: PT011 - the one above
            await passes(machine, 10)
    presence = machine.reconciler._presence  # noqa: SLF001
    assert presence.silent(machine.interns.clock.monotonic()) is None


async def test_after_a_failure_of_its_own_a_server_gives_others_their_time(
    machine: Machine,
) -> None:
    intern = await placed(machine, RUNNING)
    await passes(machine, AWAY - 10)
    machine.interns.clock.advance(AWAY)
    await passes(machine, AWAY - 10)
    assert (await machine.interns.get(intern.id)).state == RUNNING


async def test_what_runs_on_another_machine_goes_on(machine: Machine, other: Machine) -> None:
    intern = await other.interns.create(provision=True)
    await machine.until_state(intern, RUNNING)
    for _ in range(20):
        for each in (machine, other):
            await passes(each, 10)
    assert (await machine.interns.get(intern.id)).state == RUNNING


async def test_nothing_else_is_asked_of_a_machine_that_is_away(machine: Machine) -> None:
    stopped = await placed(machine, STOPPED)
    with pytest.raises(ServiceUnreachable, match="The machine that has the intern's files"):
        await machine.request(Operation.PROVISION, stopped)
    running = await machine.interns.set_state(stopped, RUNNING)
    with pytest.raises(ServiceUnreachable, match="The machine that has the intern's files"):
        await machine.request(Operation.SUSPEND, running)
    assert (await machine.interns.get(stopped.id)).state == RUNNING


async def test_a_machine_that_comes_back_has_its_interns_provisioned_again(
    machine: Machine, other: Machine
) -> None:
    intern = await placed(machine, RUNNING, where=other.workspaces.machine)
    await other.stop()
    await passes(machine, AWAY + 30)
    await machine.until_state(intern, FAILED)
    await other.kill()
    await other.request(Operation.PROVISION, intern)
    await other.until_state(intern, RUNNING)
    assert len(other.runtime.running) == 1


async def test_a_machine_that_comes_back_takes_down_what_has_failed_meanwhile(
    machine: Machine, other: Machine
) -> None:
    intern = await placed(machine, STOPPED, where=other.workspaces.machine)
    await machine.request(Operation.PROVISION, intern)
    await machine.until_state(intern, RUNNING)
    await passes(machine, AWAY + 40)
    await machine.until_state(intern, FAILED)
    await passes(other, 10)
    await until(lambda: not other.runtime.running)


async def test_a_command_without_a_server_asks_servers_elsewhere(machine: Machine) -> None:
    interns = machine.interns
    service = InternService(interns.context, NoReconciler(interns.clock), machine.logs)
    intern = await interns.create()
    await service.provision(interns.caller, intern.id)
    await machine.until_state(intern, RUNNING)
    await machine.stop()
    with pytest.raises(ServiceUnreachable, match="No server runs"):
        await service.provision(interns.caller, (await interns.create("bob")).id)

"""Interns get where they are wanted, whatever fails, and say truly where they are."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.interns.agency import PATIENCE, happened
from tollhouse.identity.policy import subject_of
from tollhouse.identity.types import NewKey
from tollhouse.interns import repository
from tollhouse.interns.health import is_healthy
from tollhouse.interns.lifecycle import BEGUN, FAILED, QUEUED, RUNS, STOPPED
from tollhouse.interns.reconciler import MOST_RESTARTS
from tollhouse.interns.types import Desired, Operation, State, Status
from tollhouse.kernel.errors import Invalid, NotFound, Unavailable
from tollhouse.kernel.secret import Secret
from tollhouse.storage.blobs.port import BlobsUnavailable
from tollhouse.testing.builders import OPERATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.integration.interns.machine import Machine, MadeUpSandbox
    from tollhouse.interns.runtimes.base import Launch
    from tollhouse.interns.types import Intern


# Booting


async def test_what_runs_is_counted_and_what_may_write_no_more(machine: Machine) -> None:
    await machine.running("ada")
    await machine.running("bob")
    machine.runtime.running[0].disk_full = True
    assert (machine.sandboxes.count(), machine.sandboxes.count_full()) == (2, 1)


async def test_an_intern_that_is_provisioned_runs(machine: Machine) -> None:
    intern = await machine.running()
    assert intern.hostname == "127.0.0.1"
    assert intern.run is not None
    assert intern.run.model == "simulated/agent"
    assert (intern.step, intern.last_failure_message) == (None, None)
    assert len(machine.runtime.running) == 1
    assert machine.runtime.running[0].launch.workspace.is_dir()


async def test_its_daemon_is_reached_with_its_token_alone(machine: Machine) -> None:
    intern = await machine.running()
    access = await machine.service.daemon(machine.agency.caller, intern.id)
    host, _, port = access.origin.removeprefix("http://").partition(":")
    for token, answer in ((access.token, b"HTTP/1.1 200"), (Secret("other"), b"HTTP/1.1 401")):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"GET /healthz HTTP/1.1\r\nAuthorization: Bearer {token.reveal()}\r\n\r\n".encode()
        )
        assert (await reader.read()).startswith(answer)
        writer.close()


async def test_the_steps_of_a_boot_are_seen(machine: Machine) -> None:
    machine.runtime.held = asyncio.Event()
    intern = await machine.agency.make(provision=True)
    booting = await machine.until(intern, lambda found: found.step == 3)
    assert booting.state == State(Status.PROVISIONING, Desired.RUNNING)
    machine.runtime.held.set()
    await machine.until_state(intern, RUNS)


async def test_a_boot_is_not_looked_for_again_while_it_goes_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.reconciler._round_seconds = 3_600  # noqa: SLF001 - only news wake it
    await machine.running("bob")
    looks: list[str] = []
    waiting = repository.waiting

    async def counted(*args: Any) -> Sequence[str]:
        looks.append("")
        return await waiting(*args)

    monkeypatch.setattr(repository, "waiting", counted)
    await machine.running()
    assert len(looks) == 1


async def test_its_key_is_its_own_and_known_to_the_proxy_alone(machine: Machine) -> None:
    intern = await machine.running()
    assert intern.run is not None
    assert await machine.keys() == [intern.run.key_hash]
    assert machine.egress.open_for[intern.id].who.intern_id == intern.id
    settings = str(machine.runtime.running[0].launch.settings)
    assert machine.text(intern).reveal() not in settings


async def test_an_intern_without_a_model_says_how_to_give_it_one(machine: Machine) -> None:
    await machine.agency.set_default_model(None)
    intern = await machine.agency.make(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert "workspaces set --default-model" in str(failed.last_failure_message)


async def test_its_own_model_comes_before_the_workspaces(machine: Machine) -> None:
    intern = await machine.agency.make()
    async with machine.agency.database.writing() as write:
        await machine.service.change(write, machine.agency.caller, intern.id, {"model": "a/b"})
    await machine.ask(Operation.PROVISION, intern)
    running = await machine.until_state(intern, RUNS)
    assert running.run is not None
    assert running.run.model == "a/b"


async def test_its_agent_is_told_whom_to_ask_and_what_it_is_for(machine: Machine) -> None:
    intern = await machine.agency.make()
    change = {"model": "a/b", "instructions": "Be brief."}
    async with machine.agency.database.writing() as write:
        await machine.service.change(write, machine.agency.caller, intern.id, change)
    await machine.ask(Operation.PROVISION, intern)
    await machine.until_state(intern, RUNS)
    assert machine.runtime.running[0].launch.settings["agent"] == {
        **change,
        "base_url": "http://gateway.internal/v1",
    }


async def test_what_is_missing_on_the_machine_is_said(machine: Machine) -> None:
    machine.runtime.missing = "bubblewrap is not installed: apt-get install bubblewrap"
    intern = await machine.agency.make(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert failed.last_failure_message == (
        "Preparing the workspace: bubblewrap is not installed: apt-get install bubblewrap"
    )
    machine.runtime.missing = None
    await machine.ask(Operation.PROVISION, intern)
    assert (await machine.until_state(intern, RUNS)).last_failure_message is None


async def test_a_sandbox_that_does_not_start_leaves_nothing(machine: Machine) -> None:
    machine.runtime.broken = "the kernel refused"
    intern = await machine.agency.make(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert failed.last_failure_message == "Starting the sandbox: the kernel refused"
    assert failed.run is None
    assert await machine.keys() == []
    assert machine.egress.open_for == {}
    assert machine.sandboxes.all() == ()
    assert list((machine.folder / "run").iterdir()) == []


async def test_a_proxy_that_does_not_serve_it_fails_the_boot(machine: Machine) -> None:
    machine.egress.broken = Unavailable("secret reason of ours")
    intern = await machine.agency.make(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert str(failed.last_failure_message).startswith("Opening the way out: ")
    assert "secret reason" not in str(failed.last_failure_message)


async def test_a_daemon_that_never_answers_fails_the_boot_at_its_deadline(machine: Machine) -> None:
    machine.runtime.healthy = False
    machine.paces = replace(machine.paces, boot_seconds=2)
    await machine.kill()
    intern = await machine.agency.make(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert failed.last_failure_message == (
        "Waiting for the daemon: it was not done within 2 seconds"
    )
    assert machine.runtime.running == []


async def test_a_daemon_that_ends_fails_the_boot_at_once(machine: Machine) -> None:
    machine.runtime.healthy = False
    intern = await machine.agency.make(provision=True)
    await machine.until(intern, lambda found: found.step == 4)
    machine.runtime.started[0].end("no memory was left")
    failed = await machine.until_state(intern, FAILED)
    assert failed.last_failure_message == (
        "Waiting for the daemon: the sandbox ended: no memory was left"
    )


async def test_a_full_disk_fails_the_boot(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/var/lib/secret-place")

    monkeypatch.setattr(machine.workspaces, "prepare", full)
    intern = await machine.agency.make(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert str(failed.last_failure_message).startswith("Preparing the workspace: ")
    assert "secret-place" not in str(failed.last_failure_message)


# Keeping it running


async def test_a_sandbox_that_ends_by_itself_is_started_anew(machine: Machine) -> None:
    intern = await machine.running()
    machine.runtime.running[0].end("a bug")
    await machine.until(intern, lambda found: found.restarts == 1 and found.state == RUNS)
    assert len(machine.runtime.running) == 1
    assert len(await machine.keys()) == 1


async def test_one_that_ends_again_and_again_has_failed(machine: Machine) -> None:
    intern = await machine.running()
    for restarts in range(MOST_RESTARTS + 1):
        await machine.until(
            intern, lambda found, at=restarts: found.restarts == at and found.state == RUNS
        )
        machine.runtime.running[0].end("a bug")
    failed = await machine.until_state(intern, FAILED)
    assert failed.last_failure_message == "its sandbox ended: a bug"
    assert machine.runtime.running == []
    assert await machine.keys() == []


async def test_one_that_ran_well_in_between_is_started_anew_each_time(machine: Machine) -> None:
    intern = await machine.running()
    ended = 0
    for _ in range(MOST_RESTARTS + 2):
        await machine.until_true(lambda at=ended: len(machine.runtime.started) > at)
        await machine.until_state(intern, RUNS)
        machine.agency.clock.advance(600)
        ended = len(machine.runtime.started)
        machine.runtime.running[0].end("a bug")
    await machine.until_true(lambda: len(machine.runtime.started) > ended)
    assert (await machine.until_state(intern, RUNS)).restarts == 1


async def test_whose_lease_is_lost_is_taken_down(machine: Machine) -> None:
    intern = await machine.running()
    agency = machine.agency
    agency.clock.advance(31)
    other = await agency.lease(await agency.get(intern.id), machine.workspaces.machine)
    assert other is not None
    await machine.reconciler._extend()  # noqa: SLF001 - what it does every ten seconds
    await machine.until_true(lambda: machine.sandboxes.get(intern.id) is None)
    assert machine.runtime.running == []
    assert (await agency.get(intern.id)).state == RUNS


async def test_what_is_taken_down_is_taken_down_though_its_caller_goes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running()
    sandbox = machine.runtime.running[0]
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(seconds: float) -> None:
        del seconds
        begun.set()
        await may_end.wait()
        sandbox.end("it was stopped")

    monkeypatch.setattr(sandbox, "stop", slow)
    taking = asyncio.create_task(machine.sandboxes.take_down(intern.id, 5))
    await happened(begun)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert machine.sandboxes.get(intern.id) is not None
    may_end.set()
    await machine.sandboxes.take_down(intern.id, 0)
    assert sandbox.ended.done()


async def test_what_others_have_given_up_is_taken_down(machine: Machine) -> None:
    intern = await machine.running()
    await machine.agency.put_into(intern, FAILED)
    machine.agency.news.ring(intern.id)
    await machine.until_true(lambda: not machine.runtime.running)


# Taking turns


async def test_who_waits_for_its_turn_to_boot_has_its_whole_time_after_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = machine.runtime.start
    begun: list[str] = []

    async def the_first_hangs(launch: Launch) -> MadeUpSandbox:
        begun.append(launch.name)
        if len(begun) == 1:
            await asyncio.Event().wait()
        return await start(launch)

    monkeypatch.setattr(machine.runtime, "start", the_first_hangs)
    machine.boots_at_once = 1
    await machine.kill()
    made = [await machine.agency.make(name, provision=True) for name in ("aa", "bb")]
    await machine.until_true(lambda: bool(begun))
    first, second = sorted(made, key=lambda intern: intern.id != begun[0])
    assert (await machine.agency.get(second.id)).state == QUEUED
    await machine.until_state(first, FAILED)
    await machine.until_state(second, RUNS)


async def test_no_more_boot_at_a_time_than_may(machine: Machine) -> None:
    machine.boots_at_once = 2
    await machine.kill()
    machine.runtime.held = asyncio.Event()
    made = [await machine.agency.make(name, provision=True) for name in ("aa", "bb", "cc", "dd")]
    steps: list[int | None] = []
    async with asyncio.timeout(PATIENCE):
        while steps.count(3) < 2:
            steps = [(await machine.agency.get(intern.id)).step for intern in made]
            await asyncio.sleep(0.005)
    assert steps.count(None) == 2
    machine.runtime.held.set()
    for intern in made:
        await machine.until_state(intern, RUNS)


# Suspending


async def test_a_suspended_intern_leaves_its_files_alone(machine: Machine) -> None:
    intern = await machine.running()
    (machine.workspaces.path(intern.id) / "note").write_text("kept")
    await machine.ask(Operation.SUSPEND, intern)
    stopped = await machine.agency.get(intern.id)
    assert stopped.state == STOPPED
    assert stopped.run is None
    assert stopped.workspace_digest is not None
    assert stopped.hostname == "127.0.0.1"
    assert machine.runtime.running == []
    assert await machine.keys() == []
    assert machine.egress.open_for == {}
    assert (machine.workspaces.path(intern.id) / "note").read_text() == "kept"


async def test_it_runs_again_with_another_token_and_another_text_of_its_key(
    machine: Machine,
) -> None:
    intern = await machine.running()
    text = machine.text(intern)
    assert await machine.opens(text)
    await machine.ask(Operation.SUSPEND, intern)
    assert not await machine.opens(text)
    await machine.ask(Operation.PROVISION, intern)
    again = await machine.until_state(intern, RUNS)
    assert intern.run is not None
    assert again.run is not None
    assert again.run.token_hash != intern.run.token_hash
    assert again.run.key_hash == intern.run.key_hash
    assert not await machine.opens(text)
    assert await machine.opens(machine.text(intern))


async def test_it_has_one_key_however_often_it_boots(machine: Machine) -> None:
    intern = await machine.running()
    [first] = await machine.kept_keys()
    for _ in range(2):
        await machine.ask(Operation.SUSPEND, intern)
        assert [key.hash for key in await machine.kept_keys()] == [first.hash]
        await machine.ask(Operation.PROVISION, intern)
        await machine.until_state(intern, RUNS)
    assert [key.hash for key in await machine.kept_keys()] == [first.hash]


async def test_a_key_that_a_manager_disabled_stays_so_at_the_next_boot(machine: Machine) -> None:
    intern = await machine.running()
    [key] = await machine.kept_keys()
    agency = machine.agency
    async with agency.database.writing() as write:
        await agency.office.identity.change_key(write, OPERATOR, key.hash, disabled=True)
    await machine.ask(Operation.SUSPEND, intern)
    await machine.ask(Operation.PROVISION, intern)
    await machine.until_state(intern, RUNS)
    assert not await machine.opens(machine.text(intern))


async def test_a_key_that_a_manager_deleted_is_made_anew_at_the_next_boot(machine: Machine) -> None:
    intern = await machine.running()
    [key] = await machine.kept_keys()
    agency = machine.agency
    async with agency.database.writing() as write:
        await agency.office.identity.delete_key(write, OPERATOR, key.hash)
    assert not await machine.opens(machine.text(intern))
    await machine.ask(Operation.SUSPEND, intern)
    await machine.ask(Operation.PROVISION, intern)
    await machine.until_state(intern, RUNS)
    assert await machine.opens(machine.text(intern))
    [made] = await machine.kept_keys()
    assert made.hash != key.hash


async def test_its_key_is_not_what_keeps_its_workspace(machine: Machine) -> None:
    intern = await machine.running()
    await machine.ask(Operation.SUSPEND, intern)
    agency = machine.agency
    identity, account = agency.office.identity, agency.caller.account_id
    with pytest.raises(Invalid, match="still has interns"):
        async with agency.database.writing() as write:
            await identity.delete_workspace(
                write, OPERATOR, account, intern.workspace_id, default_confirmed=True
            )


async def payer_of(machine: Machine, intern: Intern) -> str | None:
    """Return who answers for what the intern's key is used for."""
    text = machine.text(intern)
    return (await machine.agency.office.authenticator.authenticate(text.reveal())).payer_hash


async def test_who_had_it_run_answers_for_it(machine: Machine) -> None:
    intern = await machine.running()
    assert await payer_of(machine, intern) == machine.agency.caller.key_hash


async def test_who_has_it_run_again_answers_for_it_then(machine: Machine) -> None:
    intern = await machine.running()
    await machine.ask(Operation.SUSPEND, intern)
    agency = machine.agency
    async with agency.database.writing() as write:
        made = await agency.office.identity.create_key(
            write, OPERATOR, agency.caller.account_id, NewKey("other")
        )
    await machine.service.provision(subject_of(made.key), intern.id)
    await machine.until_state(intern, RUNS)
    assert await payer_of(machine, intern) == made.key.hash


async def test_an_intern_that_has_itself_run_does_not_answer_for_itself(machine: Machine) -> None:
    intern = await machine.running()
    own = await machine.agency.office.authenticator.authenticate(machine.text(intern).reveal())
    await machine.ask(Operation.SUSPEND, intern)
    await machine.service.provision(own, intern.id)
    await machine.until_state(intern, RUNS)
    assert await payer_of(machine, intern) == machine.agency.caller.key_hash


async def test_who_answers_for_it_stays_after_a_kill_and_a_restart(machine: Machine) -> None:
    intern = await machine.running()
    await machine.kill()
    await machine.until_state(intern, RUNS)
    assert await payer_of(machine, intern) == machine.agency.caller.key_hash
    machine.runtime.running[0].end("a bug")
    await machine.until(intern, lambda found: found.restarts == 1 and found.state == RUNS)
    assert await payer_of(machine, intern) == machine.agency.caller.key_hash


async def test_what_a_sandbox_wrote_before_a_kill_is_no_change_from_elsewhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running()
    await machine.ask(Operation.SUSPEND, intern)
    begun = asyncio.Event()

    async def never(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(machine.doors, "open", never)
    await machine.ask(Operation.PROVISION, intern)
    await happened(begun)
    (machine.workspaces.path(intern.id) / "log").write_text("the daemon's")
    await machine.kill()
    await machine.until_state(intern, RUNS)


async def test_files_that_changed_meanwhile_are_noticed_once(machine: Machine) -> None:
    intern = await machine.running()
    await machine.ask(Operation.SUSPEND, intern)
    (machine.workspaces.path(intern.id) / "note").write_text("from elsewhere")
    await machine.ask(Operation.PROVISION, intern)
    failed = await machine.until_state(intern, FAILED)
    assert "its files are not those" in str(failed.last_failure_message)
    await machine.ask(Operation.PROVISION, intern)
    await machine.until_state(intern, RUNS)


async def test_a_suspension_that_cannot_keep_the_files_has_failed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running()

    async def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(machine.workspaces, "flush", full)
    with pytest.raises(Exception, match="The intern was not suspended: Suspending: "):
        await machine.ask(Operation.SUSPEND, intern)
    assert (await machine.agency.get(intern.id)).state == FAILED


# Destroying


async def test_a_deleted_intern_is_gone_with_all_it_had(machine: Machine) -> None:
    intern = await machine.running()
    (machine.workspaces.path(intern.id) / "note").write_text("archived")
    await machine.ask(Operation.DELETE, intern)
    await machine.until_gone(intern)
    assert machine.runtime.running == []
    assert await machine.keys() == []
    await machine.until_true(lambda: not machine.workspaces.path(intern.id).exists())
    kept = [key.rpartition("/")[2] for key in machine.blobs.blobs]
    assert kept == ["00000", "manifest.json"]
    async with machine.agency.database.reading() as read:
        with pytest.raises(NotFound):
            await machine.agency.office.service.resolve(read, intern.id)


async def test_who_borrows_the_vault_of_a_deleted_intern_receives_no_secrets(
    machine: Machine,
) -> None:
    lender = await machine.agency.make("lender")
    borrower = await machine.agency.make("borrower", vault_id=lender.vault_id)
    await machine.ask(Operation.DELETE, lender)
    await machine.until_gone(lender)
    async with machine.agency.database.reading() as read:
        with pytest.raises(NotFound, match="attached vault"):
            await machine.agency.office.service.resolve(read, borrower.id)
    assert (await machine.agency.get(borrower.id)).attached_vault_id == lender.vault_id


async def test_one_that_never_ran_is_deleted_too(machine: Machine) -> None:
    intern = await machine.agency.make()
    await machine.ask(Operation.DELETE, intern)
    await machine.until_gone(intern)
    assert machine.blobs.blobs == {}


async def test_folders_that_are_nested_too_deep_keep_nobody_from_removing_it(
    machine: Machine,
) -> None:
    intern = await machine.running()
    path = machine.workspaces.path(intern.id)
    descriptor = os.open(path, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    await machine.ask(Operation.DELETE, intern)
    failed = await machine.until_status(intern, Status.DESTROY_FAILED)
    assert "workspace_archive_failed" in str(failed.last_failure_message)
    await machine.ask(Operation.DELETE, intern, acknowledged=True)
    await machine.until_gone(intern)
    await machine.until_true(lambda: not path.exists())


async def test_a_suspension_says_that_folders_are_nested_too_deep(machine: Machine) -> None:
    intern = await machine.running()
    machine.workspaces.path(intern.id).joinpath(*["d"] * 300).mkdir(parents=True)
    with pytest.raises(Exception, match="its folders are nested more than 256 deep"):
        await machine.ask(Operation.SUSPEND, intern)


async def test_a_suspension_says_that_there_are_too_many_files(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.workspaces, "_most", 3)
    intern = await machine.running()
    for number in range(4):
        (machine.workspaces.path(intern.id) / f"file-{number}").touch()
    with pytest.raises(Exception, match="it holds more than 3 files and folders"):
        await machine.ask(Operation.SUSPEND, intern)
    await machine.ask(Operation.DELETE, intern)
    failed = await machine.until_status(intern, Status.DESTROY_FAILED)
    assert "it holds more than 3 files and folders" in str(failed.last_failure_message)


async def test_a_suspension_that_goes_on_is_not_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.paces = replace(machine.paces, suspend_seconds=3)
    await machine.kill()
    intern = await machine.running()

    async def slowly(_: str, alive: Callable[[], None]) -> str:
        for _ in range(7):
            await asyncio.sleep(0.5)
            alive()
        return "0" * 64

    monkeypatch.setattr(machine.workspaces, "flush", slowly)
    await machine.ask(Operation.SUSPEND, intern)
    assert (await machine.agency.get(intern.id)).state == STOPPED


async def test_an_archive_that_goes_on_is_not_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.paces = replace(machine.paces, destroy_seconds=3)
    await machine.kill()
    intern = await machine.running()

    async def slowly(_: Intern, alive: Callable[[], None]) -> None:
        for _ in range(7):
            await asyncio.sleep(0.5)
            alive()

    monkeypatch.setattr(machine.workspaces, "archive", slowly)
    await machine.ask(Operation.DELETE, intern)
    await machine.until_gone(intern)


async def test_files_that_cannot_be_archived_keep_it(machine: Machine) -> None:
    machine.blobs.failures = dict.fromkeys(range(10), BlobsUnavailable("no store"))
    intern = await machine.running()
    await machine.ask(Operation.DELETE, intern)
    failed = await machine.until_status(intern, Status.DESTROY_FAILED)
    assert "workspace_archive_failed" in str(failed.last_failure_message)
    assert machine.workspaces.path(intern.id).exists()
    await machine.ask(Operation.DELETE, intern)
    await machine.until_status(intern, Status.DESTROY_FAILED)
    await machine.ask(Operation.DELETE, intern, acknowledged=True)
    await machine.until_gone(intern)


async def test_a_store_that_hangs_does_not_keep_it_under_way(machine: Machine) -> None:
    machine.paces = replace(machine.paces, destroy_seconds=0.5)
    await machine.kill()
    machine.blobs.may_put.clear()
    intern = await machine.running()
    await machine.ask(Operation.DELETE, intern)
    failed = await machine.until_status(intern, Status.DESTROY_FAILED)
    assert "workspace_archive_failed" in str(failed.last_failure_message)


async def test_the_files_of_what_is_gone_are_removed_though_leases_are_kept_meanwhile(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running()
    remove = machine.workspaces.remove
    begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow(intern_id: str) -> None:
        begun.set()
        await may_go_on.wait()
        await remove(intern_id)

    monkeypatch.setattr(machine.workspaces, "remove", slow)
    await machine.ask(Operation.DELETE, intern)
    await happened(begun)
    await machine.reconciler._extend()  # noqa: SLF001 - what it does every ten seconds
    may_go_on.set()
    await machine.until_true(lambda: not machine.workspaces.path(intern.id).exists())


# Servers that come and go


async def test_nothing_is_said_to_run_that_a_killed_server_ran(machine: Machine) -> None:
    intern = await machine.running()
    machine.runtime.held = asyncio.Event()
    await machine.kill()
    booting = await machine.agency.get(intern.id)
    assert booting.state in {QUEUED, BEGUN}
    machine.runtime.held.set()
    await machine.until_state(intern, RUNS)


async def test_a_server_that_stops_takes_them_down_and_the_next_has_them_run(
    machine: Machine,
) -> None:
    intern = await machine.running()
    await machine.stop()
    assert machine.runtime.running == []
    assert (await machine.agency.get(intern.id)).state == QUEUED
    await machine.kill()
    again = await machine.until_state(intern, RUNS)
    assert again.restarts == 0
    assert len(machine.runtime.running) == 1
    assert len(await machine.keys()) == 1


@pytest.mark.parametrize("step", [1, 2, 3, 4])
async def test_a_boot_goes_on_after_a_kill_at_any_step(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    at_step = asyncio.Event()

    async def never(*_: object, **__: object) -> None:
        at_step.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        hold = {
            1: (machine.workspaces, "prepare"),
            2: (machine.egress, "open"),
            3: (machine.runtime, "start"),
            4: (machine.doors, "open"),
        }
        patch.setattr(*hold[step], never)
        intern = await machine.agency.make(provision=True)
        await happened(at_step)
        assert (await machine.agency.get(intern.id)).step == step
        patch.undo()
        await machine.kill()
    await machine.until_state(intern, RUNS)
    assert len(machine.runtime.running) == 1
    assert len(await machine.keys()) == 1
    assert list(machine.egress.open_for) == [intern.id]


async def test_a_suspension_goes_on_after_a_kill(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running()
    begun = asyncio.Event()

    async def never(*_: object) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(machine.workspaces, "flush", never)
    asking = asyncio.create_task(machine.ask(Operation.SUSPEND, intern))
    await happened(begun)
    asking.cancel()
    await machine.kill()
    await machine.until_state(intern, STOPPED)
    assert machine.runtime.running == []
    assert await machine.keys() == []


async def test_a_removal_goes_on_after_a_kill(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running()
    begun = asyncio.Event()

    async def never(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(machine.workspaces, "archive", never)
    await machine.ask(Operation.DELETE, intern)
    await happened(begun)
    await machine.kill()
    await machine.until_gone(intern)
    assert await machine.keys() == []


async def test_files_of_what_is_gone_are_removed_at_the_next_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running()

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(machine.workspaces, "remove", never)
    await machine.ask(Operation.DELETE, intern)
    await machine.until_gone(intern)
    assert machine.workspaces.path(intern.id).exists()
    assert machine.logs.tail(intern.id, 1)
    await machine.kill()
    assert not machine.workspaces.path(intern.id).exists()
    assert not machine.logs.tail(intern.id, 1)


async def test_sockets_of_a_killed_server_are_removed(machine: Machine) -> None:
    (machine.folder / "run").mkdir(exist_ok=True)
    (machine.folder / "run" / "0123456789ab.sock").touch()
    await machine.kill()
    assert list((machine.folder / "run").iterdir()) == []


async def test_a_server_that_stops_says_of_nobody_that_it_runs_while_it_takes_them_down(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running()
    sandbox = machine.runtime.running[0]
    stopping, may_end = asyncio.Event(), asyncio.Event()

    async def slow(seconds: float) -> None:
        del seconds
        stopping.set()
        await may_end.wait()
        sandbox.end("it was stopped")

    monkeypatch.setattr(sandbox, "stop", slow)
    ending = asyncio.create_task(machine.reconciler.stop(0.1))
    await happened(stopping)
    assert (await machine.agency.get(intern.id)).state == QUEUED
    may_end.set()
    await ending


async def test_logs_of_what_is_gone_are_removed_at_the_next_start(machine: Machine) -> None:
    intern = await machine.running()
    for name in (f"{intern.id}.log.1", "gone.log", "gone.log.1"):
        (machine.folder / "logs" / name).touch()
    await machine.kill()
    left = {path.name for path in (machine.folder / "logs").iterdir()}
    assert left == {f"{intern.id}.log", f"{intern.id}.log.1"}


async def test_a_stopping_server_accepts_nothing(machine: Machine) -> None:
    intern = await machine.agency.make()
    await machine.stop()
    with pytest.raises(Exception, match="Nobody runs interns at the moment"):
        await machine.ask(Operation.PROVISION, intern)


async def test_daemons_are_asked_over_their_own_socket(machine: Machine) -> None:
    intern = await machine.running()
    running = machine.sandboxes.get(intern.id)
    assert running is not None
    assert running.listener is not None
    assert await is_healthy(running.listener, Secret("any"))
    assert not await is_healthy(machine.folder / "nowhere.sock", Secret("any"))
    async with machine.agency.database.reading() as read:
        assert await repository.ids(read) == {intern.id}


async def test_what_became_of_an_intern_is_told(machine: Machine) -> None:
    intern = await machine.running()
    machine.runtime.running[0].end("a bug")
    await machine.until(intern, lambda found: found.restarts == 1 and found.state == RUNS)
    told = [line.text for line in machine.service.log(intern, 100)]
    boot = [
        "provisioning (1/4: Preparing the workspace)",
        "provisioning (2/4: Opening the way out)",
        "provisioning (3/4: Starting the sandbox)",
        "provisioning (4/4: Waiting for the daemon)",
        "running",
    ]
    assert told == [*boot, "its sandbox ended: a bug", *boot]

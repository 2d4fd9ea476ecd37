"""Interns boot, are suspended and deleted, and say why where they cannot."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.component.interns.machine import FakeSandbox, Machine, hold
from tests.support.loop_time import LoopTime
from tests.support.waiting import WAIT_SECONDS, until, wait_for_event
from tollhouse.interns.lifecycle import FAILED, QUEUED, RUNNING, STOPPED
from tollhouse.interns.runtimes.base import Launch
from tollhouse.interns.types import Intern, InternStatus, Operation
from tollhouse.kernel.errors import Unavailable
from tollhouse.storage.blobs import BlobsUnavailable


async def test_what_runs_is_counted_and_what_may_write_no_more(machine: Machine) -> None:
    await machine.running_intern("ada")
    await machine.running_intern("bob")
    machine.runtime.running[0].disk_full = True
    assert (machine.sandboxes.count(), machine.sandboxes.count_full()) == (2, 1)


async def test_its_agent_is_told_whom_to_ask_and_what_it_is_for(machine: Machine) -> None:
    intern = await machine.interns.create()
    change = {"model": "a/b", "instructions": "Be brief."}
    async with machine.interns.database.writing() as write:
        await machine.service.change(write, machine.interns.caller, intern.id, change)
    await machine.request(Operation.PROVISION, intern)
    await machine.until_state(intern, RUNNING)
    assert machine.runtime.running[0].launch.settings["agent"] == {
        **change,
        "base_url": "http://gateway.internal/v1",
    }


def is_full(machine: Machine, patch: pytest.MonkeyPatch) -> None:
    async def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/var/lib/secret-place")

    patch.setattr(machine.workspaces, "prepare", full)


def has_no_proxy(machine: Machine, _: object) -> None:
    machine.egress.broken = Unavailable("secret reason of ours")


def starts_no_sandbox(machine: Machine, _: object) -> None:
    machine.runtime.broken = "the kernel refused"


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (is_full, "Preparing the workspace: "),
        (has_no_proxy, "Opening the way out: "),
        (starts_no_sandbox, "Starting the sandbox: the kernel refused"),
    ],
)
async def test_a_boot_that_fails_says_where_and_leaves_nothing(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    fails: Callable[[Machine, pytest.MonkeyPatch], None],
    told: str,
) -> None:
    fails(machine, monkeypatch)
    intern = await machine.interns.create(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert str(failed.last_failure_message).startswith(told)
    assert "secret" not in str(failed.last_failure_message)
    assert failed.run is None
    assert await machine.active_key_hashes() == []
    assert machine.egress.open_for == {}
    assert machine.sandboxes.all() == ()
    assert list((machine.folder / "run").glob("*")) == []


async def test_a_daemon_that_never_answers_fails_the_boot_at_its_deadline(machine: Machine) -> None:
    machine.runtime.healthy = False
    machine.timeouts = replace(machine.timeouts, boot_seconds=0.5)
    await machine.kill()
    intern = await machine.interns.create(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert failed.last_failure_message == (
        "Waiting for the daemon: it was not done within 0.5 seconds"
    )
    assert machine.runtime.running == []


async def test_a_daemon_that_ends_fails_the_boot_at_once(machine: Machine) -> None:
    machine.runtime.healthy = False
    intern = await machine.interns.create(provision=True)
    await machine.until(intern, lambda found: found.step == 4)
    machine.runtime.started[0].end("no memory was left")
    failed = await machine.until_state(intern, FAILED)
    assert failed.last_failure_message == (
        "Waiting for the daemon: the sandbox ended: no memory was left"
    )


async def test_who_waits_for_its_turn_to_boot_has_its_whole_time_after_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = machine.runtime.start
    begun: list[str] = []

    async def the_first_hangs(launch: Launch) -> FakeSandbox:
        begun.append(launch.name)
        if len(begun) == 1:
            await asyncio.Event().wait()
        return await start(launch)

    monkeypatch.setattr(machine.runtime, "start", the_first_hangs)
    machine.boots_at_once = 1
    await machine.kill()
    made = [await machine.interns.create(name, provision=True) for name in ("aa", "bb")]
    time = LoopTime(monkeypatch)
    await until(lambda: bool(begun))
    first, second = sorted(made, key=lambda intern: intern.id != begun[0])
    assert (await machine.interns.get(second.id)).state == QUEUED
    await time.advance(machine.timeouts.boot_seconds)
    await machine.until_state(first, FAILED)
    await machine.until_state(second, RUNNING)


async def test_no_more_boot_at_a_time_than_may(machine: Machine) -> None:
    machine.boots_at_once = 2
    await machine.kill()
    machine.runtime.held = asyncio.Event()
    made = [await machine.interns.create(name, provision=True) for name in ("aa", "bb", "cc", "dd")]
    steps: list[int | None] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while steps.count(3) < 2:
            steps = [(await machine.interns.get(intern.id)).step for intern in made]
            await asyncio.sleep(0.005)
    assert steps.count(None) == 2
    machine.runtime.held.set()
    for intern in made:
        await machine.until_state(intern, RUNNING)


# Suspended interns keep their files, and say why where they cannot


async def test_what_a_sandbox_wrote_before_a_kill_is_no_change_from_elsewhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running_intern()
    await machine.request(Operation.SUSPEND, intern)
    begun = hold(monkeypatch, machine.port_forwarder, "open")
    await machine.request(Operation.PROVISION, intern)
    await wait_for_event(begun)
    (machine.workspaces.path(intern.id) / "log").write_text("the daemon's")
    await machine.kill()
    await machine.until_state(intern, RUNNING)


async def test_files_that_changed_meanwhile_are_noticed_once(machine: Machine) -> None:
    intern = await machine.running_intern()
    await machine.request(Operation.SUSPEND, intern)
    (machine.workspaces.path(intern.id) / "note").write_text("from elsewhere")
    await machine.request(Operation.PROVISION, intern)
    failed = await machine.until_state(intern, FAILED)
    assert "its files are not those" in str(failed.last_failure_message)
    await machine.request(Operation.PROVISION, intern)
    await machine.until_state(intern, RUNNING)


async def test_a_suspension_that_cannot_keep_the_files_has_failed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running_intern()

    async def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(machine.workspaces, "digest", full)
    with pytest.raises(Exception, match="The intern was not suspended: Suspending: "):
        await machine.request(Operation.SUSPEND, intern)
    assert (await machine.interns.get(intern.id)).state == FAILED


async def test_a_suspension_that_goes_on_is_not_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = LoopTime(monkeypatch)
    intern = await machine.running_intern()

    async def slowly(_: str, alive: Callable[[], None], **__: object) -> str:
        for _ in range(4):
            await time.advance(machine.timeouts.suspend_seconds / 2)
            alive()
        return "0" * 64

    monkeypatch.setattr(machine.workspaces, "digest", slowly)
    await machine.request(Operation.SUSPEND, intern)
    assert (await machine.interns.get(intern.id)).state == STOPPED


# Deleted interns are gone with all they had, but for an archive


async def test_folders_nested_beyond_any_path_keep_nobody_from_archiving_and_removing_it(
    machine: Machine,
) -> None:
    intern = await machine.running_intern()
    path = machine.workspaces.path(intern.id)
    descriptor = os.open(path, os.O_RDONLY)
    for _ in range(2_500):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    await machine.request(Operation.DELETE, intern)
    await machine.until_gone(intern)
    await until(lambda: not machine.workspace_names())
    kept = [key.rpartition("/")[2] for key in machine.blobs.blobs]
    assert kept == ["00000", "manifest.json"]


async def test_an_archive_that_goes_on_is_not_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = LoopTime(monkeypatch)
    intern = await machine.running_intern()

    async def slowly(_: Intern, alive: Callable[[], None]) -> None:
        for _ in range(4):
            await time.advance(machine.timeouts.destroy_seconds / 2)
            alive()

    monkeypatch.setattr(machine.workspaces, "archive", slowly)
    await machine.request(Operation.DELETE, intern)
    await machine.until_gone(intern)


async def test_files_that_cannot_be_archived_keep_it(machine: Machine) -> None:
    machine.blobs.failures = dict.fromkeys(range(10), BlobsUnavailable("no store"))
    intern = await machine.running_intern()
    await machine.request(Operation.DELETE, intern)
    failed = await machine.until_status(intern, InternStatus.DESTROY_FAILED)
    assert "workspace_archive_failed" in str(failed.last_failure_message)
    assert machine.workspaces.path(intern.id).exists()
    await machine.request(Operation.DELETE, intern)
    await machine.until_status(intern, InternStatus.DESTROY_FAILED)
    await machine.request(Operation.DELETE, intern, acknowledged=True)
    await machine.until_gone(intern)


async def test_a_store_that_hangs_does_not_keep_it_under_way(machine: Machine) -> None:
    machine.timeouts = replace(machine.timeouts, destroy_seconds=0.5)
    await machine.kill()
    machine.blobs.may_put.clear()
    intern = await machine.running_intern()
    await machine.request(Operation.DELETE, intern)
    failed = await machine.until_status(intern, InternStatus.DESTROY_FAILED)
    assert "workspace_archive_failed" in str(failed.last_failure_message)


async def test_the_files_of_what_is_gone_are_removed_though_leases_are_kept_meanwhile(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running_intern()
    remove = machine.workspaces.remove
    begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow(intern_id: str) -> None:
        begun.set()
        await may_go_on.wait()
        await remove(intern_id)

    monkeypatch.setattr(machine.workspaces, "remove", slow)
    await machine.request(Operation.DELETE, intern)
    await wait_for_event(begun)
    await machine.reconciler._extend()  # noqa: SLF001 - what it does every ten seconds
    may_go_on.set()
    await until(lambda: not machine.workspace_names())


async def test_one_that_could_not_be_deleted_can_be_later(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running_intern()

    async def broken(*_: object) -> None:
        raise OSError(5, "the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(type(machine.interns.context.keys), "delete", broken)
        await machine.request(Operation.DELETE, intern)
        await machine.until_status(intern, InternStatus.DESTROY_FAILED)
    await machine.request(Operation.DELETE, intern)
    await machine.until_gone(intern)
    await until(lambda: not machine.workspace_names())

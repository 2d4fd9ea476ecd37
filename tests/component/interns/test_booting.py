"""Interns boot, in turns, and say why where they cannot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.support.loop_time import LoopTime
from tests.support.waiting import WAIT_SECONDS, until
from tollhouse.interns.lifecycle import FAILED, QUEUED, RUNNING
from tollhouse.interns.types import Operation
from tollhouse.kernel.errors import Unavailable

if TYPE_CHECKING:
    import pytest

    from tests.component.interns.machine import FakeSandbox, Machine
    from tollhouse.interns.runtimes.base import Launch


async def test_what_runs_is_counted_and_what_may_write_no_more(machine: Machine) -> None:
    await machine.running_intern("ada")
    await machine.running_intern("bob")
    machine.runtime.running[0].disk_full = True
    assert (machine.sandboxes.count(), machine.sandboxes.count_full()) == (2, 1)


async def test_an_intern_without_a_model_says_how_to_give_it_one(machine: Machine) -> None:
    await machine.interns.set_default_model(None)
    intern = await machine.interns.create(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert "workspaces set --default-model" in str(failed.last_failure_message)


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


async def test_what_is_missing_on_the_machine_is_said(machine: Machine) -> None:
    machine.runtime.missing = "bubblewrap is not installed: apt-get install bubblewrap"
    intern = await machine.interns.create(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert failed.last_failure_message == (
        "Preparing the workspace: bubblewrap is not installed: apt-get install bubblewrap"
    )
    machine.runtime.missing = None
    await machine.request(Operation.PROVISION, intern)
    assert (await machine.until_state(intern, RUNNING)).last_failure_message is None


async def test_a_sandbox_that_does_not_start_leaves_nothing(machine: Machine) -> None:
    machine.runtime.broken = "the kernel refused"
    intern = await machine.interns.create(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert failed.last_failure_message == "Starting the sandbox: the kernel refused"
    assert failed.run is None
    assert await machine.active_key_hashes() == []
    assert machine.egress.open_for == {}
    assert machine.sandboxes.all() == ()
    assert list((machine.folder / "run").iterdir()) == []


async def test_a_proxy_that_does_not_serve_it_fails_the_boot(machine: Machine) -> None:
    machine.egress.broken = Unavailable("secret reason of ours")
    intern = await machine.interns.create(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert str(failed.last_failure_message).startswith("Opening the way out: ")
    assert "secret reason" not in str(failed.last_failure_message)


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


async def test_a_full_disk_fails_the_boot(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/var/lib/secret-place")

    monkeypatch.setattr(machine.workspaces, "prepare", full)
    intern = await machine.interns.create(provision=True)
    failed = await machine.until_state(intern, FAILED)
    assert str(failed.last_failure_message).startswith("Preparing the workspace: ")
    assert "secret-place" not in str(failed.last_failure_message)


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

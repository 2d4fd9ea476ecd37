"""Suspended interns keep their files, and say why where they cannot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.loop_time import LoopTime
from tests.support.waiting import wait_for_event
from tollhouse.interns.lifecycle import FAILED, RUNNING, STOPPED
from tollhouse.interns.types import Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.component.interns.machine import Machine


async def test_a_suspended_intern_leaves_its_files_alone(machine: Machine) -> None:
    intern = await machine.running_intern()
    (machine.workspaces.path(intern.id) / "note").write_text("kept")
    await machine.request(Operation.SUSPEND, intern)
    stopped = await machine.interns.get(intern.id)
    assert stopped.state == STOPPED
    assert stopped.run is None
    assert stopped.workspace_digest is not None
    assert stopped.hostname == "127.0.0.1"
    assert machine.runtime.running == []
    assert await machine.active_key_hashes() == []
    assert machine.egress.open_for == {}
    assert (machine.workspaces.path(intern.id) / "note").read_text() == "kept"


async def test_what_a_sandbox_wrote_before_a_kill_is_no_change_from_elsewhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await machine.running_intern()
    await machine.request(Operation.SUSPEND, intern)
    begun = asyncio.Event()

    async def never(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(machine.port_forwarder, "open", never)
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

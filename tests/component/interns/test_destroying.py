"""Deleted interns are gone with all they had, but for an archive."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.support.loop_time import LoopTime
from tests.support.waiting import until, wait_for_event
from tollhouse.interns.types import InternStatus, Operation
from tollhouse.storage.blobs import BlobsUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.component.interns.machine import Machine
    from tollhouse.interns.types import Intern


async def test_one_that_never_ran_is_deleted_too(machine: Machine) -> None:
    intern = await machine.interns.create()
    await machine.request(Operation.DELETE, intern)
    await machine.until_gone(intern)
    assert machine.blobs.blobs == {}


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

"""What is remembered of what names mean is as old as it may be, and never older."""

import asyncio

import pytest

from tests.component.vault.vault_fixture import VaultFixture
from tollhouse.kernel.errors import NotFound
from tollhouse.vault.disclosures import ResolutionCache


def aged(vault: VaultFixture, seconds: float | None) -> ResolutionCache:
    return ResolutionCache(vault.database, vault.service, vault.clock, max_age_seconds=seconds)


async def test_what_others_changed_counts_once_it_is_too_old(vault: VaultFixture) -> None:
    intern = await vault.intern()
    here = aged(vault, 1.0)
    assert await here.of(intern.id) == {}
    await vault.put("token", intern=intern)  # by another process, which tells nothing here
    assert await here.of(intern.id) == {}
    vault.clock.advance(1.1)
    assert list(await here.of(intern.id)) == ["token"]


async def test_where_nobody_else_writes_it_does_not_get_old(vault: VaultFixture) -> None:
    intern = await vault.intern()
    here = aged(vault, None)
    first = await here.of(intern.id)
    vault.clock.advance(1_000_000)
    assert await here.of(intern.id) is first


async def test_a_reading_during_a_change_is_not_remembered(
    vault: VaultFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await vault.intern()
    here = aged(vault, None)
    whole, may_go_on, has_read = vault.service.resolve, asyncio.Event(), asyncio.Event()

    async def slow(*given: object) -> object:
        found = await whole(*given)  # pyright: ignore[reportArgumentType]
        has_read.set()
        await may_go_on.wait()
        return found

    monkeypatch.setattr(vault.service, "resolve", slow)
    reading = asyncio.create_task(here.of(intern.id))
    await has_read.wait()
    monkeypatch.undo()
    stored = await vault.put("token", intern=intern)
    here.forget(stored.vault_id)
    may_go_on.set()
    assert await reading == {}
    assert list(await here.of(intern.id)) == ["token"]


async def test_many_interns_do_not_fill_the_memory(
    vault: VaultFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollhouse.vault.disclosures.MOST_REMEMBERED", 2)
    interns = [await vault.intern() for _ in range(4)]
    here = aged(vault, None)
    first = [await here.of(intern.id) for intern in interns]
    assert await here.of(interns[-1].id) is first[-1]
    assert await here.of(interns[0].id) is not first[0]


async def test_an_intern_that_is_not_there_is_unknown(vault: VaultFixture) -> None:
    with pytest.raises(NotFound):
        await vault.resolutions.of("nobody")

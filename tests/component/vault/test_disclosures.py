"""Disclosing values: as resolved, on the record first, and not at all where that fails."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.component.vault.vault_fixture import HOSTS, Intern, VaultFixture
from tollhouse.audit.types import AuditAction, AuditEntry
from tollhouse.kernel.errors import NotFound, Unavailable
from tollhouse.storage.database import Write
from tollhouse.vault.disclosures import DisclosureDenied, Disclosures
from tollhouse.vault.types import Recipient, Resolved, StoredSecret, Verdict

HOST = HOSTS[0]


@pytest.fixture
def disclosures(vault: VaultFixture) -> Disclosures:
    return Disclosures(vault.context, vault.service, vault.resolutions)


def recipient(vault: VaultFixture, intern: Intern | None = None) -> Recipient:
    caller = vault.caller
    intern_id = None if intern is None else intern.id
    return Recipient(caller.account_id, caller.workspace_id, intern_id, caller.key_hash)


async def disclosed(
    disclosures: Disclosures, who: Recipient, *names: str, host: str = HOST
) -> dict[str, str]:
    found = await disclosures.disclose(who, host, names)
    return {secret.name: value.reveal() for secret, value in found}


def is_current(
    disclosures: Disclosures, resolved: Mapping[str, Resolved], host: str, secret: StoredSecret
) -> bool:
    return disclosures.is_current(resolved, host, secret.name, secret.vault_id, secret.version)


async def entries(vault: VaultFixture) -> list[AuditEntry]:
    rows = await vault.audit_rows()
    return [row.entry for row in rows if row.entry.action is AuditAction.SECRET_RELEASED]


async def test_each_release_is_a_row_of_the_record(
    vault: VaultFixture, disclosures: Disclosures
) -> None:
    intern = await vault.intern()
    await vault.put("token", intern=intern)
    stored = await vault.put("token", intern=intern)
    await disclosed(disclosures, recipient(vault, intern), "token")
    (entry,) = await entries(vault)
    assert (entry.name, entry.version, entry.vault_id) == ("token", 2, stored.vault_id)
    assert (entry.intern_id, entry.hosts, entry.verdict) == (intern.id, (HOST,), "done")
    assert entry.actor == vault.caller.key_hash
    assert await vault.audit_fault() is None


@pytest.mark.parametrize(
    ("name", "host", "verdict"),
    [("token", "other.example", Verdict.OTHER_HOST), ("none", HOST, Verdict.UNKNOWN_NAME)],
    ids=["other host", "unknown name"],
)
async def test_what_is_withheld_is_a_row_too(
    vault: VaultFixture, disclosures: Disclosures, name: str, host: str, verdict: Verdict
) -> None:
    await vault.put("token")
    await vault.put("fine", hosts=(HOST, "other.example"))
    with pytest.raises(DisclosureDenied) as withheld:
        await disclosed(disclosures, recipient(vault), "fine", name, host=host)
    assert withheld.value.verdict is verdict
    assert [(e.name, e.verdict, e.hosts) for e in await entries(vault)] == [
        (name, verdict.value, (host,))
    ]


async def test_nothing_is_released_that_cannot_be_recorded(
    vault: VaultFixture, disclosures: Disclosures, monkeypatch: pytest.MonkeyPatch
) -> None:
    await vault.put("token")

    async def fails(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(vault.audit, "record", fails)
    with pytest.raises(Unavailable):
        await disclosed(disclosures, recipient(vault), "token")
    monkeypatch.undo()
    assert await entries(vault) == []
    assert await disclosed(disclosures, recipient(vault), "token") == {"token": "value"}


async def test_requests_that_wait_share_a_transaction(
    vault: VaultFixture, disclosures: Disclosures, monkeypatch: pytest.MonkeyPatch
) -> None:
    await vault.put("token")
    groups: list[int] = []
    record = vault.audit.record

    async def counted(write: Write, chain: str, some: Sequence[AuditEntry]) -> None:
        groups.append(len(some))
        await record(write, chain, some)

    monkeypatch.setattr(vault.audit, "record", counted)
    who = recipient(vault)
    found = await asyncio.gather(*(disclosed(disclosures, who, "token") for _ in range(20)))
    assert found == [{"token": "value"}] * 20
    assert sum(groups) == len(await entries(vault)) == 20
    assert len(groups) < 10  # how many wait together is the machine's affair
    assert await vault.audit_fault() is None


async def test_a_secret_that_changes_meanwhile_is_released_as_it_is_then(
    vault: VaultFixture, disclosures: Disclosures, monkeypatch: pytest.MonkeyPatch
) -> None:
    await vault.put("token", "old")
    open_ = vault.service.open

    async def slow(secret: Any) -> Any:
        found = await open_(secret)
        if secret.version == 1:
            await vault.put("token", "new")
        return found

    monkeypatch.setattr(vault.service, "open", slow)
    assert await disclosed(disclosures, recipient(vault), "token") == {"token": "new"}
    assert [entry.version for entry in await entries(vault)] == [2]


async def test_a_secret_that_is_deleted_meanwhile_is_not_released(
    vault: VaultFixture, disclosures: Disclosures, monkeypatch: pytest.MonkeyPatch
) -> None:
    await vault.put("token")
    open_ = vault.service.open

    async def slow(secret: Any) -> Any:
        found = await open_(secret)
        await vault.delete("token")
        return found

    monkeypatch.setattr(vault.service, "open", slow)
    with pytest.raises(DisclosureDenied):
        await disclosed(disclosures, recipient(vault), "token")
    assert [entry.verdict for entry in await entries(vault)] == ["unknown_name"]


async def test_nothing_is_released_outside_the_programme(
    vault: VaultFixture, disclosures: Disclosures
) -> None:
    await vault.put("token")
    await vault.set_switches(intern_programme=False)
    with pytest.raises(NotFound):
        await disclosed(disclosures, recipient(vault), "token")
    assert await entries(vault) == []


async def test_a_release_stands_until_its_secret_changes(
    vault: VaultFixture, disclosures: Disclosures
) -> None:
    who = recipient(vault)
    stored = await vault.put("token")
    resolved = await vault.resolutions.of_recipient(who)
    assert is_current(disclosures, resolved, HOST, stored)
    assert not is_current(disclosures, resolved, "other.example", stored)
    assert not is_current(disclosures, resolved, HOST, replace(stored, vault_id="another"))
    await vault.put("token")
    resolved = await vault.resolutions.of_recipient(who)
    assert not is_current(disclosures, resolved, HOST, stored)


async def test_somebody_who_gave_up_waiting_holds_nobody_up(
    vault: VaultFixture, disclosures: Disclosures
) -> None:
    await vault.put("token")
    who = recipient(vault)
    leaving = asyncio.create_task(disclosed(disclosures, who, "token"))
    staying = asyncio.create_task(disclosed(disclosures, who, "token"))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == {"token": "value"}
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_reading_during_a_change_is_not_remembered(
    vault: VaultFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    intern = await vault.intern()
    here = vault.resolutions
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
    await vault.put("token", intern=intern)
    may_go_on.set()
    assert await reading == {}
    assert list(await here.of(intern.id)) == ["token"]

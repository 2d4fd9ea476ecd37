"""Use cases of secrets, on both databases."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import sqlalchemy as sa

from tests.component.vault.vault_fixture import VaultFixture
from tests.support.builders import OPERATOR
from tollhouse.audit.types import AuditAction
from tollhouse.kernel.errors import Conflict, Invalid, NotFound, Unavailable
from tollhouse.storage.tables.vault import vault_secrets, vaults
from tollhouse.vault.policy import WritesDisabled


async def test_many_writes_at_once_are_all_counted(vault: VaultFixture) -> None:
    await asyncio.gather(*(vault.put("token", f"v{at}") for at in range(8)))
    last = (await vault.put("token", "last")).version
    assert last == 9
    async with vault.database.reading() as read:
        assert (await read.execute(sa.select(sa.func.count()).select_from(vaults))).scalar() == 1
    assert await vault.audit_fault() is None


async def test_a_copy_is_all_or_nothing(vault: VaultFixture) -> None:
    intern = await vault.intern()
    await vault.put("one")
    await vault.import_unbound("old")
    with pytest.raises(NotFound):
        await vault.service.copy(vault.caller, intern.id, ["one", "missing"])
    with pytest.raises(Conflict):
        await vault.service.copy(vault.caller, intern.id, ["one", "old"])
    assert await vault.names(intern) == []
    assert AuditAction.SECRET_COPIED not in [row.entry.action for row in await vault.audit_rows()]


async def test_an_import_with_a_name_twice_is_refused(vault: VaultFixture) -> None:
    with pytest.raises(Invalid):
        await vault.import_unbound("old", "old")


# Who may


@pytest.mark.parametrize(
    ("switches", "refusal"),
    [({"vault_writes": False}, WritesDisabled), ({"intern_programme": False}, NotFound)],
    ids=["no writes", "no programme"],
)
async def test_what_is_switched_off_meanwhile_is_looked_at_in_the_transaction(
    vault: VaultFixture, switches: dict[str, bool], refusal: type[Exception]
) -> None:
    intern = await vault.intern()
    await vault.put("token")
    await vault.set_switches(**switches)
    with pytest.raises(refusal):
        await vault.put("token", "other")
    with pytest.raises(refusal):
        await vault.delete("token")
    with pytest.raises(refusal):
        await vault.service.copy(vault.caller, intern.id, ["token"])
    await vault.set_switches(vault_writes=True, intern_programme=True)
    assert await vault.names(intern) == []
    assert await vault.value((await vault.effective(intern))["token"].secret) == "value"


# The record


async def test_every_change_is_in_the_record(vault: VaultFixture) -> None:
    intern = await vault.intern()
    await vault.put("token", hosts=("a.com",))
    await vault.put("token", hosts=("b.com",))
    await vault.service.copy(vault.caller, intern.id, ["token"])
    await vault.delete("token")
    await vault.import_unbound("old")
    await vault.delete_intern(intern)
    told = [
        (row.entry.action, row.entry.name, row.entry.version, row.entry.hosts, row.entry.intern_id)
        for row in await vault.audit_rows()
    ]
    assert told == [
        (AuditAction.SECRET_WRITTEN, "token", 1, ("a.com",), None),
        (AuditAction.SECRET_WRITTEN, "token", 2, ("b.com",), None),
        (AuditAction.SECRET_COPIED, "token", 1, ("b.com",), intern.id),
        (AuditAction.SECRET_DELETED, "token", 2, ("b.com",), None),
        (AuditAction.SECRET_IMPORTED, "old", 1, None, None),
        (AuditAction.VAULT_DELETED, None, None, None, intern.id),
    ]
    assert {row.entry.actor for row in (await vault.audit_rows())[:4]} == {vault.caller.key_hash}
    assert await vault.audit_fault() is None


Change = Callable[[VaultFixture], Awaitable[object]]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda vault: vault.put("token", "new"), id="put"),
        pytest.param(lambda vault: vault.delete("token"), id="delete"),
        pytest.param(lambda vault: vault.import_unbound("old"), id="import"),
    ],
)
async def test_what_cannot_be_recorded_is_not_done(
    vault: VaultFixture, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await vault.put("token", "old value")

    async def refuses(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("tollhouse.audit.service._append", refuses)
    with pytest.raises(OSError, match=r"^$"):
        await change(vault)
    monkeypatch.undo()
    intern = await vault.intern()
    resolved = await vault.effective(intern)
    assert {name: each.secret for name, each in resolved.items()} == {"token": before}


# Rows that were touched


async def test_a_row_that_was_moved_to_another_name_or_vault_does_not_open(
    vault: VaultFixture,
) -> None:
    intern = await vault.intern()
    stored = await vault.put("token", "hunter2", intern=intern)
    shared = await vault.put("shared", "other")
    async with vault.database.writing() as write:
        await write.execute(
            sa.update(vault_secrets)
            .where(vault_secrets.c.vault_id == shared.vault_id)
            .values(sealed=stored.sealed)
        )
    resolved = await vault.effective(intern)
    with pytest.raises(Unavailable):
        await vault.value(resolved["shared"].secret)
    assert await vault.value(resolved["token"].secret) == "hunter2"


# Workspaces and interns that leave


async def test_a_workspace_takes_its_vault_with_it(vault: VaultFixture) -> None:
    elsewhere = await vault.workspace("elsewhere")
    await vault.put("token", caller=elsewhere)
    async with vault.database.writing() as write:
        await vault.identity.delete_workspace(
            write, OPERATOR, elsewhere.account_id, "elsewhere", default_confirmed=False
        )
    async with vault.database.reading() as read:
        assert not (await read.execute(sa.select(vault_secrets))).all()
        assert not (await read.execute(sa.select(vaults))).all()
    last = (await vault.audit_rows())[-1].entry
    assert (last.action, last.actor) == (AuditAction.VAULT_DELETED, "operator")


async def test_a_workspace_with_interns_stays(vault: VaultFixture) -> None:
    elsewhere = await vault.workspace("elsewhere")
    await vault.intern(caller=elsewhere)
    with pytest.raises(Invalid, match="interns"):
        async with vault.database.writing() as write:
            await vault.identity.delete_workspace(
                write, OPERATOR, elsewhere.account_id, "elsewhere", default_confirmed=False
            )


# What is remembered


async def test_a_change_counts_at_the_next_request(vault: VaultFixture) -> None:
    lender = await vault.intern()
    intern = await vault.intern(attached=lender.vault_id)
    assert await vault.resolutions.of(intern.id) == {}
    await vault.put("token", intern=lender)
    assert list(await vault.resolutions.of(intern.id)) == ["token"]
    assert await vault.resolutions.of(intern.id) is await vault.resolutions.of(intern.id)
    await vault.delete("token", lender)
    assert await vault.resolutions.of(intern.id) == {}
    await vault.delete_intern(lender)
    with pytest.raises(NotFound):
        await vault.resolutions.of(intern.id)

"""Use cases of secrets, on both databases."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from tests.component.vault.vault_fixture import VaultFixture
from tests.support.builders import OPERATOR
from tollhouse.audit.types import AuditAction
from tollhouse.identity.types import KeyKind
from tollhouse.kernel.errors import Conflict, Invalid, NotFound, Unauthenticated, Unavailable
from tollhouse.kernel.pages import Window
from tollhouse.storage.tables.audit import audit_heads
from tollhouse.storage.tables.vault import vault_secrets, vaults
from tollhouse.vault.policy import WritesDisabled
from tollhouse.vault.types import Scope


async def test_a_secret_is_stored_sealed_and_opens_again(vault: VaultFixture) -> None:
    stored = await vault.put("token", "hunter2", ("a.com", "b.com"))
    assert (stored.version, stored.hosts) == (1, ("a.com", "b.com"))
    assert await vault.value(stored) == "hunter2"
    async with vault.database.reading() as read:
        rows = [tuple(row) for row in await read.execute(sa.select(vault_secrets))]
    assert "hunter2" not in str(rows)
    assert b"hunter2" not in b"".join(each for row in rows for each in row if type(each) is bytes)


async def test_storing_again_counts_versions_and_keeps_when_it_was_first_stored(
    vault: VaultFixture,
) -> None:
    first = await vault.put("token", "one")
    vault.clock.advance(60)
    second = await vault.put("token", "two", ("b.com",))
    assert (second.version, second.hosts) == (2, ("b.com",))
    assert (second.created_at, second.updated_at) == (
        first.created_at,
        first.created_at + timedelta(seconds=60),
    )
    assert await vault.value(second) == "two"
    assert second.fingerprint != first.fingerprint
    assert (await vault.put("token", "one")).fingerprint == first.fingerprint


async def test_equal_values_of_two_vaults_do_not_look_equal(vault: VaultFixture) -> None:
    intern = await vault.intern()
    shared, own = await vault.put("token"), await vault.put("token", intern=intern)
    assert shared.fingerprint != own.fingerprint


async def test_many_writes_at_once_are_all_counted(vault: VaultFixture) -> None:
    await asyncio.gather(*(vault.put("token", f"v{at}") for at in range(8)))
    last = (await vault.put("token", "last")).version
    assert last == 9
    async with vault.database.reading() as read:
        assert (await read.execute(sa.select(sa.func.count()).select_from(vaults))).scalar() == 1
    assert await vault.audit_fault() is None


async def test_a_list_is_sorted_by_bytes_and_comes_in_pages(vault: VaultFixture) -> None:
    for name in ("ab", "a_b", "a0", "z"):
        await vault.put(name)
    assert await vault.names() == ["a0", "a_b", "ab", "z"]
    assert await vault.names(window=Window(1, 2)) == ["a_b", "ab"]
    async with vault.database.reading() as read:
        for offset, more in ((0, True), (2, False)):
            page = await vault.service.secrets(read, vault.caller, None, Window(offset, 2))
            assert page.has_more is more


async def test_nothing_was_stored_is_an_empty_list(vault: VaultFixture) -> None:
    assert await vault.names() == []


async def test_what_is_deleted_is_gone(vault: VaultFixture) -> None:
    await vault.put("token")
    await vault.delete("token")
    assert await vault.names() == []
    with pytest.raises(NotFound):
        await vault.delete("token")


async def test_what_never_was_cannot_be_deleted(vault: VaultFixture) -> None:
    with pytest.raises(NotFound):
        await vault.delete("token")


async def test_another_workspace_sees_nothing_of_it(vault: VaultFixture) -> None:
    await vault.put("token")
    intern, elsewhere = await vault.intern(), await vault.workspace("elsewhere")
    assert await vault.names(caller=elsewhere) == []
    with pytest.raises(NotFound):
        await vault.names(intern, caller=elsewhere)
    with pytest.raises(NotFound):
        await vault.put("token", intern=intern, caller=elsewhere)
    with pytest.raises(NotFound):
        await vault.effective(intern, elsewhere)


async def test_an_intern_receives_its_own_then_the_attached_then_the_workspaces(
    vault: VaultFixture,
) -> None:
    lender = await vault.intern()
    intern = await vault.intern(attached=lender.vault_id)
    for name in ("a", "b", "c"):
        await vault.put(name, "shared")
    for name in ("a", "b"):
        await vault.put(name, "lent", intern=lender)
    await vault.put("a", "own", intern=intern)
    resolved = await vault.effective(intern)
    values = {name: await vault.value(each.secret) for name, each in resolved.items()}
    assert values == {"a": "own", "b": "lent", "c": "shared"}
    assert [each.scope for each in resolved.values()] == list(Scope)
    assert [len(each.hidden) for each in resolved.values()] == [2, 1, 0]


async def test_an_attached_vault_that_is_gone_leaves_an_intern_with_nothing(
    vault: VaultFixture,
) -> None:
    lender = await vault.intern()
    intern = await vault.intern(attached=lender.vault_id)
    await vault.put("token")
    await vault.delete_intern(lender)
    with pytest.raises(NotFound, match="attached vault"):
        await vault.effective(intern)
    assert await vault.names(intern) == []


async def test_only_another_interns_vault_of_the_workspace_can_be_attached(
    vault: VaultFixture,
) -> None:
    stored = await vault.put("token")
    elsewhere = await vault.workspace("elsewhere")
    foreign = await vault.intern(caller=elsewhere)
    for vault_id in (stored.vault_id, foreign.vault_id, "nowhere"):
        with pytest.raises(Invalid, match="attached_vault_id"):
            await vault.intern(attached=vault_id)


async def test_copies_have_value_and_hosts_and_a_life_of_their_own(vault: VaultFixture) -> None:
    intern = await vault.intern()
    await vault.put("one", "first", ("a.com",))
    await vault.put("two", "second", ("b.com", "c.com"))
    await vault.put("two", "mine", intern=intern)
    copies = await vault.service.copy(vault.caller, intern.id, ["two", "one"])
    assert [(each.name, each.version, each.hosts) for each in copies] == [
        ("two", 2, ("b.com", "c.com")),
        ("one", 1, ("a.com",)),
    ]
    assert [await vault.value(each) for each in copies] == ["second", "first"]
    await vault.delete("one")
    assert await vault.names(intern) == ["one", "two"]
    await vault.delete("two", intern)
    assert await vault.names() == ["two"]


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


async def test_a_copy_out_of_an_empty_workspace_finds_nothing(vault: VaultFixture) -> None:
    intern = await vault.intern()
    with pytest.raises(NotFound):
        await vault.service.copy(vault.caller, intern.id, ["one"])


async def test_imported_secrets_are_listed_and_can_only_be_replaced(vault: VaultFixture) -> None:
    assert await vault.import_unbound("old", "older") == ["old", "older"]
    async with vault.database.reading() as read:
        page = await vault.service.secrets(read, vault.caller, None, Window(0, 1))
    [old] = page.secrets
    assert (old.hosts, old.fingerprint, old.is_legacy) == (None, None, True)
    with pytest.raises(NotFound):
        await vault.delete("old")
    stored = await vault.put("old", "new")
    assert (stored.version, stored.is_legacy) == (2, False)
    await vault.delete("old")
    assert await vault.names() == ["older"]


async def test_an_import_leaves_secrets_with_hosts_alone(vault: VaultFixture) -> None:
    await vault.put("token", "new")
    assert await vault.import_unbound("token", "old") == ["old"]
    assert await vault.import_unbound("old", value="again") == ["old"]
    intern = await vault.intern()
    resolved = await vault.effective(intern)
    assert await vault.value(resolved["token"].secret) == "new"
    assert await vault.value(resolved["old"].secret) == "again"


async def test_an_import_with_a_name_twice_is_refused(vault: VaultFixture) -> None:
    with pytest.raises(Invalid):
        await vault.import_unbound("old", "old")


# Who may


async def test_outside_the_programme_everything_is_unknown(vault: VaultFixture) -> None:
    await vault.set_switches(intern_programme=False)
    for writes in (False, True):
        with pytest.raises(NotFound):
            await vault.service.admit(vault.caller, None, writes=writes)


async def test_a_workspace_can_be_left_out_of_its_accounts_programme(vault: VaultFixture) -> None:
    elsewhere = await vault.workspace("elsewhere")
    await vault.service.admit(elsewhere, None, writes=True)
    async with vault.database.writing() as write:
        await vault.identity.change_workspace(
            write, OPERATOR, elsewhere.account_id, "elsewhere", {"intern_programme": False}
        )
    with pytest.raises(NotFound):
        await vault.service.admit(elsewhere, None, writes=False)
    await vault.service.admit(vault.caller, None, writes=True)


async def test_with_writes_off_reads_go_on(vault: VaultFixture) -> None:
    await vault.put("token")
    await vault.set_switches(vault_writes=False)
    await vault.service.admit(vault.caller, None, writes=False)
    with pytest.raises(WritesDisabled):
        await vault.service.admit(vault.caller, None, writes=True)
    assert await vault.names() == ["token"]


async def test_writes_that_are_switched_off_meanwhile_are_refused_in_the_transaction(
    vault: VaultFixture,
) -> None:
    intern = await vault.intern()
    await vault.put("token")
    await vault.set_switches(vault_writes=False)
    with pytest.raises(WritesDisabled):
        await vault.put("token", "other")
    with pytest.raises(WritesDisabled):
        await vault.delete("token")
    with pytest.raises(WritesDisabled):
        await vault.service.copy(vault.caller, intern.id, ["token"])
    assert await vault.names(intern) == []


async def test_a_management_key_is_unauthenticated(vault: VaultFixture) -> None:
    manager = replace(vault.caller, kind=KeyKind.MANAGEMENT)
    with pytest.raises(Unauthenticated):
        await vault.service.admit(manager, None, writes=False)


async def test_an_interns_own_key_is_confined_to_it(vault: VaultFixture) -> None:
    intern, other = await vault.intern(), await vault.intern()
    own = vault.own_key(intern)
    await vault.service.admit(own, intern.id, writes=True)
    for target, copies in ((None, False), (other.id, False), (intern.id, True)):
        with pytest.raises(NotFound):
            await vault.service.admit(own, target, writes=copies, copies=copies)


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


async def test_a_head_that_was_put_back_is_found(vault: VaultFixture) -> None:
    for _ in range(3):
        await vault.put("token")
    first, *_ = await vault.audit_rows()
    async with vault.database.writing() as write:
        await write.execute(sa.update(audit_heads).values(seq=first.seq, hash=first.hash))
    assert await vault.audit_fault() is not None


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


async def test_a_programme_that_is_left_meanwhile_is_looked_at_in_the_transaction(
    vault: VaultFixture,
) -> None:
    await vault.put("token")
    await vault.set_switches(intern_programme=False)
    with pytest.raises(NotFound):
        await vault.put("token", "other")
    with pytest.raises(NotFound):
        await vault.delete("token")


async def test_a_workspace_with_interns_stays(vault: VaultFixture) -> None:
    elsewhere = await vault.workspace("elsewhere")
    await vault.intern(caller=elsewhere)
    with pytest.raises(Invalid, match="interns"):
        async with vault.database.writing() as write:
            await vault.identity.delete_workspace(
                write, OPERATOR, elsewhere.account_id, "elsewhere", default_confirmed=False
            )


async def test_an_intern_that_is_not_there_can_be_forgotten(vault: VaultFixture) -> None:
    await vault.delete_intern(await vault.intern())
    async with vault.database.writing() as write:
        await vault.service.forget_subject(write, "nobody", "operator")


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

"""Use cases of secrets, on both databases."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from tests.integration.vault.office import Office
from tollhouse.audit.types import Action
from tollhouse.identity.types import KeyKind
from tollhouse.kernel.errors import Conflict, Invalid, NotFound, Unauthenticated, Unavailable
from tollhouse.kernel.pages import Window
from tollhouse.storage.tables.audit import audit_heads
from tollhouse.storage.tables.vault import vault_secrets, vaults
from tollhouse.testing.builders import OPERATOR
from tollhouse.vault.policy import WritesDisabled
from tollhouse.vault.types import Scope


async def test_a_secret_is_stored_sealed_and_opens_again(office: Office) -> None:
    stored = await office.put("token", "hunter2", ("a.com", "b.com"))
    assert (stored.version, stored.hosts) == (1, ("a.com", "b.com"))
    assert await office.value(stored) == "hunter2"
    async with office.database.reading() as read:
        rows = [tuple(row) for row in await read.execute(sa.select(vault_secrets))]
    assert "hunter2" not in str(rows)
    assert b"hunter2" not in b"".join(each for row in rows for each in row if type(each) is bytes)


async def test_storing_again_counts_versions_and_keeps_when_it_was_first_stored(
    office: Office,
) -> None:
    first = await office.put("token", "one")
    office.clock.advance(60)
    second = await office.put("token", "two", ("b.com",))
    assert (second.version, second.hosts) == (2, ("b.com",))
    assert (second.created_at, second.updated_at) == (
        first.created_at,
        first.created_at + timedelta(seconds=60),
    )
    assert await office.value(second) == "two"
    assert second.fingerprint != first.fingerprint
    assert (await office.put("token", "one")).fingerprint == first.fingerprint


async def test_equal_values_of_two_vaults_do_not_look_equal(office: Office) -> None:
    intern = await office.intern()
    shared, own = await office.put("token"), await office.put("token", intern=intern)
    assert shared.fingerprint != own.fingerprint


async def test_many_writes_at_once_are_all_counted(office: Office) -> None:
    await asyncio.gather(*(office.put("token", f"v{at}") for at in range(8)))
    last = (await office.put("token", "last")).version
    assert last == 9
    async with office.database.reading() as read:
        assert (await read.execute(sa.select(sa.func.count()).select_from(vaults))).scalar() == 1
    assert await office.fault() is None


async def test_a_list_is_sorted_by_bytes_and_comes_in_pages(office: Office) -> None:
    for name in ("ab", "a_b", "a0", "z"):
        await office.put(name)
    assert await office.names() == ["a0", "a_b", "ab", "z"]
    assert await office.names(window=Window(1, 2)) == ["a_b", "ab"]
    async with office.database.reading() as read:
        for offset, more in ((0, True), (2, False)):
            page = await office.service.secrets(read, office.caller, None, Window(offset, 2))
            assert page.has_more is more


async def test_nothing_was_stored_is_an_empty_list(office: Office) -> None:
    assert await office.names() == []


async def test_what_is_deleted_is_gone(office: Office) -> None:
    await office.put("token")
    await office.delete("token")
    assert await office.names() == []
    with pytest.raises(NotFound):
        await office.delete("token")


async def test_what_never_was_cannot_be_deleted(office: Office) -> None:
    with pytest.raises(NotFound):
        await office.delete("token")


async def test_another_workspace_sees_nothing_of_it(office: Office) -> None:
    await office.put("token")
    intern, elsewhere = await office.intern(), await office.workspace("elsewhere")
    assert await office.names(caller=elsewhere) == []
    with pytest.raises(NotFound):
        await office.names(intern, caller=elsewhere)
    with pytest.raises(NotFound):
        await office.put("token", intern=intern, caller=elsewhere)
    with pytest.raises(NotFound):
        await office.effective(intern, elsewhere)


async def test_an_intern_receives_its_own_then_the_attached_then_the_workspaces(
    office: Office,
) -> None:
    lender = await office.intern()
    intern = await office.intern(attached=lender.vault_id)
    for name in ("a", "b", "c"):
        await office.put(name, "shared")
    for name in ("a", "b"):
        await office.put(name, "lent", intern=lender)
    await office.put("a", "own", intern=intern)
    resolved = await office.effective(intern)
    values = {name: await office.value(each.secret) for name, each in resolved.items()}
    assert values == {"a": "own", "b": "lent", "c": "shared"}
    assert [each.scope for each in resolved.values()] == list(Scope)
    assert [len(each.hidden) for each in resolved.values()] == [2, 1, 0]


async def test_an_attached_vault_that_is_gone_leaves_an_intern_with_nothing(
    office: Office,
) -> None:
    lender = await office.intern()
    intern = await office.intern(attached=lender.vault_id)
    await office.put("token")
    await office.dismiss(lender)
    with pytest.raises(NotFound, match="attached vault"):
        await office.effective(intern)
    assert await office.names(intern) == []


async def test_only_another_interns_vault_of_the_workspace_can_be_attached(
    office: Office,
) -> None:
    stored = await office.put("token")
    elsewhere = await office.workspace("elsewhere")
    foreign = await office.intern(caller=elsewhere)
    for vault_id in (stored.vault_id, foreign.vault_id, "nowhere"):
        with pytest.raises(Invalid, match="attached_vault_id"):
            await office.intern(attached=vault_id)


async def test_copies_have_value_and_hosts_and_a_life_of_their_own(office: Office) -> None:
    intern = await office.intern()
    await office.put("one", "first", ("a.com",))
    await office.put("two", "second", ("b.com", "c.com"))
    await office.put("two", "mine", intern=intern)
    copies = await office.service.copy(office.caller, intern.id, ["two", "one"])
    assert [(each.name, each.version, each.hosts) for each in copies] == [
        ("two", 2, ("b.com", "c.com")),
        ("one", 1, ("a.com",)),
    ]
    assert [await office.value(each) for each in copies] == ["second", "first"]
    await office.delete("one")
    assert await office.names(intern) == ["one", "two"]
    await office.delete("two", intern)
    assert await office.names() == ["two"]


async def test_a_copy_is_all_or_nothing(office: Office) -> None:
    intern = await office.intern()
    await office.put("one")
    await office.take_in("old")
    with pytest.raises(NotFound):
        await office.service.copy(office.caller, intern.id, ["one", "missing"])
    with pytest.raises(Conflict):
        await office.service.copy(office.caller, intern.id, ["one", "old"])
    assert await office.names(intern) == []
    assert Action.SECRET_COPIED not in [row.entry.action for row in await office.record()]


async def test_a_copy_out_of_an_empty_workspace_finds_nothing(office: Office) -> None:
    intern = await office.intern()
    with pytest.raises(NotFound):
        await office.service.copy(office.caller, intern.id, ["one"])


async def test_imported_secrets_are_listed_and_can_only_be_replaced(office: Office) -> None:
    assert await office.take_in("old", "older") == ["old", "older"]
    async with office.database.reading() as read:
        page = await office.service.secrets(read, office.caller, None, Window(0, 1))
    [old] = page.secrets
    assert (old.hosts, old.fingerprint, old.is_legacy) == (None, None, True)
    with pytest.raises(NotFound):
        await office.delete("old")
    stored = await office.put("old", "new")
    assert (stored.version, stored.is_legacy) == (2, False)
    await office.delete("old")
    assert await office.names() == ["older"]


async def test_an_import_leaves_secrets_with_hosts_alone(office: Office) -> None:
    await office.put("token", "new")
    assert await office.take_in("token", "old") == ["old"]
    assert await office.take_in("old", value="again") == ["old"]
    intern = await office.intern()
    resolved = await office.effective(intern)
    assert await office.value(resolved["token"].secret) == "new"
    assert await office.value(resolved["old"].secret) == "again"


async def test_an_import_with_a_name_twice_is_refused(office: Office) -> None:
    with pytest.raises(Invalid):
        await office.take_in("old", "old")


# Who may


async def test_outside_the_programme_everything_is_unknown(office: Office) -> None:
    await office.join(intern_programme=False)
    for writes in (False, True):
        with pytest.raises(NotFound):
            await office.service.admit(office.caller, None, writes=writes)


async def test_a_workspace_can_be_left_out_of_its_accounts_programme(office: Office) -> None:
    elsewhere = await office.workspace("elsewhere")
    await office.service.admit(elsewhere, None, writes=True)
    async with office.database.writing() as write:
        await office.identity.change_workspace(
            write, OPERATOR, elsewhere.account_id, "elsewhere", {"intern_programme": False}
        )
    with pytest.raises(NotFound):
        await office.service.admit(elsewhere, None, writes=False)
    await office.service.admit(office.caller, None, writes=True)


async def test_with_writes_off_reads_go_on(office: Office) -> None:
    await office.put("token")
    await office.join(vault_writes=False)
    await office.service.admit(office.caller, None, writes=False)
    with pytest.raises(WritesDisabled):
        await office.service.admit(office.caller, None, writes=True)
    assert await office.names() == ["token"]


async def test_writes_that_are_switched_off_meanwhile_are_refused_in_the_transaction(
    office: Office,
) -> None:
    intern = await office.intern()
    await office.put("token")
    await office.join(vault_writes=False)
    with pytest.raises(WritesDisabled):
        await office.put("token", "other")
    with pytest.raises(WritesDisabled):
        await office.delete("token")
    with pytest.raises(WritesDisabled):
        await office.service.copy(office.caller, intern.id, ["token"])
    assert await office.names(intern) == []


async def test_a_management_key_is_unauthenticated(office: Office) -> None:
    manager = replace(office.caller, kind=KeyKind.MANAGEMENT)
    with pytest.raises(Unauthenticated):
        await office.service.admit(manager, None, writes=False)


async def test_an_interns_own_key_is_confined_to_it(office: Office) -> None:
    intern, other = await office.intern(), await office.intern()
    own = office.own_key(intern)
    await office.service.admit(own, intern.id, writes=True)
    for target, copies in ((None, False), (other.id, False), (intern.id, True)):
        with pytest.raises(NotFound):
            await office.service.admit(own, target, writes=copies, copies=copies)


# The record


async def test_every_change_is_in_the_record(office: Office) -> None:
    intern = await office.intern()
    await office.put("token", hosts=("a.com",))
    await office.put("token", hosts=("b.com",))
    await office.service.copy(office.caller, intern.id, ["token"])
    await office.delete("token")
    await office.take_in("old")
    await office.dismiss(intern)
    told = [
        (row.entry.action, row.entry.name, row.entry.version, row.entry.hosts, row.entry.intern_id)
        for row in await office.record()
    ]
    assert told == [
        (Action.SECRET_WRITTEN, "token", 1, ("a.com",), None),
        (Action.SECRET_WRITTEN, "token", 2, ("b.com",), None),
        (Action.SECRET_COPIED, "token", 1, ("b.com",), intern.id),
        (Action.SECRET_DELETED, "token", 2, ("b.com",), None),
        (Action.SECRET_IMPORTED, "old", 1, None, None),
        (Action.VAULT_DELETED, None, None, None, intern.id),
    ]
    assert {row.entry.actor for row in (await office.record())[:4]} == {office.caller.key_hash}
    assert await office.fault() is None


Change = Callable[[Office], Awaitable[object]]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda office: office.put("token", "new"), id="put"),
        pytest.param(lambda office: office.delete("token"), id="delete"),
        pytest.param(lambda office: office.take_in("old"), id="import"),
    ],
)
async def test_what_cannot_be_recorded_is_not_done(
    office: Office, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await office.put("token", "old value")

    async def refuses(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("tollhouse.audit.repository.append", refuses)
    with pytest.raises(OSError, match=r"^$"):
        await change(office)
    monkeypatch.undo()
    intern = await office.intern()
    resolved = await office.effective(intern)
    assert {name: each.secret for name, each in resolved.items()} == {"token": before}


async def test_a_head_that_was_put_back_is_found(office: Office) -> None:
    for _ in range(3):
        await office.put("token")
    first, *_ = await office.record()
    async with office.database.writing() as write:
        await write.execute(sa.update(audit_heads).values(seq=first.seq, hash=first.hash))
    assert await office.fault() is not None


# Rows that were touched


async def test_a_row_that_was_moved_to_another_name_or_vault_does_not_open(office: Office) -> None:
    intern = await office.intern()
    stored = await office.put("token", "hunter2", intern=intern)
    shared = await office.put("shared", "other")
    async with office.database.writing() as write:
        await write.execute(
            sa.update(vault_secrets)
            .where(vault_secrets.c.vault_id == shared.vault_id)
            .values(sealed=stored.sealed)
        )
    resolved = await office.effective(intern)
    with pytest.raises(Unavailable):
        await office.value(resolved["shared"].secret)
    assert await office.value(resolved["token"].secret) == "hunter2"


# Workspaces and interns that leave


async def test_a_workspace_takes_its_vault_with_it(office: Office) -> None:
    elsewhere = await office.workspace("elsewhere")
    await office.put("token", caller=elsewhere)
    async with office.database.writing() as write:
        await office.identity.delete_workspace(
            write, OPERATOR, elsewhere.account_id, "elsewhere", default_confirmed=False
        )
    async with office.database.reading() as read:
        assert not (await read.execute(sa.select(vault_secrets))).all()
        assert not (await read.execute(sa.select(vaults))).all()
    last = (await office.record())[-1].entry
    assert (last.action, last.actor) == (Action.VAULT_DELETED, "operator")


async def test_a_programme_that_is_left_meanwhile_is_looked_at_in_the_transaction(
    office: Office,
) -> None:
    await office.put("token")
    await office.join(intern_programme=False)
    with pytest.raises(NotFound):
        await office.put("token", "other")
    with pytest.raises(NotFound):
        await office.delete("token")


async def test_a_workspace_with_interns_stays(office: Office) -> None:
    elsewhere = await office.workspace("elsewhere")
    await office.intern(caller=elsewhere)
    with pytest.raises(Invalid, match="interns"):
        async with office.database.writing() as write:
            await office.identity.delete_workspace(
                write, OPERATOR, elsewhere.account_id, "elsewhere", default_confirmed=False
            )


async def test_an_intern_that_is_not_there_can_be_forgotten(office: Office) -> None:
    await office.dismiss(await office.intern())
    async with office.database.writing() as write:
        await office.service.forget_subject(write, "nobody", "operator")


# What is remembered


async def test_a_change_counts_at_the_next_request(office: Office) -> None:
    lender = await office.intern()
    intern = await office.intern(attached=lender.vault_id)
    assert await office.resolutions.of(intern.id) == {}
    await office.put("token", intern=lender)
    assert list(await office.resolutions.of(intern.id)) == ["token"]
    assert await office.resolutions.of(intern.id) is await office.resolutions.of(intern.id)
    await office.delete("token", lender)
    assert await office.resolutions.of(intern.id) == {}
    await office.dismiss(lender)
    with pytest.raises(NotFound):
        await office.resolutions.of(intern.id)

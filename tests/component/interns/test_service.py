"""What callers ask of interns, on both databases."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tollhouse.audit.types import AuditAction
from tollhouse.interns import repository
from tollhouse.interns.lifecycle import RUNNING, STOPPED
from tollhouse.interns.policy import Cursor, InternBusy, Misconfigured, ServiceUnreachable
from tollhouse.interns.types import (
    CreateIntern,
    DesiredState,
    InternFilter,
    InternRun,
    InternState,
    InternStatus,
)
from tollhouse.kernel.errors import Bug, Conflict, NotFound, TollhouseError, Unavailable
from tollhouse.kernel.secret import Secret

if TYPE_CHECKING:
    from tests.component.interns.intern_fixture import InternFixture
    from tollhouse.vault.types import Vault

STOPPING = InternState(InternStatus.RUNNING, DesiredState.STOPPED)


def reason(error: pytest.ExceptionInfo[Conflict]) -> object:
    return error.value.metadata["reason"]


async def test_a_new_intern_waits_to_be_provisioned(interns: InternFixture) -> None:
    intern = await interns.create(description="counts", instructions="be kind")
    assert intern.state == InternState(InternStatus.QUEUED, DesiredState.IDLE)
    assert (intern.description, intern.instructions, intern.model) == ("counts", "be kind", None)
    assert intern.vault_id is not None
    assert await interns.claimable() == []


async def test_one_that_is_to_run_at_once_waits_for_the_reconciler(interns: InternFixture) -> None:
    intern = await interns.create(provision=True)
    assert intern.state == InternState(InternStatus.QUEUED, DesiredState.RUNNING)
    assert await interns.claimable() == [intern.id]


async def test_a_boot_is_expected_of_what_is_to_run_and_of_nothing_else(
    interns: InternFixture,
) -> None:
    await interns.create("bob")
    assert interns.reconciler.boots_expected == 0
    await interns.create("ada", provision=True)
    assert interns.reconciler.boots_expected == 1


async def test_the_same_request_makes_one_intern(interns: InternFixture) -> None:
    request = interns.caller, CreateIntern("ada"), None
    first = await interns.service.create(*request)
    second = await interns.service.create(*request)
    assert (first.is_new, second.is_new) == (True, False)
    assert first.intern == second.intern


async def test_the_same_request_at_once_makes_one_intern(interns: InternFixture) -> None:
    request = interns.caller, CreateIntern("ada"), "key"
    made = await asyncio.gather(*(interns.service.create(*request) for _ in range(8)))
    assert len({each.intern.id for each in made}) == 1
    assert sorted(each.is_new for each in made) == [False] * 7 + [True]


async def test_of_two_requests_for_one_name_at_once_one_wins(interns: InternFixture) -> None:
    wanted = [CreateIntern("ada", text) for text in ("one", "two")]
    made = await asyncio.gather(
        *(interns.service.create(interns.caller, each, None) for each in wanted),
        return_exceptions=True,
    )
    refused = [each for each in made if isinstance(each, Conflict)]
    assert len(refused) == 1
    assert refused[0].metadata == {"reason": "name_taken", "retryable": False}


async def test_a_key_means_one_request(interns: InternFixture) -> None:
    await interns.create("ada", key="key")
    with pytest.raises(Conflict) as caught:
        await interns.create("bob", key="key")
    assert reason(caught) == "idempotency_key_reused"


async def test_a_creation_whose_vault_could_not_be_made_goes_on_with_the_next_try(
    interns: InternFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object) -> None:
        message = "not now"
        raise Unavailable(message)

    with monkeypatch.context() as patch:
        patch.setattr(interns.vault.service, "new_vault", unavailable)
        with pytest.raises(ServiceUnreachable) as caught:
            await interns.create(provision=True)
    assert (caught.value.kind, caught.value.message) == (
        "upstream",
        "The intern's vault cannot be made now; send the same request again.",
    )
    created = await interns.service.create(
        interns.caller, CreateIntern("ada", provision=True), None
    )
    assert created.is_new
    assert created.intern.vault_id is not None
    assert created.intern.state == InternState(InternStatus.QUEUED, DesiredState.RUNNING)


def never_opens(*_: object) -> Unavailable:
    return Unavailable("put the right key back", metadata={"retryable": False})


async def test_a_creation_that_only_an_operator_can_help_says_so(
    interns: InternFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*args: object) -> None:
        raise never_opens(*args)

    monkeypatch.setattr(interns.vault.service, "new_vault", unavailable)
    with pytest.raises(Misconfigured) as caught:
        await interns.create()
    assert caught.value.kind == "bug"
    assert caught.value.metadata == {"reason": "configuration_error", "retryable": False}


async def test_a_lender_that_is_deleted_meanwhile_leaves_nothing_half_made(
    interns: InternFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lender = await interns.create("lender")
    new_vault = interns.vault.service.new_vault

    async def slow(*args: Any) -> Vault:
        async with interns.database.writing() as write:
            await interns.vault.service.forget_subject(write, lender.id, "operator")
        return await new_vault(*args)

    with monkeypatch.context() as patch:
        patch.setattr(interns.vault.service, "new_vault", slow)
        with pytest.raises(Conflict) as caught:
            await interns.create("borrower", vault_id=lender.vault_id)
    assert reason(caught) == "vault_not_attachable"
    assert (await interns.create("borrower")).attached_vault_id is None


async def test_an_intern_that_is_deleted_before_it_has_a_vault_is_not_said_to_be_made(
    interns: InternFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_vault = interns.vault.service.new_vault

    async def slow(*args: Any) -> Vault:
        async with interns.database.writing() as write:
            for intern_id in await repository.ids(write):
                await repository.delete_unfinished(write, intern_id)
        return await new_vault(*args)

    monkeypatch.setattr(interns.vault.service, "new_vault", slow)
    with pytest.raises(InternBusy) as caught:
        await interns.create()
    assert caught.value.metadata == {"reason": "intern_busy", "retryable": True}


async def test_the_same_request_is_the_same_intern_whatever_it_is_called_by_now(
    interns: InternFixture,
) -> None:
    request = interns.caller, CreateIntern("ada")
    first = (await interns.service.create(*request, None)).intern
    async with interns.database.writing() as write:
        await interns.service.change(write, interns.caller, first.id, {"name": "bob"})
    again = await interns.service.create(*request, None)
    assert (again.intern.id, again.intern.name, again.is_new) == (first.id, "bob", False)
    other = await interns.service.create(*request, "another")
    assert (other.intern.name, other.is_new) == ("ada", True)


async def test_a_name_is_free_in_another_workspace_and_for_somebody_else(
    interns: InternFixture,
) -> None:
    await interns.create()
    elsewhere = await interns.vault.workspace("elsewhere")
    await interns.create(caller=elsewhere)
    await interns.create(caller=replace(interns.caller, creator_user_id="bob"))


async def test_an_intern_too_many_is_refused(interns: InternFixture) -> None:
    for name in ("aa", "bb", "cc", "dd", "ee"):
        await interns.create(name)
    with pytest.raises(Conflict) as caught:
        await interns.create("ff")
    assert reason(caught) == "intern_limit_reached"


async def test_numbers_are_given_again(interns: InternFixture) -> None:
    made = [await interns.create(name) for name in ("aa", "bb", "cc")]
    assert [each.number for each in made] == [1, 2, 3]
    for gone in made[:2]:
        await interns.set_state(gone, InternState(InternStatus.DESTROYING, DesiredState.ABSENT))
        held = await interns.lease(gone)
        assert held is not None
        async with interns.database.writing() as write:
            assert await repository.delete(write, held)
    assert [(await interns.create(name)).number for name in ("dd", "ee", "ff")] == [1, 2, 4]


async def test_another_interns_vault_is_borrowed(interns: InternFixture) -> None:
    lender = await interns.create("lender")
    borrower = await interns.create("borrower", vault_id=lender.vault_id)
    assert borrower.attached_vault_id == lender.vault_id


async def test_no_other_vault_is_borrowed(interns: InternFixture) -> None:
    elsewhere = await interns.vault.workspace("elsewhere")
    other = await interns.create(caller=elsewhere)
    shared = (await interns.vault.put("token")).vault_id
    for vault_id in (other.vault_id, shared, "99999999-0000-4000-8000-000000000009"):
        with pytest.raises(Conflict) as caught:
            await interns.create("borrower", vault_id=vault_id)
        assert reason(caught) == "vault_not_attachable"


async def test_interns_are_listed_newest_first_in_pages(interns: InternFixture) -> None:
    made = []
    for name in ("aa", "bb", "cc", "dd"):
        made.append(await interns.create(name))
        interns.clock.advance(1)
    wanted = InternFilter(interns.caller.workspace_id)
    async with interns.database.reading() as read:
        first = await interns.service.interns(read, wanted, None, 3)
        last = first.interns[-1]
        cursor = Cursor(last.created_at, last.id)
        second = await interns.service.interns(read, wanted, cursor, 3)
    assert [each.name for each in first.interns] == ["dd", "cc", "bb"]
    assert first.has_more
    assert [each.name for each in second.interns] == ["aa"]
    assert not second.has_more


async def test_a_list_holds_what_has_a_status(interns: InternFixture) -> None:
    await interns.create("aa")
    running = await interns.set_state(await interns.create("bb"), RUNNING)
    wanted = InternFilter(interns.caller.workspace_id, frozenset({InternStatus.RUNNING}))
    async with interns.database.reading() as read:
        found = await interns.service.interns(read, wanted, None, 10)
    assert [each.id for each in found.interns] == [running.id]


async def test_another_workspace_has_no_such_intern(interns: InternFixture) -> None:
    intern = await interns.create()
    elsewhere = await interns.vault.workspace("elsewhere")
    async with interns.database.reading() as read:
        with pytest.raises(NotFound):
            await interns.service.intern(read, elsewhere, intern.id)
    with pytest.raises(NotFound):
        await interns.service.provision(elsewhere, intern.id)


async def test_what_is_named_changes_and_the_rest_stays(interns: InternFixture) -> None:
    intern = await interns.create(description="counts", instructions="be kind")
    interns.clock.advance(5)
    async with interns.database.writing() as write:
        changed = await interns.service.change(
            write, interns.caller, intern.id, {"description": None, "model": "a/b"}
        )
    assert (changed.name, changed.description, changed.instructions, changed.model) == (
        "ada",
        None,
        "be kind",
        "a/b",
    )
    assert changed.updated_at > intern.updated_at


async def test_a_name_that_another_one_has_is_not_taken(interns: InternFixture) -> None:
    await interns.create("ada")
    bob = await interns.create("bob")
    async with interns.database.writing() as write:
        with pytest.raises(Conflict) as caught:
            await interns.service.change(write, interns.caller, bob.id, {"name": "ada"})
    assert reason(caught) == "name_taken"


async def test_ones_own_name_may_be_sent_again(interns: InternFixture) -> None:
    intern = await interns.create()
    async with interns.database.writing() as write:
        assert await interns.service.change(write, interns.caller, intern.id, {"name": "ada"})


async def test_nothing_is_begun_where_nobody_would_do_it(interns: InternFixture) -> None:
    intern = await interns.create()
    interns.reconciler.reachable = False
    with pytest.raises(ServiceUnreachable):
        await interns.service.provision(interns.caller, intern.id)
    assert (await interns.get(intern.id)).state == intern.state


async def test_provisioning_again_forgets_why_it_failed(interns: InternFixture) -> None:
    intern = await interns.set_state(
        await interns.create(), InternState(InternStatus.FAILED, DesiredState.IDLE)
    )
    async with interns.database.writing() as write:
        await repository.update_settings(
            write, intern.id, last_failure_message="no luck", restarts=3
        )
    await interns.service.provision(interns.caller, intern.id)
    again = await interns.get(intern.id)
    assert (again.last_failure_message, again.restarts) == (None, 0)


async def test_suspending_waits_until_it_is_stopped(interns: InternFixture) -> None:
    intern = await interns.set_state(await interns.create(), RUNNING)
    suspending = asyncio.create_task(interns.service.suspend(interns.caller, intern.id))
    await interns.until(intern, lambda found: found.state == STOPPING)
    assert not suspending.done()
    await interns.set_state(intern, STOPPED)
    interns.notifications.notify(intern.id)
    await suspending


async def test_suspending_what_is_stopped_is_done(interns: InternFixture) -> None:
    intern = await interns.set_state(await interns.create(), STOPPED)
    await interns.service.suspend(interns.caller, intern.id)


async def test_a_suspension_that_fails_says_why(interns: InternFixture) -> None:
    intern = await interns.set_state(await interns.create(), STOPPING)
    suspending = asyncio.create_task(interns.service.suspend(interns.caller, intern.id))
    await asyncio.sleep(0)
    async with interns.database.writing() as write:
        await repository.update_settings(write, intern.id, last_failure_message="the disk is full")
    await interns.set_state(intern, InternState(InternStatus.FAILED, DesiredState.IDLE))
    interns.notifications.notify(intern.id)
    with pytest.raises(ServiceUnreachable, match="the disk is full"):
        await suspending


async def test_what_goes_on_when_a_suspension_is_not_waited_for(interns: InternFixture) -> None:
    intern = await interns.set_state(await interns.create(), RUNNING)
    suspending = asyncio.create_task(interns.service.suspend(interns.caller, intern.id))
    await interns.until(intern, lambda found: found.state == STOPPING)
    suspending.cancel()
    await asyncio.gather(suspending, return_exceptions=True)
    assert (await interns.get(intern.id)).state == STOPPING


async def test_what_does_not_run_has_no_daemon(interns: InternFixture) -> None:
    intern = await interns.create()
    with pytest.raises(InternBusy) as caught:
        await interns.service.daemon(interns.caller, intern.id, "http://gateway")
    assert caught.value.metadata == {"reason": "intern_not_running", "retryable": False}


@pytest.mark.parametrize(
    ("metadata", "kind", "told"),
    [
        ({}, Bug, {}),
        (
            {"retryable": False},
            Misconfigured,
            {"reason": "configuration_error", "retryable": False},
        ),
    ],
    ids=["later", "never"],
)
async def test_a_token_that_does_not_open_is_a_fault_of_the_server(
    interns: InternFixture,
    monkeypatch: pytest.MonkeyPatch,
    metadata: dict[str, object],
    kind: type[TollhouseError],
    told: dict[str, object],
) -> None:
    async def unavailable(*_: object) -> None:
        raise Unavailable("its key is gone", metadata=metadata)

    intern = await interns.set_state(await interns.create(), RUNNING)
    async with interns.database.writing() as write:
        facts = InternRun("a/b", "hash", "x", b"sealed")
        await repository.update_settings(write, intern.id, **repository.run_columns(facts))
    monkeypatch.setattr(interns.vault.service, "open_beside", unavailable)
    with pytest.raises(kind) as caught:
        await interns.service.daemon(interns.caller, intern.id, "http://gateway")
    assert (caught.value.kind, caught.value.metadata) == ("bug", told)


async def test_a_token_is_shown_to_nobody_who_is_not_on_the_record(interns: InternFixture) -> None:
    intern = await interns.set_state(await interns.create(), RUNNING)
    assert intern.vault_id is not None
    sealed = await interns.vault.service.seal_beside(
        intern.vault_id, "daemon-token", Secret("token-of-daemon")
    )
    async with interns.database.writing() as write:
        await repository.update_settings(
            write,
            intern.id,
            hostname="127.0.0.1",
            run_model="a/b",
            run_key_hash="hash",
            run_token_hash="x",
            run_sealed_token=sealed,
        )
    found = await interns.service.daemon(interns.caller, intern.id, "http://gateway:8080")
    assert (found.origin, found.token.reveal()) == ("http://gateway:8080", "token-of-daemon")
    entry = (await interns.vault.audit_rows())[-1].entry
    assert (entry.action, entry.actor, entry.intern_id) == (
        AuditAction.DAEMON_REVEALED,
        interns.caller.key_hash,
        intern.id,
    )

"""What callers ask of interns, on both databases."""

import asyncio
from typing import Any

import pytest

from tests.component.interns.intern_fixture import InternFixture
from tollhouse.audit.types import AuditAction
from tollhouse.interns import repository
from tollhouse.interns.lifecycle import RUNNING
from tollhouse.interns.policy import InternBusy, Misconfigured, ServiceUnreachable
from tollhouse.interns.types import CreateIntern, DesiredState, InternRun, InternState, InternStatus
from tollhouse.kernel.errors import Bug, Conflict, TollhouseError, Unavailable
from tollhouse.kernel.secret import Secret
from tollhouse.vault.types import Vault


def reason(error: pytest.ExceptionInfo[Conflict]) -> object:
    return error.value.metadata["reason"]


@pytest.mark.parametrize("key", ["key", None])
async def test_the_same_request_at_once_makes_one_intern(
    interns: InternFixture, key: str | None
) -> None:
    request = interns.caller, CreateIntern("ada"), key
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


async def test_an_intern_too_many_is_refused(interns: InternFixture) -> None:
    for name in ("aa", "bb", "cc", "dd", "ee"):
        await interns.create(name)
    with pytest.raises(Conflict) as caught:
        await interns.create("ff")
    assert reason(caught) == "intern_limit_reached"


async def test_no_intern_is_to_run_without_a_model(interns: InternFixture) -> None:
    await interns.set_default_model(None)
    with pytest.raises(Conflict) as caught:
        await interns.create("ada", provision=True)
    assert reason(caught) == "no_model"
    assert "--default-model" in caught.value.message
    intern = await interns.create("ada")
    with pytest.raises(Conflict) as caught:
        await interns.service.provision(interns.caller, intern.id)
    assert reason(caught) == "no_model"
    await interns.set_default_model("simulated/agent")
    await interns.service.provision(interns.caller, intern.id)


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


async def test_the_workspaces_own_vault_is_not_borrowed(interns: InternFixture) -> None:
    shared = (await interns.vault.put("token")).vault_id
    with pytest.raises(Conflict) as caught:
        await interns.create("borrower", vault_id=shared)
    assert reason(caught) == "vault_not_attachable"


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

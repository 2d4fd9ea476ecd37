"""An intern's key is its own for life; whoever had it run answers for what it spends."""

from tests.component.interns.machine import Machine
from tests.support.builders import OPERATOR
from tests.support.seams.identity import NewKey, subject_of
from tollhouse.interns.lifecycle import RUNNING
from tollhouse.interns.types import Intern, Operation


async def test_it_runs_again_with_another_token_and_another_text_of_its_key(
    machine: Machine,
) -> None:
    intern = await machine.running_intern()
    text = machine.key_text(intern)
    assert await machine.accepts_key(text)
    await machine.request(Operation.SUSPEND, intern)
    assert not await machine.accepts_key(text)
    await machine.request(Operation.PROVISION, intern)
    again = await machine.until_state(intern, RUNNING)
    assert intern.run is not None
    assert again.run is not None
    assert again.run.token_hash != intern.run.token_hash
    assert again.run.key_hash == intern.run.key_hash
    assert not await machine.accepts_key(text)
    assert await machine.accepts_key(machine.key_text(intern))


async def test_a_key_that_a_manager_disabled_stays_so_at_the_next_boot(machine: Machine) -> None:
    intern = await machine.running_intern()
    [key] = await machine.stored_keys()
    interns = machine.interns
    async with interns.database.writing() as write:
        await interns.vault.identity.change_key(write, OPERATOR, key.hash, disabled=True)
    await machine.request(Operation.SUSPEND, intern)
    await machine.request(Operation.PROVISION, intern)
    await machine.until_state(intern, RUNNING)
    assert not await machine.accepts_key(machine.key_text(intern))


async def test_a_key_that_a_manager_deleted_is_made_anew_at_the_next_boot(machine: Machine) -> None:
    intern = await machine.running_intern()
    [key] = await machine.stored_keys()
    interns = machine.interns
    async with interns.database.writing() as write:
        await interns.vault.identity.delete_key(write, OPERATOR, key.hash)
    assert not await machine.accepts_key(machine.key_text(intern))
    await machine.request(Operation.SUSPEND, intern)
    await machine.request(Operation.PROVISION, intern)
    await machine.until_state(intern, RUNNING)
    assert await machine.accepts_key(machine.key_text(intern))
    [made] = await machine.stored_keys()
    assert made.hash != key.hash


async def payer_of(machine: Machine, intern: Intern) -> str | None:
    text = machine.key_text(intern)
    return (await machine.interns.vault.authenticator.authenticate(text.reveal())).payer_hash


async def test_who_has_it_run_again_answers_for_it_then(machine: Machine) -> None:
    intern = await machine.running_intern()
    await machine.request(Operation.SUSPEND, intern)
    interns = machine.interns
    async with interns.database.writing() as write:
        made = await interns.vault.identity.create_key(
            write, OPERATOR, interns.caller.account_id, NewKey("other")
        )
    await machine.service.provision(subject_of(made.key), intern.id)
    await machine.until_state(intern, RUNNING)
    assert await payer_of(machine, intern) == made.key.hash


async def test_an_intern_that_has_itself_run_does_not_answer_for_itself(machine: Machine) -> None:
    intern = await machine.running_intern()
    own = await machine.interns.vault.authenticator.authenticate(machine.key_text(intern).reveal())
    await machine.request(Operation.SUSPEND, intern)
    await machine.service.provision(own, intern.id)
    await machine.until_state(intern, RUNNING)
    assert await payer_of(machine, intern) == machine.interns.caller.key_hash


async def test_who_answers_for_it_stays_after_a_kill_and_a_restart(machine: Machine) -> None:
    intern = await machine.running_intern()
    await machine.kill()
    await machine.until_state(intern, RUNNING)
    assert await payer_of(machine, intern) == machine.interns.caller.key_hash
    machine.runtime.running[0].end("a bug")
    await machine.until(intern, lambda found: found.restarts == 1 and found.state == RUNNING)
    assert await payer_of(machine, intern) == machine.interns.caller.key_hash

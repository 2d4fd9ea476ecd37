"""What a chat asks of the database: whose intern it is, whether it runs, and its daemon's token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.interns.parlour import PROMPT, parlour
from tollhouse.interns.chat.relay import Paces
from tollhouse.interns.types import Status

if TYPE_CHECKING:
    from tests.integration.interns.machine import Machine


async def test_an_intern_is_talked_to_while_it_runs(machine: Machine) -> None:
    async with parlour(machine, Paces()) as room:
        assert (await room.told()).content == "Hi"
        await machine.service.suspend(machine.agency.caller, room.intern.id)
        reply = await room.send()
        assert reply.json()["error"]["metadata"] == {
            "reason": "intern_not_ready",
            "retryable": True,
        }
        await machine.service.provision(machine.agency.caller, room.intern.id)
        await machine.until_status(room.intern, Status.RUNNING)
        assert (await room.told()).content == "Hi"
    (first, sent), (second, sent_again) = room.daemon.token_hashes
    assert (first, second) == (sent, sent_again)
    assert first != second


async def test_another_workspaces_intern_is_not_found(machine: Machine) -> None:
    async with parlour(machine, Paces()) as room:
        elsewhere = await machine.agency.office.workspace("elsewhere")
        foreign = await machine.agency.make("bob", caller=elsewhere)
        path = f"/v1/interns/{foreign.id}/chat/completions"
        reply = await room.http.post(path, json=PROMPT)
        assert reply.status_code == 404
        assert reply.json()["error"]["metadata"] == {"reason": "not_found", "retryable": False}

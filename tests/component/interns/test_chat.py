"""What a chat asks of the database: whose intern it is, whether it runs, and its daemon's token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.component.interns.chat_server import PROMPT, serve_chat
from tollhouse.interns.chat.transcript import ChatTimeouts
from tollhouse.interns.types import InternStatus

if TYPE_CHECKING:
    from tests.component.interns.machine import Machine


async def test_an_intern_is_talked_to_while_it_runs(machine: Machine) -> None:
    async with serve_chat(machine, ChatTimeouts()) as chat:
        assert (await chat.stream()).content == "Hi"
        await machine.service.suspend(machine.interns.caller, chat.intern.id)
        reply = await chat.send()
        assert reply.json()["error"]["metadata"] == {
            "reason": "intern_not_ready",
            "retryable": True,
        }
        await machine.service.provision(machine.interns.caller, chat.intern.id)
        await machine.until_status(chat.intern, InternStatus.RUNNING)
        assert (await chat.stream()).content == "Hi"
    (first, sent), (second, sent_again) = chat.daemon.token_hashes
    assert (first, second) == (sent, sent_again)
    assert first != second


async def test_another_workspaces_intern_is_not_found(machine: Machine) -> None:
    async with serve_chat(machine, ChatTimeouts()) as chat:
        elsewhere = await machine.interns.vault.workspace("elsewhere")
        foreign = await machine.interns.create("bob", caller=elsewhere)
        path = f"/v1/interns/{foreign.id}/chat/completions"
        reply = await chat.http.post(path, json=PROMPT)
        assert reply.status_code == 404
        assert reply.json()["error"]["metadata"] == {"reason": "not_found", "retryable": False}

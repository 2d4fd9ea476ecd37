"""Turns of a chat with an intern: one run at a time, one answer to a question."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.checked_server import start_checked_server
from tests.acceptance.intern_conversation import ChatRefused, Conversation

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.support.chat_grammar import ParsedChat
    from tests.support.intern_client import InternClient
    from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.sandbox
ASK = "run with network: echo once >> done"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_checked_server(tmp_path_factory.mktemp("i")) as server:
        yield server


def done(interns: InternClient) -> list[str]:
    """Return the lines that the commands of the runs have written."""
    return interns.script_output("ada", "cat done").split()


def test_of_two_prompts_at_once_one_runs(interns: InternClient) -> None:
    intern = interns.run()
    both = Barrier(2)

    def ask(number: int) -> ParsedChat | ChatRefused:
        conversation = Conversation(interns, intern)
        both.wait()
        try:
            return conversation.send(f"run: sleep 2; echo {number} >> done")
        except ChatRefused as refused:
            return refused

    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(ask, range(2)))
    [refused] = [each for each in outcomes if isinstance(each, ChatRefused)]
    [ran] = [number for number, each in enumerate(outcomes) if each is not refused]
    assert (refused.reply.status_code, refused.reason) == (409, "busy")
    assert int(refused.reply.headers["retry-after"]) > 0
    assert done(interns) == [str(ran)]


def test_a_question_is_answered_once(interns: InternClient) -> None:
    conversation = Conversation(interns, interns.run(), approval_mode="manual")
    asked = conversation.send(ASK)
    assert conversation.answer(asked, "allow_once").finish == "stop"
    assert refusal(conversation, asked, "allow_once") == (409, "interaction_not_pending")
    assert done(interns) == ["once"]


def test_a_repeated_answer_does_not_disturb_the_run_that_goes_on(interns: InternClient) -> None:
    conversation = Conversation(interns, interns.run(), approval_mode="manual")
    asked = conversation.send(f"{ASK}; sleep 1")
    both = Barrier(2)

    def answer(_: int) -> Any:
        both.wait()
        try:
            return conversation.answer(asked, "allow_once").finish
        except ChatRefused as refused:
            return refused.reason

    with ThreadPoolExecutor(2) as threads:
        outcomes = sorted(threads.map(answer, range(2)))
    assert outcomes in (["busy", "stop"], ["interaction_not_pending", "stop"])
    assert done(interns) == ["once"]


def test_an_answer_to_a_run_that_has_ended_comes_too_late(interns: InternClient) -> None:
    intern = interns.run()
    conversation = Conversation(interns, intern, approval_mode="manual")
    asked = conversation.send(ASK)
    path = f"/sessions/{conversation.session}/runs/current"
    assert interns.daemon(intern, "DELETE", path).is_success
    assert refusal(conversation, asked, "allow_once") == (409, "interaction_not_pending")
    assert conversation.send("run: echo next >> done").finish == "stop"
    assert done(interns) == ["next"]


def refusal(conversation: Conversation, asked: ParsedChat, content: str) -> tuple[int, str]:
    with pytest.raises(ChatRefused) as refused:
        conversation.answer(asked, content)
    return refused.value.reply.status_code, refused.value.reason

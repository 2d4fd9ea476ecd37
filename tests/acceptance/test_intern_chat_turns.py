"""Whose turn it is, with an intern that runs for real: one run at a time, one answer a question."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.heard_server import start_heard_server
from tests.acceptance.intern_talks import Refused, Talk

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.acceptance.intern_rooms import Rooms
    from tests.acceptance.server_process import ServerProcess
    from tests.chat_grammar import Told

pytestmark = pytest.mark.sandbox
ASK = "run with network: echo once >> done"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_heard_server(tmp_path_factory.mktemp("i")) as server:
        yield server


def done(rooms: Rooms) -> list[str]:
    """Return what the commands of the runs have noted."""
    return rooms.output("ada", "cat done").split()


def test_of_two_prompts_at_once_one_runs(rooms: Rooms) -> None:
    intern = rooms.run()
    both = Barrier(2)

    def ask(number: int) -> Told | Refused:
        talk = Talk(rooms, intern)
        both.wait()
        try:
            return talk.say(f"run: sleep 2; echo {number} >> done")
        except Refused as refused:
            return refused

    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(ask, range(2)))
    [refused] = [each for each in outcomes if isinstance(each, Refused)]
    [ran] = [number for number, each in enumerate(outcomes) if each is not refused]
    assert (refused.reply.status_code, refused.reason) == (409, "busy")
    assert int(refused.reply.headers["retry-after"]) > 0
    assert done(rooms) == [str(ran)]


def test_a_question_is_answered_once(rooms: Rooms) -> None:
    talk = Talk(rooms, rooms.run(), approval_mode="manual")
    asked = talk.say(ASK)
    assert talk.answer(asked, "allow_once").finish == "stop"
    assert refusal(talk, asked, "allow_once") == (409, "interaction_not_pending")
    assert done(rooms) == ["once"]


def test_a_repeated_answer_does_not_disturb_the_run_that_goes_on(rooms: Rooms) -> None:
    talk = Talk(rooms, rooms.run(), approval_mode="manual")
    asked = talk.say(f"{ASK}; sleep 1")
    both = Barrier(2)

    def answer(_: int) -> Any:
        both.wait()
        try:
            return talk.answer(asked, "allow_once").finish
        except Refused as refused:
            return refused.reason

    with ThreadPoolExecutor(2) as threads:
        outcomes = sorted(threads.map(answer, range(2)))
    assert outcomes in (["busy", "stop"], ["interaction_not_pending", "stop"])
    assert done(rooms) == ["once"]


def test_an_answer_to_a_run_that_has_ended_comes_too_late(rooms: Rooms) -> None:
    intern = rooms.run()
    talk = Talk(rooms, intern, approval_mode="manual")
    asked = talk.say(ASK)
    path = f"/sessions/{talk.session}/runs/current"
    assert rooms.daemon(intern, "DELETE", path).is_success
    assert refusal(talk, asked, "allow_once") == (409, "interaction_not_pending")
    assert talk.say("run: echo next >> done").finish == "stop"
    assert done(rooms) == ["next"]


def refusal(talk: Talk, asked: Told, content: str) -> tuple[int, str]:
    with pytest.raises(Refused) as refused:
        talk.answer(asked, content)
    return refused.value.reply.status_code, refused.value.reason

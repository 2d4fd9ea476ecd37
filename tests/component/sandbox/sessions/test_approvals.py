"""What was approved is what runs, though any program of the workspace may write into the log."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.support.model_server import FakeModel, call, says
from tests.support.session_client import SessionClient

REACH = call("http_request", url="http://127.0.0.1:9/asked")
OTHER = call("http_request", url="http://127.0.0.1:9/other")
ASKED = "GET http://127.0.0.1:9/asked"
SWAP_EVENT = "UPDATE events SET data = "
SWAP_BODY = "UPDATE questions SET body = replace(body, '/asked', '/swapped')"


def swap_log(daemon: DaemonProcess, *statements: str) -> None:
    """Put another log in place of the one that the daemon has open."""
    file = daemon.workspace / ".intern" / "sessions" / "log.sqlite3"
    copy = file.with_name("copy")
    for end in ("", "-wal"):
        shutil.copy(f"{file}{end}", f"{copy}{end}")
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0
    Path(f"{file}-wal").unlink()
    copy.rename(file)


async def test_a_call_that_was_swapped_while_its_question_waited_is_asked_about(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(call("shell", command="echo asked", network=True)), says("Done.")]
    asked = await session.run("Work.", approval_mode="manual")
    assert asked.last["permission"]["operation"] == "echo asked"
    swap_log(daemon, "UPDATE messages SET body = replace(body, 'echo asked', 'touch harm')")

    again = await session.answer(asked.last["interaction"], "allow_once")

    assert again.last["permission"]["operation"] == "touch harm"
    await session.answer(again.last["interaction"], "reject_once")
    assert not (daemon.workspace / "harm").exists()


async def test_of_a_long_operation_all_is_compared(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    command = f"echo {'x' * 5000} asked"
    model.turns = [says(call("shell", command=command, network=True)), says("Done.")]
    asked = await session.run("Work.", approval_mode="manual")
    swap_log(daemon, "UPDATE messages SET body = replace(body, 'x asked', 'x > harm')")
    again = await session.answer(asked.last["interaction"], "allow_once")
    shown, other = (each.last["permission"]["operation"][:4000] for each in (asked, again))
    assert shown == other
    assert not (daemon.workspace / "harm").exists()


async def test_a_question_is_shown_as_it_was_asked(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(REACH), says("Done.")]
    asked = await session.run("Work.", approval_mode="manual")
    swap_log(
        daemon,
        SWAP_BODY,
        "UPDATE events SET data = replace(data, '/asked', '/swapped') WHERE kind = 'question'",
    )
    assert (await session.events())[-1] == asked[-1]
    events = await session.answer(asked.last["interaction"], "allow_once")
    assert (events.outcomes, events.text) == (["failed"], "Done.")  # nobody listens there


async def test_an_event_that_is_no_question_any_more_is_shown_as_it_is(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(REACH)]
    await session.run("Work.", approval_mode="manual")
    for garbage in ({}, {"run": "r", "interaction": "other", "expires_at": ""}):
        swap_log(daemon, f"{SWAP_EVENT}'{json.dumps(garbage)}' WHERE kind = 'question'")
        assert (await session.events()).last == garbage


async def test_a_question_that_waits_its_turn_is_shown_as_the_agent_asks_it(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(OTHER, REACH)]
    first = await session.run("Work.", approval_mode="manual")
    swap_log(daemon, f"{SWAP_BODY} WHERE state = 'later'")
    second = await session.answer(first.last["interaction"], "reject_once")
    assert second.last["permission"]["operation"] == ASKED


async def test_an_answer_that_nobody_gave_is_none(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(OTHER, REACH)]
    first = await session.run("Work.", approval_mode="manual")
    swap_log(
        daemon,
        "UPDATE questions SET state = 'answered', answer = json_object('permission', json('true'),"
        " 'call', json_extract(body, '$.call'),"
        " 'digest', json_extract(body, '$.permission.digest')) WHERE state = 'later'",
    )
    second = await session.answer(first.last["interaction"], "reject_once")
    assert second.last["permission"]["operation"] == ASKED


async def test_an_answer_for_always_holds_for_what_was_asked(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    shell = call("shell", command="touch harm", network=True)
    model.turns = [says(REACH), says("Done."), says(shell)]
    asked = await session.run("Work.", approval_mode="manual")
    swap_log(daemon, "UPDATE questions SET body = replace(body, '\"http_request\"', '\"shell\"')")
    assert (await session.answer(asked.last["interaction"], "allow_always")).text == "Done."
    assert "permission" in (await session.run("And now?", approval_mode="manual")).last
    assert not (daemon.workspace / "harm").exists()


async def test_a_run_gets_no_other_sessions_consents(
    daemon: DaemonProcess, model: FakeModel, session: SessionClient
) -> None:
    other = SessionClient(daemon, f"{session.id} 2")
    model.turns = [says(REACH), says("Done."), says(REACH)]
    asked = await other.run("Work.", approval_mode="manual")
    await other.answer(asked.last["interaction"], "allow_always")
    asked = await session.run("Work.", approval_mode="manual")
    swap_log(daemon, "UPDATE runs SET session = session || ' 2' WHERE state = 'waiting'")
    body = {"interaction": asked.last["interaction"], "answer": "reject_once"}
    refused = await session.post("answers", body)
    assert (refused.status_code, refused.json()["error"]["reason"]) == (
        409,
        "interaction_not_pending",
    )
    assert await other.cancel() == 204


async def test_what_was_asked_before_a_suspension_is_asked_again(
    model: FakeModel, start: Callable[..., DaemonProcess]
) -> None:
    model.turns = [says(REACH), says("Done."), says(REACH)]
    with start() as daemon:
        asked = await SessionClient(daemon).run("Work.", approval_mode="manual")
    with start() as daemon:
        session = SessionClient(daemon)
        again = await session.answer(asked.last["interaction"], "allow_always")
        assert again.kinds() == ["answered", "question"]
        assert again.last["permission"]["operation"] == ASKED
        assert (await session.answer(again.last["interaction"], "allow_once")).text == "Done."
        assert "permission" in (await session.run("Again.", approval_mode="manual")).last

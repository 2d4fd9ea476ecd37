"""`tollhouse intern acp`, driven by a client of the protocol's own library.

The gateway is a fake; the client is what an editor has, in the words of the protocol.
"""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest
from acp import PROTOCOL_VERSION, RequestError

from tests.support.acp_editor import SECONDS, editor_over_command
from tests.support.fake_chat_gateway import (
    FakeChatGateway,
    Hang,
    permission,
    raw,
    reasoning,
    stream,
)
from tests.support.forked import forking_program
from tests.support.server_process import clean_environment


async def test_the_agent_reports_its_name_and_capabilities(gateway: FakeChatGateway) -> None:
    async with editor_over_command(gateway.environment) as editor:
        told = editor.initialized
    assert told.protocol_version == PROTOCOL_VERSION
    assert told.agent_info.title == "ada"
    assert not told.agent_capabilities.load_session
    assert told.agent_capabilities.session_capabilities.resume is not None
    assert told.agent_capabilities.prompt_capabilities.embedded_context
    assert not told.agent_capabilities.prompt_capabilities.image


async def test_a_prompt_streams_thoughts_and_answer(gateway: FakeChatGateway) -> None:
    gateway.script(stream(reasoning("shell: ls\n"), "Two ", "files."))
    async with editor_over_command(gateway.environment) as editor:
        await editor.new_session()
        ended = await editor.prompt("Which files?")
        assert (ended.stop_reason, editor.text) == ("end_turn", "Two files.")
        assert editor.thoughts == "shell: ls\n"
        assert (ended.usage.input_tokens, ended.usage.output_tokens) == (1200, 34)
    sent = gateway.requests[0]
    assert sent["messages"] == [{"role": "user", "content": "Which files?"}]
    assert sent["session_id"] == editor.session_id


async def test_a_permission_that_is_allowed_and_one_that_is_rejected(
    gateway: FakeChatGateway,
) -> None:
    fewer_options = ["allow_once", "reject_once"]
    gateway.script(
        stream(ask=permission("a", "run: make")),
        stream(
            reasoning("built\n"), ask=permission("b", "run: rm -r /", ["allow_once", "reject_once"])
        ),
        stream("Built, and not removed."),
    )
    async with editor_over_command(gateway.environment) as editor:
        await editor.new_session()
        editor.decides = ["allow_once", "reject_once"]
        ended = await editor.prompt("Build and remove")
        assert ended.stop_reason == "end_turn"
        assert editor.text == "Built, and not removed."
    assert gateway.received_answers == ["allow_once", "reject_once"]
    (first, options), (second, fewer) = editor.asked
    assert (first.title, second.title) == ("run: make", "run: rm -r /")
    kinds = ["allow_once", "allow_always", "reject_once", "reject_always"]
    assert [each.kind for each in options] == kinds
    assert [each.option_id for each in fewer] == fewer_options
    assert editor.calls == [
        *(("a", "pending"), ("a", "in_progress"), ("b", "pending")),
        *(("a", "completed"), ("b", "failed")),
    ]


async def test_cancel_hangs_up_which_stops_the_run(gateway: FakeChatGateway) -> None:
    gateway.script(stream("Working", Hang), stream("Again."))
    async with editor_over_command(gateway.environment) as editor:
        await editor.new_session()
        turn = asyncio.ensure_future(editor.prompt("work"))
        await editor.wait_for_text()
        await editor.agent.cancel(session_id=editor.session_id)
        assert (await turn).stop_reason == "cancelled"
        await asyncio.to_thread(gateway.wait_for_hang_up)
        assert (await editor.prompt("again")).stop_reason == "end_turn"


async def test_an_editor_that_disconnects_stops_the_run(gateway: FakeChatGateway) -> None:
    gateway.script(stream("Working", Hang))
    async with editor_over_command(gateway.environment) as editor:
        await editor.new_session()
        turn = asyncio.ensure_future(editor.prompt("work"))
        await editor.wait_for_text()
        editor.process.stdin.close()
        await asyncio.to_thread(gateway.wait_for_hang_up)
        assert await asyncio.wait_for(editor.process.wait(), SECONDS) == 0
        turn.cancel()


async def test_an_editor_that_disconnects_at_a_question_stops_the_run(
    gateway: FakeChatGateway,
) -> None:
    gateway.script(stream(ask=permission()), stream("Going on", Hang))
    async with editor_over_command(gateway.environment) as editor:
        await editor.new_session()
        editor.undecided = True
        turn = asyncio.ensure_future(editor.prompt("work"))
        await editor.wait_for_question()
        editor.process.stdin.close()
        await asyncio.to_thread(gateway.wait_for_hang_up)
        assert await asyncio.wait_for(editor.process.wait(), SECONDS) == 0
        turn.cancel()
    assert gateway.received_answers == ["cancel"]


async def test_manual_is_what_a_session_begins_with(gateway: FakeChatGateway) -> None:
    gateway.script(stream("a"))
    async with editor_over_command(gateway.environment, "--manual") as editor:
        await editor.new_session()
        assert editor.modes.current_mode_id == "manual"
        await editor.prompt("x")
    assert gateway.requests[0]["approval_mode"] == "manual"


async def test_a_key_that_is_wrong_is_said_when_a_session_begins(gateway: FakeChatGateway) -> None:
    async with editor_over_command(gateway.environment, "--api-key", "sk-th-v1-wrong") as editor:
        with pytest.raises(RequestError, match="TOLLHOUSE_API_KEY") as refused:
            await editor.new_session()
    assert refused.value.code == -32000


def test_standard_output_carries_the_protocol_and_nothing_else(gateway: FakeChatGateway) -> None:
    gateway.script(raw(b"data: {\n\n"))
    calls = [
        ("initialize", {"protocolVersion": 1}),
        ("session/new", {"cwd": "/", "mcpServers": []}),
        ("no/such", {}),
        ("session/prompt", {"sessionId": "x", "prompt": []}),
    ]
    given = "".join(
        json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": params}) + "\n"
        for n, (method, params) in enumerate(calls)
    )
    done = subprocess.run(
        [forking_program(), "intern", "acp", "ada"],
        env=clean_environment(gateway.environment),
        input="no json\n" + given,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(each["jsonrpc"] == "2.0" for each in answers)
    assert {each["id"] for each in answers} >= {0, 2, 3}


@pytest.mark.parametrize("redirection", [">out", "</dev/null", "<&-", "<out"])
def test_only_pipes_are_accepted_as_standard_streams(
    gateway: FakeChatGateway, tmp_path: Path, redirection: str
) -> None:
    (tmp_path / "out").touch()
    done = subprocess.run(
        ["sh", "-c", f"exec {forking_program()} intern acp ada {redirection}"],
        env=clean_environment(gateway.environment),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "standard input and output have to be pipes: an editor starts this\n"


@pytest.mark.parametrize("how", ["stdout closed", "stdin and stdout closed", "SIGTERM"])
async def test_an_editor_that_closes_amid_a_run_leaves_no_traceback(
    gateway: FakeChatGateway, tmp_path: Path, how: str
) -> None:
    gateway.script(stream("Working", Hang))
    errors = tmp_path / "errors"
    output, their_output = os.pipe()
    with errors.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            forking_program(),
            *("intern", "acp", "ada"),
            env=clean_environment(gateway.environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=their_output,
            stderr=stderr,
        )
    os.close(their_output)
    assert process.stdin is not None
    says = process.stdin

    def say(number: int, method: str, params: object) -> None:
        call = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        says.write(json.dumps(call).encode() + b"\n")

    async def until(wanted: bytes) -> bytes:
        heard = b""
        while wanted not in heard or not heard.endswith(b"\n"):
            heard += await asyncio.to_thread(os.read, output, 65_536)
        return heard

    say(0, "initialize", {"protocolVersion": 1})
    say(1, "session/new", {"cwd": "/", "mcpServers": []})
    heard = await until(b"sessionId")
    session = json.loads(heard.splitlines()[-1])["result"]["sessionId"]
    say(2, "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]})
    await until(b"Working")
    if how == "SIGTERM":
        process.terminate()
    else:
        os.close(output)
        if how == "stdout closed":
            say(3, "no/such", {})
            await says.drain()
        says.close()
    async with asyncio.timeout(SECONDS):
        code = await process.wait()
    if how == "SIGTERM":
        os.close(output)
    assert (code, errors.read_text()) == (0, "")

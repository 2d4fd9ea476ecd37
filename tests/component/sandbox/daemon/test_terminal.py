"""Terminals: what a client types, sees, and is told."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.component.sandbox.daemon.daemon_process import text_of

if TYPE_CHECKING:
    from tests.component.sandbox.daemon.daemon_process import DaemonProcess


@pytest.fixture
def daemon(terminals_daemon: DaemonProcess) -> DaemonProcess:
    return terminals_daemon


async def test_a_terminal_runs_what_is_typed(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("echo $((6 * 7))\n")
        await terminal.read_until(b"\n42\r\n")


async def test_a_terminal_is_a_login_shell_in_the_workspace(daemon: DaemonProcess) -> None:
    (daemon.workspace / ".bash_profile").write_text("echo pro''file of $0")
    async with daemon.terminal() as terminal:
        await terminal.read_until(b"profile of -bash")
        await terminal.type("pwd; tty; echo $HOME\n")
        await terminal.read_until(b"/dev/pts/")
        await terminal.type("exit\n")
        await terminal.end()
    assert terminal.output.count(f"{daemon.workspace}\r\n".encode()) == 2


async def test_a_client_is_told_first_which_terminal_it_has(daemon: DaemonProcess) -> None:
    async with daemon.terminal(session="work") as terminal:
        attached = await terminal.attached()
    assert attached == {
        "type": "attached",
        "session": "work",
        "created": True,
        "position": 0,
        "input": 0,
    }


async def test_the_exit_code_ends_the_connection(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("exit 7\n")
        assert await terminal.end() == (1000, "the program ended")
    assert terminal.exit_code == 7


async def test_a_shell_that_a_signal_ended_exits_as_in_a_shell(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("kill -9 $$\n")
        await terminal.end()
    assert terminal.exit_code == 128 + 9


async def test_ctrl_c_interrupts_the_program_that_runs(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("sh -c 'echo be\"\"gun; exec sleep 1000'\n")
        await terminal.read_until(b"begun")
        await terminal.type("\x03")
        await terminal.type("echo code $?\n")
        await terminal.read_until(b"\ncode 130\r\n")


async def test_the_terminal_has_the_size_and_the_kind_that_were_asked_for(
    daemon: DaemonProcess,
) -> None:
    async with daemon.terminal(rows=33, cols=111, term="vt220") as terminal:
        await terminal.type("stty size; echo kind:$TERM\n")
        await terminal.read_until(b"33 111\r\nkind:vt220\r\n")


async def test_a_resize_reaches_the_program_that_runs(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        waiting = "trap 'stty size' WINCH; echo re''ady; while :; do sleep 0.05; done"
        await terminal.type(f'sh -c "{waiting}"\n')
        await terminal.read_until(b"ready\r\n")
        await terminal.say(type="resize", rows=50, cols=132)
        await terminal.read_until(b"50 132\r\n")


async def test_programs_have_the_variables_of_the_settings_and_none_of_the_daemons(
    daemon: DaemonProcess,
) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("env | cut -d= -f1 | sort | tr '\\n' ' '; exit\n")
        await terminal.end()
    assert b"TOLLHOUSE_INTERN_ID TOLLHOUSE_INTERN_NAME" in terminal.output
    assert b"DAEMON_UNDER_TEST HOME LC_ALL" in terminal.output
    assert b"PYTHON" not in terminal.output


async def test_a_program_inherits_no_descriptor_of_the_daemon(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("readlink /proc/self/fd/{3..99}; echo code $?\n")
        await terminal.read_until(b"{3..99}; echo code $?\r\ncode 1\r\n")


async def test_keys_that_are_no_utf8_arrive_as_they_are(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("stty raw -echo; echo re''ady; head -c 4 | od -An -tx1; exit\n")
        await terminal.read_until(b"ready")
        await terminal.connection.send(b"\xff\x00\x80\xc3")
        await terminal.end()
    assert b"ff 00 80 c3" in terminal.output


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("{", "a control message is no JSON"),
        ("[" * 4000, "a control message is no JSON"),
        ("[]", "a control message is no JSON object"),
        ("x" * 5000, "a control message is too long"),
        ("{}", "the type of a control message is unknown"),
        ('{"type": "sing"}', "the type of a control message is unknown"),
        ('{"type": "resize"}', "rows and cols have to be numbers from 1 to 4096"),
        (
            '{"type": "resize", "rows": 0, "cols": 80}',
            "rows and cols have to be numbers from 1 to 4096",
        ),
        (
            '{"type": "resize", "rows": 24, "cols": 1e3}',
            "rows and cols have to be numbers from 1 to 4096",
        ),
        ('{"type": "eof"}', "a terminal's input has no end: type Ctrl-D"),
    ],
    ids=lambda text: text[:48],
)
async def test_what_cannot_be_understood_ends_the_connection_with_4400(
    daemon: DaemonProcess, message: str, reason: str
) -> None:
    async with daemon.terminal() as terminal:
        await terminal.connection.send(message)
        assert await terminal.end() == (4400, reason)


async def test_a_message_that_is_too_large_ends_the_connection_with_1009(
    daemon: DaemonProcess,
) -> None:
    async with daemon.terminal() as terminal:
        await terminal.attached()
        with suppress(ConnectionClosed):  # it need not read all before it refuses
            await terminal.connection.send(b"x" * (256 * 1024 + 1))
        code, _ = await terminal.end()
    assert code == 1009


async def test_text_that_is_no_utf8_ends_the_connection_with_1007(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.attached()
        await terminal.connection.send(b"\xff\xff", text=True)
        code, _ = await terminal.end()
    assert code == 1007


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({"session": "../x"}, 400, "session has to be"),
        ({"session": ""}, 400, "session has to be"),
        ({"rows": "many"}, 400, "rows has to be a number from 1 to 4096."),
        ({"cols": 0}, 400, "cols has to be a number from 1 to 4096."),
        ({"cols": 5000}, 400, "cols has to be a number from 1 to 4096."),
        ({"term": "a b"}, 400, "term has to be"),
        ({"from": "-1"}, 400, "from has to be a number of bytes."),
        ({"tty": "maybe"}, 400, "tty has to be true or false."),
        ({"create": "false"}, 404, "There is no terminal of this name."),
    ],
    ids=str,
)
async def test_a_handshake_that_asks_for_the_impossible_is_refused(
    daemon: DaemonProcess, query: dict[str, object], status: int, message: str
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await daemon.connect(**query)
    response = refused.value.response
    assert response.status_code == status
    error = json.loads(response.body or b"")["error"]
    assert error["code"] == status
    assert error["message"].startswith(message)


async def test_a_request_that_is_no_handshake_is_told_so(daemon: DaemonProcess) -> None:
    async with daemon.client() as client:
        response = await client.get("/terminal")
    assert response.status_code == 426
    assert text_of(response) == "This is a WebSocket."

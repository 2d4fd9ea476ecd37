"""Terminals, and shells between pipes: what a client types, sees, and is told."""

from contextlib import suppress

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed

from tests.component.sandbox.daemon.daemon_process import DaemonProcess, text_of

SIZES = "rows and cols have to be numbers from 1 to 4096"
WAITING = "trap 'stty size' WINCH; echo re''ady; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("query", "typed", "shown"),
    [
        ({}, "echo $((6 * 7))\n", b"\n42\r\n"),
        (
            {"rows": 33, "cols": 111, "term": "vt220"},
            "stty size; echo kind:$TERM\n",
            b"33 111\r\nkind:vt220\r\n",
        ),
        # A program inherits no descriptor of the daemon's.
        ({}, "readlink /proc/self/fd/{3..99}; echo code $?\n", b"echo code $?\r\ncode 1\r\n"),
    ],
    ids=["output", "size and kind", "descriptors"],
)
async def test_a_terminal_runs_what_is_typed(
    daemon: DaemonProcess, query: dict[str, object], typed: str, shown: bytes
) -> None:
    async with daemon.terminal(**query) as terminal:
        await terminal.type(typed, until=shown)


async def test_a_terminal_is_a_login_shell_in_the_workspace(daemon: DaemonProcess) -> None:
    (daemon.workspace / ".bash_profile").write_text("echo pro''file of $0")
    terminal = await daemon.ran("pwd; tty; echo $HOME; exit\n")
    assert b"profile of -bash" in terminal.output
    assert b"/dev/pts/" in terminal.output
    assert terminal.output.count(f"{daemon.workspace}\r\n".encode()) == 2


async def test_a_client_is_told_first_which_terminal_it_has(daemon: DaemonProcess) -> None:
    async with daemon.terminal(session="work") as terminal:
        attached = await terminal.attached()
    told = {"session": "work", "created": True, "position": 0, "input": 0}
    assert attached == {"type": "attached", **told}


@pytest.mark.parametrize(
    ("tty", "typed", "code"),
    [
        ("true", "exit 7\n", 7),
        ("true", "kill -9 $$\n", 128 + 9),
        ("false", "exit 9\n", 9),
        ("false", "sleep 1000 &\nexit 4\n", 4),
    ],
)
async def test_the_exit_code_ends_the_connection(
    daemon: DaemonProcess, tty: str, typed: str, code: int
) -> None:
    assert (await daemon.ran(typed, tty=tty)).exit_code == code


async def test_ctrl_c_interrupts_the_program_that_runs(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("sh -c 'echo be\"\"gun; exec sleep 1000'\n", until=b"begun")
        await terminal.type("\x03")
        await terminal.type("echo code $?\n", until=b"\ncode 130\r\n")


async def test_a_resize_reaches_the_program_that_runs(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type(f'sh -c "{WAITING}"\n', until=b"ready\r\n")
        await terminal.say(type="resize", rows=50, cols=132)
        await terminal.read_until(b"50 132\r\n")


async def test_programs_have_the_variables_of_the_settings_and_none_of_the_daemons(
    daemon: DaemonProcess,
) -> None:
    terminal = await daemon.ran("env | cut -d= -f1 | sort | tr '\\n' ' '; exit\n")
    assert b"TOLLHOUSE_INTERN_ID TOLLHOUSE_INTERN_NAME" in terminal.output
    assert b"DAEMON_UNDER_TEST HOME LC_ALL" in terminal.output
    assert b"PYTHON" not in terminal.output


async def test_keys_that_are_no_utf8_arrive_as_they_are(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        typed = "stty raw -echo; echo re''ady; head -c 4 | od -An -tx1; exit\n"
        await terminal.type(typed, until=b"ready")
        await terminal.connection.send(b"\xff\x00\x80\xc3")
        await terminal.end()
    assert b"ff 00 80 c3" in terminal.output


# Scripts


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("echo out\necho err >&2\n", b"out\nerr\n"),  # no echo, no prompt, and its own line ends
        ("seq 200000\n", "".join(f"{number}\n" for number in range(1, 200_001)).encode()),
    ],
    ids=["short", "long"],
)
async def test_a_scripts_output_is_all_that_it_has_printed(
    daemon: DaemonProcess, script: str, output: bytes
) -> None:
    async with daemon.terminal(tty="false") as terminal:
        await terminal.say(type="resize", rows=30, cols=90)  # which says nothing to a script
        await terminal.type(script)
        await terminal.say(type="eof")
        await terminal.end()
    assert terminal.output == output
    assert terminal.exit_code == 0


async def test_a_script_cannot_take_a_terminals_name(daemon: DaemonProcess) -> None:
    async with daemon.terminal(session="a"):
        assert (await daemon.refusal(session="a", tty="false")).status_code == 409


# What is refused


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("{", "a control message is no JSON"),
        ("[" * 4000, "a control message is no JSON"),
        ("[]", "a control message is no JSON object"),
        ("x" * 5000, "a control message is too long"),
        ("{}", "the type of a control message is unknown"),
        ('{"type": "sing"}', "the type of a control message is unknown"),
        ('{"type": "resize"}', SIZES),
        ('{"type": "resize", "rows": 0, "cols": 80}', SIZES),
        ('{"type": "resize", "rows": 24, "cols": 1e3}', SIZES),
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


@pytest.mark.parametrize(
    ("message", "text", "code"),
    [(b"x" * (256 * 1024 + 1), False, 1009), (b"\xff\xff", True, 1007)],
    ids=["too large", "no UTF-8"],
)
async def test_a_message_that_is_none_ends_the_connection(
    daemon: DaemonProcess, message: bytes, code: int, *, text: bool
) -> None:
    async with daemon.terminal() as terminal:
        await terminal.attached()
        with suppress(ConnectionClosed):  # it need not read all before it refuses
            await terminal.connection.send(message, text=text)
        assert (await terminal.end())[0] == code


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
    refused = await daemon.refusal(**query)
    assert refused.status_code == status
    assert text_of(refused).startswith(message)


async def test_a_request_that_is_no_handshake_is_told_so(client: httpx2.AsyncClient) -> None:
    response = await client.get("/terminal")
    assert response.status_code == 426
    assert text_of(response) == "This is a WebSocket."

"""Shells between pipes: a script goes in, and its output comes back as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import InvalidStatus

if TYPE_CHECKING:
    from tests.component.sandbox.daemon.daemon_process import DaemonProcess


@pytest.fixture
def daemon(terminals_daemon: DaemonProcess) -> DaemonProcess:
    return terminals_daemon


async def test_a_scripts_output_has_no_echo_no_prompt_and_its_own_line_ends(
    daemon: DaemonProcess,
) -> None:
    async with daemon.terminal(tty="false") as terminal:
        await terminal.type("echo out\necho err >&2\n")
        await terminal.say(type="eof")
        await terminal.end()
    assert terminal.output == b"out\nerr\n"
    assert terminal.exit_code == 0


async def test_the_exit_code_is_the_scripts(daemon: DaemonProcess) -> None:
    async with daemon.terminal(tty="false") as terminal:
        await terminal.type("exit 9\n")
        assert await terminal.end() == (1000, "the program ended")
    assert terminal.exit_code == 9


async def test_all_of_a_long_output_arrives_before_the_exit_code(daemon: DaemonProcess) -> None:
    async with daemon.terminal(tty="false") as terminal:
        await terminal.type("seq 200000\n")
        await terminal.say(type="eof")
        await terminal.end()
    assert terminal.output == "".join(f"{number}\n" for number in range(1, 200_001)).encode()


async def test_a_program_in_the_background_does_not_hold_the_script_open(
    daemon: DaemonProcess,
) -> None:
    async with daemon.terminal(tty="false") as terminal:
        await terminal.type("sleep 1000 &\nexit 4\n")
        await terminal.end()
    assert terminal.exit_code == 4


async def test_a_size_says_nothing_to_a_script(daemon: DaemonProcess) -> None:
    async with daemon.terminal(tty="false") as terminal:
        await terminal.say(type="resize", rows=30, cols=90)
        await terminal.type("exit 0\n")
        await terminal.end()
    assert terminal.exit_code == 0


async def test_a_script_cannot_take_a_terminals_name(daemon: DaemonProcess) -> None:
    async with daemon.terminal(session="a"):
        with pytest.raises(InvalidStatus) as refused:
            await daemon.connect(session="a", tty="false")
    assert refused.value.response.status_code == 409

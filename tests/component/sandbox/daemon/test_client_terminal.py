"""A person's terminal, attached to one of an intern."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.component.sandbox.daemon.tcp_proxy import ATTACH_ARGUMENTS, PYTHON
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.component.sandbox.daemon.daemon_process import DaemonProcess
    from tests.component.sandbox.daemon.tcp_proxy import TcpProxy

SECONDS = 30


@pytest.fixture
def attach(tcp_proxy: TcpProxy) -> Iterator[Callable[..., Terminal]]:
    """Start a client on a terminal of its own."""
    terminals = list[Terminal]()

    def start(**environment: str) -> Terminal:
        terminals.append(
            Terminal(ATTACH_ARGUMENTS, {**tcp_proxy.environment, **environment}, PYTHON)
        )
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()
        assert tcp_proxy.environment["TOKEN"] not in terminal.text


def test_what_is_typed_runs_there_and_the_exit_code_comes_back(
    attach: Callable[..., Terminal],
) -> None:
    terminal = attach()
    terminal.read_until("attached to ada: Ctrl-] q leaves")
    terminal.type("echo $((6 * 7)); exit 5\n")
    terminal.read_until("42")
    assert terminal.end() == 5


def test_the_terminal_is_raw_meanwhile_and_as_before_afterwards(
    attach: Callable[..., Terminal],
) -> None:
    terminal = attach()
    ready(terminal)
    assert terminal.is_raw
    terminal.type("exit\n")
    terminal.read_until("exit")
    eventually(lambda: not terminal.is_raw)
    assert terminal.end() == 0


def test_the_program_there_learns_of_a_new_size(attach: Callable[..., Terminal]) -> None:
    terminal = attach()
    ready(terminal)
    terminal.resize(44, 144)
    terminal.type("until stty size | grep '44 144'; do sleep 0.05; done\n")
    terminal.read_until("44 144\r\n")


def test_ctrl_bracket_q_leaves_and_the_next_one_finds_what_was_left(
    attach: Callable[..., Terminal],
) -> None:
    first = attach()
    ready(first)
    first.type("mine=4''2; echo set:$mine\n")
    first.read_until("set:42")
    first.press(b"\x1dq")
    first.read_until("detached: the same command comes back")
    assert first.end() == 0
    second = attach()
    second.read_until("set:42")
    second.type("echo still:$mine\n")
    second.read_until("still:42")


def test_a_dropped_connection_is_made_again_without_a_byte_lost_or_twice(
    attach: Callable[..., Terminal], tcp_proxy: TcpProxy
) -> None:
    terminal = attach()
    ready(terminal)
    terminal.type("for i in $(seq 120); do echo line-$i-; sleep 0.01; done; echo al''l\n")
    for number in (10, 40, 70):
        terminal.read_until(f"line-{number}-")
        tcp_proxy.reset_connections()
        terminal.read_until("the connection dropped; trying again")
    terminal.read_until("all\r\n")
    text = terminal.text.replace("\r\n[the connection dropped; trying again]\r\n", "")
    assert re.findall(r"line-(\d+)-", text) == [str(number) for number in range(1, 121)]


def test_what_is_typed_while_there_is_no_connection_arrives(
    attach: Callable[..., Terminal], tcp_proxy: TcpProxy
) -> None:
    terminal = attach()
    ready(terminal)
    tcp_proxy.disconnect()
    terminal.read_until("trying again")
    terminal.type("echo ty''ped\n")
    tcp_proxy.reconnect()
    terminal.read_until("typed")


def test_one_may_leave_while_there_is_no_connection(
    attach: Callable[..., Terminal], tcp_proxy: TcpProxy
) -> None:
    terminal = attach()
    ready(terminal)
    tcp_proxy.disconnect()
    terminal.read_until("trying again")
    terminal.press(b"\x1dq")
    assert terminal.end() == 0


def test_without_a_connection_it_gives_up_in_the_end(
    attach: Callable[..., Terminal], tcp_proxy: TcpProxy
) -> None:
    terminal = attach(GIVE_UP="0.2")
    ready(terminal)
    tcp_proxy.disconnect()
    assert terminal.end() == 1
    assert "failed: the intern cannot be reached" in terminal.text


def test_a_shell_that_ended_meanwhile_still_says_how(
    attach: Callable[..., Terminal], tcp_proxy: TcpProxy, daemon: DaemonProcess
) -> None:
    terminal = attach()
    ready(terminal)
    terminal.type("until test -e go; do sleep 0.05; done; echo la''st; exit 9\n")
    terminal.read_until("exit 9")
    tcp_proxy.disconnect()
    terminal.read_until("trying again")
    (daemon.workspace / "go").touch()
    eventually(lambda: len(daemon.processes()) == 1)
    tcp_proxy.reconnect()
    assert terminal.end() == 9
    assert "last\r\n" in terminal.text


def test_who_is_replaced_by_another_client_does_not_fight_for_the_terminal(
    attach: Callable[..., Terminal],
) -> None:
    first = attach()
    ready(first)
    second = attach()
    ready(second)
    assert first.end() == 1
    assert "failed: another client attached to the terminal" in first.text
    second.type("echo mi''ne\n")
    second.read_until("mine")


def test_the_end_of_the_intern_ends_it(
    attach: Callable[..., Terminal], daemon: DaemonProcess
) -> None:
    terminal = attach()
    ready(terminal)
    daemon.end()
    assert terminal.end() == 1
    assert "failed: the intern ends" in terminal.text


def test_a_wrong_token_is_told_and_leaves_the_terminal_as_it_was(
    attach: Callable[..., Terminal],
) -> None:
    terminal = attach(TOKEN="wrong")
    assert terminal.end() == 1
    assert "failed: the intern refused the token" in terminal.text


def test_a_way_that_leads_nowhere_is_told_at_once(attach: Callable[..., Terminal]) -> None:
    terminal = attach(ORIGIN="http://127.0.0.1:9")
    assert terminal.end() == 1
    assert "failed: the intern cannot be reached" in terminal.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(
    attach: Callable[..., Terminal], number: signal.Signals
) -> None:
    terminal = attach()
    ready(terminal)
    os.kill(terminal.pid, number)
    eventually(lambda: not terminal.is_raw)
    assert terminal.end() == 128 + number


def ready(terminal: Terminal) -> None:
    """Wait until the shell there has answered."""
    terminal.read_until("attached to ada")
    terminal.type("echo re''ady\n")
    terminal.read_until("ready\r\n")


def eventually(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)

"""A person's terminal, attached to one of an intern."""

import os
import re
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.component.sandbox.daemon.tcp_proxy import ATTACH, TcpProxy, proxy_to
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until


@pytest.fixture
def attach(tcp_proxy: TcpProxy) -> Iterator[Callable[..., Terminal]]:
    """Start a client on a terminal of its own."""
    terminals = list[Terminal]()

    def start(**environment: str) -> Terminal:
        environment = {**tcp_proxy.environment, **environment}
        terminals.append(Terminal((), environment, script=ATTACH))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()
        assert tcp_proxy.environment["TOKEN"] not in terminal.text


@pytest.fixture
def terminal(attach: Callable[..., Terminal]) -> Terminal:
    """A client whose shell has answered."""
    return ready(attach())


def ready(terminal: Terminal) -> Terminal:
    terminal.read_until("attached to ada")
    terminal.type("echo re''ady\n")
    terminal.read_until("ready\r\n")
    return terminal


def test_what_is_typed_runs_there_and_the_exit_code_comes_back(
    attach: Callable[..., Terminal],
) -> None:
    terminal = attach()
    terminal.read_until("attached to ada: Ctrl-] q leaves")
    terminal.type("echo $((6 * 7)); exit 5\n")
    terminal.read_until("42")
    assert terminal.end() == 5


def test_the_terminal_is_raw_meanwhile_and_as_before_afterwards(terminal: Terminal) -> None:
    assert terminal.is_raw
    terminal.type("exit\n")
    terminal.read_until("exit")
    wait_until(lambda: not terminal.is_raw)
    assert terminal.end() == 0


def test_the_program_there_learns_of_a_new_size(terminal: Terminal) -> None:
    terminal.resize(44, 144)
    terminal.type("until stty size | grep '44 144'; do sleep 0.05; done\n")
    terminal.read_until("44 144\r\n")


def test_ctrl_bracket_q_leaves_and_the_next_one_finds_what_was_left(
    attach: Callable[..., Terminal], terminal: Terminal
) -> None:
    terminal.type("mine=4''2; echo set:$mine\n")
    terminal.read_until("set:42")
    terminal.press(b"\x1dq")
    terminal.read_until("detached: the same command comes back")
    assert terminal.end() == 0
    second = attach()
    second.read_until("set:42")
    second.type("echo still:$mine\n")
    second.read_until("still:42")


def test_a_dropped_connection_is_made_again_without_a_byte_lost_or_twice(
    terminal: Terminal, tcp_proxy: TcpProxy
) -> None:
    terminal.type("for i in $(seq 120); do echo line-$i-; sleep 0.01; done; echo al''l\n")
    for number in (10, 40, 70):
        terminal.read_until(f"line-{number}-")
        tcp_proxy.reset_connections()
        terminal.read_until("the connection dropped; trying again")
    terminal.read_until("all\r\n")
    text = terminal.text.replace("\r\n[the connection dropped; trying again]\r\n", "")
    assert re.findall(r"line-(\d+)-", text) == [str(number) for number in range(1, 121)]


def test_without_a_connection_what_is_typed_waits_and_one_may_leave(
    terminal: Terminal, tcp_proxy: TcpProxy
) -> None:
    tcp_proxy.disconnect()
    terminal.read_until("trying again")
    terminal.type("echo ty''ped\n")
    tcp_proxy.reconnect()
    terminal.read_until("typed")
    terminal.text = ""
    tcp_proxy.disconnect()
    terminal.read_until("trying again")
    terminal.press(b"\x1dq")
    assert terminal.end() == 0


def test_without_a_connection_it_gives_up_in_the_end(
    attach: Callable[..., Terminal], tcp_proxy: TcpProxy
) -> None:
    terminal = ready(attach(GIVE_UP="0.2"))
    tcp_proxy.disconnect()
    assert terminal.end() == 1
    assert "failed: the intern cannot be reached" in terminal.text


def test_a_shell_that_ended_meanwhile_still_says_how(
    terminal: Terminal, tcp_proxy: TcpProxy, daemon: DaemonProcess
) -> None:
    terminal.type("until test -e go; do sleep 0.05; done; echo la''st; exit 9\n")
    terminal.read_until("exit 9")
    tcp_proxy.disconnect()
    terminal.read_until("trying again")
    (daemon.workspace / "go").touch()
    wait_until(lambda: len(daemon.processes()) == 1)
    tcp_proxy.reconnect()
    assert terminal.end() == 9
    assert "last\r\n" in terminal.text


def test_who_is_replaced_by_another_client_does_not_fight_for_the_terminal(
    attach: Callable[..., Terminal], terminal: Terminal
) -> None:
    second = ready(attach())
    assert terminal.end() == 1
    assert "failed: another client attached to the terminal" in terminal.text
    second.type("echo mi''ne\n")
    second.read_until("mine")


def test_the_end_of_the_intern_ends_it(
    attach: Callable[..., Terminal], own_daemon: DaemonProcess
) -> None:
    with proxy_to(own_daemon) as proxy:
        terminal = ready(attach(**proxy.environment))
        own_daemon.end()
        assert terminal.end() == 1
    assert "failed: the intern ends" in terminal.text
    assert own_daemon.token not in terminal.text


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"TOKEN": "wrong"}, "failed: the intern refused the token"),
        ({"ORIGIN": "http://127.0.0.1:9"}, "failed: the intern cannot be reached"),
    ],
    ids=["token", "origin"],
)
def test_a_way_that_leads_nowhere_is_told_at_once(
    attach: Callable[..., Terminal], wrong: dict[str, str], told: str
) -> None:
    terminal = attach(**wrong)
    assert terminal.end() == 1
    assert told in terminal.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(
    terminal: Terminal, number: signal.Signals
) -> None:
    os.kill(terminal.pid, number)
    wait_until(lambda: not terminal.is_raw)
    assert terminal.end() == 128 + number

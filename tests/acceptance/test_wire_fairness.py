"""Short requests of an account do not wait for all those of another one that sends many at once."""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.acceptance.wire import said
from tests.support.accounts import Accounts, body
from tests.support.scripted_providers import reply
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.acceptance.wire import Wire
    from tests.support.accounts import AccountClient

MANY = 40


def test_an_account_with_many_requests_at_once_does_not_hold_up_another(wire: Wire) -> None:
    wire.providers.say("chat", reply(said("chat", "ok")))
    with closing(Accounts(wire.server)) as accounts, ExitStack() as stack:
        busy, other = (accounts.create("100") for _ in range(2))
        for each in (busy, other):  # whose keys are known by then
            assert each.ask("t/chat").status_code == 200
        sockets = [stack.enter_context(connected(wire)) for _ in range(MANY + 1)]
        with stopped(wire.server.process.pid):
            for sent in sockets[:-1]:
                sent.sendall(asked(busy, "busy"))
            sockets[-1].sendall(asked(other, "other"))
        for each in sockets:
            assert each.recv(12) == b"HTTP/1.1 200"
    texts = [each["messages"][0]["content"] for each in wire.providers.asked("chat")]
    assert texts[-MANY - 1 :].index("other") < MANY * 3 // 4


def connected(wire: Wire) -> socket.socket:
    """Return a connection that the server has taken."""
    host, _, port = wire.server.origin.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    while not connection.recv(4096).endswith(b"}"):
        pass
    return connection


@contextmanager
def stopped(pid: int) -> Generator[None]:
    """Keep a process from running; what it gets meanwhile, it finds all at once."""
    os.kill(pid, signal.SIGSTOP)
    try:
        stat = Path(f"/proc/{pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def asked(account: AccountClient, text: str) -> bytes:
    """Return a request to a model."""
    messages = [{"role": "user", "content": text}]
    content = json.dumps(body("/chat/completions", "t/chat", 5, messages=messages)).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {account.key}\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content

"""The proxy's process as the gateway keeps it: whatever happens to it, sessions go on or end."""

import asyncio
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.component.vault.egress.egress_fixture import Client
from tests.support.slow_start import SlowStart, is_gone
from tests.support.waiting import take_turns, until, wait_for_event
from tollhouse.kernel.errors import Unavailable
from tollhouse.kernel.secret import Secret
from tollhouse.vault.egress import service
from tollhouse.vault.egress.messages import FROM_PROXY, SessionLimits, SessionOpened, StartProxy
from tollhouse.vault.egress.secret_broker import Answer, Question
from tollhouse.vault.egress.service import EgressService, SessionSpec
from tollhouse.vault.egress.session_folder import SessionFolder
from tollhouse.vault.types import Recipient

WHO = Recipient("account", "workspace", None, "operator")
LIMITS = SessionLimits(connections=64, idle_seconds=60, total_seconds=600, bytes_per_minute=1 << 40)
BEGIN = StartProxy(("127.0.0.1", 9), [], LIMITS)
MANY = 50
ASK = b"GET http://gateway.internal/ HTTP/1.1\r\nHost: gateway.internal\r\n\r\n"
"""Is answered by the process itself."""
INSTEAD = """
import os, socket, sys, time
link = socket.socket(fileno=int(sys.argv[sys.argv.index("--link") + 1]))
"""
"""How a program begins that takes the place of the proxy's."""


class NoAnswers:
    """Is told of sessions, and asked nothing."""

    def __init__(self) -> None:
        self.sessions: list[str] = []

    def begin(self, session: str, who: Recipient) -> None:
        del who
        self.sessions.append(session)

    def end(self, session: str) -> None:
        if session in self.sessions:
            self.sessions.remove(session)

    async def answer(self, question: Question) -> Answer:
        raise NotImplementedError(question)


@pytest.fixture
async def egress(tmp_path: Path) -> AsyncIterator[EgressService]:
    answers = NoAnswers()
    egress = EgressService(tmp_path, answers, lambda: BEGIN)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    yield egress
    await egress.stop()
    assert answers.sessions == []
    assert egress.left_behind() == []


def pid_of(egress: EgressService) -> int:
    """Return which process serves; 0 where none does."""
    proxy = egress._proxy  # noqa: SLF001 - nobody else asks for it
    return 0 if proxy is None else proxy.process.pid


async def asked(folder: Path) -> Client:
    """Return a client of a session that has asked, and waits for the answer."""
    reader, writer = await asyncio.open_unix_connection(str(folder / "proxy.sock"))
    client = Client(reader, writer)
    await client.send(ASK)
    return client


async def is_served(folder: Path) -> bool:
    client = await asked(folder)
    try:
        return b"no_route" in await asyncio.wait_for(client.receive_all(), 20)
    finally:
        client.abort()


def authority_of(folder: Path) -> str:
    return (folder / "ca.pem").read_text()


def within(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def runs_instead(patch: pytest.MonkeyPatch, script: str) -> None:
    patch.setattr(service, "COMMAND", (sys.executable, "-c", INSTEAD + script))


# A process that is expected to be needed


async def test_a_process_that_was_made_ready_serves_the_first_session(
    egress: EgressService,
) -> None:
    egress.make_ready()
    egress.make_ready()
    ready = await until(lambda: pid_of(egress))
    assert await is_served(await egress.open(SessionSpec("a", WHO)))
    assert pid_of(egress) == ready


async def test_a_process_that_was_made_ready_ends_without_a_session(egress: EgressService) -> None:
    egress.make_ready()
    ready = await until(lambda: pid_of(egress))
    await egress.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(ready, 0)
    egress.make_ready()
    assert pid_of(egress) == 0


# A process that dies


async def test_all_of_many_sessions_are_served_and_served_again(egress: EgressService) -> None:
    names = [f"session-{number}" for number in range(MANY)]
    key = Secret("k" * 10_000)  # together they are more than the socket between both holds
    folders = await asyncio.gather(*(egress.open(SessionSpec(name, WHO, key)) for name in names))
    before = [authority_of(folder) for folder in folders]
    assert len(set(before)) == MANY
    os.kill(pid_of(egress), signal.SIGKILL)
    for folder, old in zip(folders, before, strict=True):
        await until(lambda: authority_of(folder) != old)  # noqa: B023 - awaited at once
    assert await is_served(folders[-1])


async def test_a_session_that_ended_is_not_begun_again_by_the_next_process(
    egress: EgressService,
) -> None:
    kept = await egress.open(SessionSpec("kept", WHO))
    ended = await egress.open(SessionSpec("ended", WHO))
    before = authority_of(kept)
    os.kill(pid_of(egress), signal.SIGKILL)
    await egress.close("ended")
    await until(lambda: not pid_of(egress))
    client = await asked(kept)
    await until(lambda: authority_of(kept) != before)
    assert not ended.exists()
    assert b"no_route" in await asyncio.wait_for(client.receive_all(), 20)
    client.abort()


# A process that is not what it should be


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(framed(b"hello"), id="no message"),
        pytest.param(framed(msgspec.msgpack.encode({"type": "opened"})), id="half a message"),
        pytest.param(b"\0\0\0\5he", id="a message that broke off"),
        pytest.param(b"", id="nothing"),
    ],
)
async def test_a_process_that_says_what_it_should_not_is_replaced(
    egress: EgressService, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, capture_logs() as logs:
        runs_instead(patch, f"link.sendall({said!r}); link.shutdown(socket.SHUT_WR)")
        opening = asyncio.create_task(egress.open(SessionSpec("session", WHO)))
        await until(lambda: "egress_proxy_gone" in [each["event"] for each in logs])
    folder = await opening
    assert await is_served(folder)


async def test_a_session_that_nobody_wants_changes_nothing(
    egress: EgressService, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = b"".join(
        FROM_PROXY.encode(SessionOpened(name, "written")) for name in ("unheard-of", "session")
    )
    runs_instead(monkeypatch, f"link.sendall({said!r})\nwhile link.recv(1 << 16): pass")
    assert authority_of(await egress.open(SessionSpec("session", WHO))) == "written"


async def test_a_session_is_not_opened_where_the_process_says_nothing(
    egress: EgressService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_OPEN_SECONDS", 0.2)
    monkeypatch.setattr(service, "_END_SECONDS", 0.1)
    runs_instead(monkeypatch, "time.sleep(600)")
    with pytest.raises(Unavailable):
        await egress.open(SessionSpec("session", WHO))
    await egress.stop()


async def test_a_session_is_not_opened_where_no_process_can_be_started(
    egress: EgressService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_OPEN_SECONDS", 0.2)
    monkeypatch.setattr(service, "COMMAND", ("/nowhere/at-all",))
    with pytest.raises(Unavailable), capture_logs() as logs:
        await egress.open(SessionSpec("session", WHO))
    await egress.stop()
    assert "it cannot be started: No such file or directory" in [each["reason"] for each in logs]


async def test_a_process_that_does_not_end_by_itself_is_killed(
    egress: EgressService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await egress.open(SessionSpec("session", WHO))
    monkeypatch.setattr(service, "_END_SECONDS", 0.1)
    pid = pid_of(egress)
    os.kill(pid, signal.SIGSTOP)
    await egress.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# A session that cannot be had


async def test_files_that_cannot_be_written_harm_no_other_session(
    egress: EgressService, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await egress.open(SessionSpec("kept", WHO))
    pid, tried = pid_of(egress), asyncio.Event()

    def full(folder: SessionFolder, certificate: str, more: str | None) -> None:
        del folder, certificate, more
        tried.set()
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(SessionFolder, "trust", full)
        opening = asyncio.create_task(egress.open(SessionSpec("unlucky", WHO)))
        await asyncio.wait_for(tried.wait(), 20)
    assert await is_served(await egress.open(SessionSpec("next", WHO)))
    assert await is_served(kept)
    assert pid_of(egress) == pid
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)


async def test_who_has_a_data_folder_with_too_long_a_path_is_told(tmp_path: Path) -> None:
    parent = tmp_path / ("x" * 100)
    egress = EgressService(parent, NoAnswers(), lambda: BEGIN)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(Unavailable, match="choose a data folder with a shorter path"):
        await egress.open(SessionSpec("session", WHO))
    assert within(parent) == []


async def test_a_process_without_a_descriptor_left_serves_the_sessions_that_it_has(
    egress: EgressService, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await egress.open(SessionSpec("kept", WHO))
    pid = pid_of(egress)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    with monkeypatch.context() as patch:
        patch.setattr(service, "_OPEN_SECONDS", 0.3)
        with pytest.raises(Unavailable):
            await egress.open(SessionSpec("one too many", WHO))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert await is_served(kept)
    assert await is_served(await egress.open(SessionSpec("next", WHO)))
    assert pid_of(egress) == pid


async def test_a_process_that_is_just_being_started_is_gone_when_the_server_has_stopped(
    egress: EgressService, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowStart(monkeypatch)
    opening = asyncio.create_task(egress.open(SessionSpec("session", WHO)))
    await wait_for_event(slow.begun)
    stopping = asyncio.create_task(egress.stop())
    await take_turns()
    slow.may_go_on.set()
    await stopping
    await asyncio.gather(opening, return_exceptions=True)
    assert is_gone(slow.child)


async def test_what_a_session_trusts_can_be_read_whatever_the_servers_mask(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        folder = SessionFolder(tmp_path, "session")
        folder.make().close()
        folder.trust("certificate", None)
    finally:
        os.umask(mask)
    for name in ("ca.pem", "bundle.pem"):
        assert (folder.path / name).stat().st_mode & 0o777 == 0o644


# SessionOpened and ended at once


async def test_of_two_that_open_one_session_the_second_has_it(egress: EgressService) -> None:
    first = asyncio.create_task(egress.open(SessionSpec("session", WHO)))
    await asyncio.sleep(0)
    folder = await egress.open(SessionSpec("session", WHO))
    with pytest.raises(Unavailable):
        await first
    assert await is_served(folder)


async def test_who_gives_up_opening_a_session_does_not_end_that_of_another(
    egress: EgressService,
) -> None:
    first = asyncio.create_task(egress.open(SessionSpec("session", WHO)))
    await asyncio.sleep(0)
    second = asyncio.create_task(egress.open(SessionSpec("session", WHO)))
    await asyncio.sleep(0)
    first.cancel()
    assert await is_served(await second)
    await asyncio.gather(first, return_exceptions=True)


async def test_nothing_is_left_of_a_session_that_nobody_waited_for(
    egress: EgressService, tmp_path: Path
) -> None:
    opening = asyncio.create_task(egress.open(SessionSpec("session", WHO)))
    await until(lambda: within(tmp_path))
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    assert within(tmp_path) == []


async def test_nothing_is_opened_after_the_stop(egress: EgressService) -> None:
    await egress.stop()
    with pytest.raises(Unavailable):
        await egress.open(SessionSpec("session", WHO))
    assert not pid_of(egress)


async def test_the_stop_ends_what_is_being_opened(egress: EgressService) -> None:
    opening = asyncio.create_task(egress.open(SessionSpec("session", WHO)))
    await asyncio.sleep(0)
    await egress.stop()
    with pytest.raises(Unavailable, match="before it had begun"):
        await opening
    assert not pid_of(egress)

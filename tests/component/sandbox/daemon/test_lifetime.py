"""How the daemon begins and ends, and that nothing it started outlives it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.sandbox.daemon.daemon_process import COMMAND, SECONDS, DaemonProcess
from tests.support.waiting import until

# In the background, deaf, and in a session of its own: only who adopts it can find it.
DEAF = "trap '' HUP TERM INT; echo re''ady > deaf; while :; do sleep 1000; done"
HIDDEN = f'(setsid sh -c "{DEAF}" &) ; sleep 1000\n'


async def start_hidden(daemon: DaemonProcess) -> None:
    """Leave something running that hears no signal but a kill."""
    async with daemon.terminal() as terminal:
        await terminal.type(HIDDEN)
        await terminal.attached()
        await until((daemon.workspace / "deaf").exists)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon that is no fork: how it starts and ends is tested here."""
    with DaemonProcess(tmp_path, COMMAND) as daemon:
        yield daemon


async def test_the_end_of_standard_input_ends_the_daemon_and_all_that_runs(
    daemon: DaemonProcess,
) -> None:
    await start_hidden(daemon)
    assert daemon.end() == 0
    assert daemon.processes() == []


async def test_sigterm_ends_the_daemon_and_all_that_runs(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("sleep 1000 & echo re''ady\n")
        await terminal.read_until(b"ready")
    daemon.process.terminate()
    assert daemon.process.wait(SECONDS) == 0
    assert daemon.processes() == []


async def test_a_client_is_told_that_the_intern_ends(own_daemon: DaemonProcess) -> None:
    async with own_daemon.terminal() as terminal:
        await terminal.attached()
        own_daemon.process.terminate()
        assert await terminal.end() == (1001, "the intern ends")


async def test_a_program_may_clean_up_before_the_end(own_daemon: DaemonProcess) -> None:
    async with own_daemon.terminal() as terminal:
        program = (
            "sh -c \"trap 'touch cleaned; exit' TERM; touch ready; while :; do sleep 0.1; done\""
        )
        await terminal.type(f"setsid {program}\n")
        await until((own_daemon.workspace / "ready").exists)
        own_daemon.end()
    assert (own_daemon.workspace / "cleaned").exists()


async def test_a_kill_of_the_daemon_hangs_its_terminals_up(own_daemon: DaemonProcess) -> None:
    async with own_daemon.terminal() as terminal:
        await terminal.type("sleep 1000 & sh -c 'echo re\"\"ady; exec sleep 1000'\n")
        await terminal.read_until(b"ready")
        own_daemon.process.kill()
        own_daemon.process.wait(SECONDS)
        await until(lambda: own_daemon.processes() == [])


async def test_orphans_are_reaped(own_daemon: DaemonProcess) -> None:
    async with own_daemon.terminal() as terminal:
        await terminal.type("(sh -c 'echo $$ > orphan; exec sleep 0.1' &)\n")
        await until(lambda: bool(text(own_daemon.workspace / "orphan")))
        pid = text(own_daemon.workspace / "orphan").strip()
        await until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "standard input ended before the settings did"),
        (b"{\n", "the settings are not one line of JSON"),
        (b'{"colour": "red"}\n', "unknown settings: colour"),
        (b"x" * (1 << 20) + b"x\n", "the settings are longer than 1048576 bytes"),
    ],
    ids=lambda text: str(text)[:24],
)
def test_wrong_settings_end_it_with_2_and_a_line_that_says_which(line: bytes, message: str) -> None:
    ended = subprocess.run(COMMAND, input=line, capture_output=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.decode().startswith(f"tollhouse daemon: {message}")
    assert ended.stderr.count(b"\n") == 1


def test_a_workspace_that_is_missing_ends_it_with_1(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, COMMAND, workspace=str(tmp_path / "none")) as daemon:
        assert daemon.process.wait(SECONDS) == 1
        assert daemon.log.read_text().startswith("tollhouse daemon: cannot serve: ")


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""

"""Terminals outlive connections: who comes back, who takes over, and what is kept."""

from contextlib import suppress
from pathlib import Path

import httpx2
from websockets.exceptions import ConnectionClosed

from tests.component.sandbox.daemon.daemon_process import DaemonProcess, Terminal, text_of
from tests.support.waiting import until, until_still

KEPT = 256 * 1024
GO = "until test -e go; do sleep 0.01; done"


async def test_a_second_connection_finds_the_same_shell_and_what_it_printed(
    daemon: DaemonProcess,
) -> None:
    async with daemon.terminal(session="work", rows=33, cols=99) as terminal:
        await terminal.type("mine=4''2; echo set\n", until=b"set\r\n")
    async with daemon.terminal(session="work") as terminal:
        assert not (await terminal.attached())["created"]
        await terminal.type("echo mine:$mine\n", until=b"mine:42\r\n")
        await terminal.type("stty size\n", until=b"33 99\r\n")  # it has said no other size
    assert b"set\r\n" in terminal.output


async def test_sessions_of_other_names_are_other_shells(daemon: DaemonProcess) -> None:
    async with daemon.terminal(session="one") as one, daemon.terminal(session="two") as two:
        await one.type("mine=1\n")
        await two.type("echo mine:$mine:\n", until=b"mine::\r\n")


async def test_a_client_that_says_how_far_it_was_gets_what_follows_and_no_byte_twice(
    daemon: DaemonProcess,
) -> None:
    async with daemon.terminal() as first:
        await first.type("echo on''e\n", until=b"one\r\n")
    position = len(first.output)
    second = await daemon.ran("echo t''wo; exit\n", **{"from": position})
    assert (await second.attached())["position"] == position
    async with daemon.terminal(**{"from": 0, "create": "false"}) as whole:
        await whole.end()
    assert first.output + second.output == whole.output


async def test_of_long_output_the_end_is_kept(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("seq 100000 | tee /dev/tty > seen; mv seen done\n")
        await terminal.attached()
    await until((daemon.workspace / "done").exists)  # without a client it never waits
    terminal = await daemon.ran("exit\n")
    assert (await terminal.attached())["position"] > 0
    assert len(terminal.output) <= KEPT + 1000
    assert b"\n99999\r\n100000\r\n" in terminal.output


async def test_a_program_without_a_client_never_waits(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("head -c 5000000 /dev/zero | tr '\\0' x; touch done\n")
        await terminal.attached()
    await until((daemon.workspace / "done").exists)


async def test_a_second_client_takes_over(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as first:
        await first.attached()
        async with daemon.terminal() as second:
            await second.attached()
            assert await first.end() == (4409, "another client attached to the terminal")
            await second.type("echo mi''ne\n", until=b"mine\r\n")


async def test_a_slow_client_makes_the_program_wait_and_not_the_daemon_grow(
    daemon: DaemonProcess,
) -> None:
    async with daemon.terminal() as terminal:
        await terminal.attached()
        before = resident(daemon.process.pid)
        await terminal.type(f"yes {'x' * 1000} | head -c 8000000; exit\n")
        # It reads nothing for as long as the program would need for all of it, and more.
        await until_still(lambda: have_read(daemon, "head"))
        assert resident(daemon.process.pid) - before < 4_000_000
        await terminal.end()
    assert terminal.output.count(b"x") > 7_900_000


async def test_another_terminal_goes_on_while_one_floods(daemon: DaemonProcess) -> None:
    async with daemon.terminal(session="flood") as flood, daemon.terminal(session="calm") as calm:
        await flood.type("yes\n", until=b"y\r\ny\r\n")
        await calm.type("echo ca''lm\n", until=b"calm\r\n")
        # Who leaves without reading on waits for the end of the connection in vain.
        await flood.say(type="hangup")
        await flood.end()


# Input


async def test_a_client_is_told_how_much_of_its_input_the_program_took(
    daemon: DaemonProcess,
) -> None:
    async with daemon.terminal(tty="false") as terminal:
        await terminal.type(f"{GO}; wc -c\n")
        for _ in range(3):
            await terminal.connection.send(b"x" * 80_000)
        (daemon.workspace / "go").touch()
        while taken(terminal) < 240_000 - 32 * 1024:
            await terminal.read_message()
        await terminal.say(type="eof")
        await terminal.end()
    assert terminal.output == b"240000\n"


async def test_who_comes_back_is_told_how_much_of_the_input_has_come(daemon: DaemonProcess) -> None:
    script = f"{GO}; wc -c\n"
    async with daemon.terminal(tty="false") as terminal:
        await terminal.type(script)
        await terminal.connection.send(b"x" * 100_000)
        await (await terminal.connection.ping())
    async with daemon.terminal(tty="false") as terminal:
        assert (await terminal.attached())["input"] == len(script) + 100_000
        (daemon.workspace / "go").touch()
        await terminal.say(type="eof")
        await terminal.end()
    assert terminal.output == b"100000\n"


async def test_more_input_than_may_wait_ends_the_connection_with_4413(
    daemon: DaemonProcess,
) -> None:
    async with daemon.terminal(tty="false") as terminal:
        await terminal.type("sleep 1000\n")
        with suppress(ConnectionClosed):
            for _ in range(5):
                await terminal.connection.send(b"x" * 100_000)
        reason = "more than 262144 bytes of input wait for the program"
        assert await terminal.end() == (4413, reason)


async def test_a_program_that_reads_nothing_lets_its_client_leave(
    daemon: DaemonProcess, client: httpx2.AsyncClient
) -> None:
    async with daemon.terminal(tty="false") as terminal:
        await terminal.type("sleep 1000\n")
        await terminal.connection.send(b"x" * 200_000)
        await terminal.connection.close()
        while (await client.get("/terminals")).json()["data"][0]["attached"]:
            pass


# Ends


async def test_who_was_away_at_the_end_is_told_of_it(
    daemon: DaemonProcess, client: httpx2.AsyncClient
) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type(f"{GO}; echo wo''rk; exit 3\n", until=b"exit 3")
    (daemon.workspace / "go").touch()
    while (await client.get("/terminals")).json()["data"][0]["exit_code"] is None:
        pass
    async with daemon.terminal() as terminal:
        await terminal.end()
    assert b"work\r\n" in terminal.output
    assert terminal.exit_code == 3


async def test_once_a_client_was_told_of_the_end_the_name_is_free(daemon: DaemonProcess) -> None:
    await daemon.ran("exit 3\n")
    async with daemon.terminal(create="false") as again:  # which wants no new one
        await again.end()
    assert again.exit_code == 3
    async with daemon.terminal() as terminal:
        assert (await terminal.attached())["created"]


async def test_a_client_may_hang_its_terminal_up(daemon: DaemonProcess) -> None:
    async with daemon.terminal() as terminal:
        await terminal.type("sh -c 'echo re\"\"ady; exec sleep 1000'\n", until=b"ready")
        await terminal.say(type="hangup")
        assert await terminal.end() == (1000, "the program ended")
    assert terminal.exit_code == 128 + 1


async def test_a_seventeenth_terminal_is_refused(daemon: DaemonProcess) -> None:
    for number in range(16):
        async with daemon.terminal(session=f"s{number}"):
            pass
    refused = await daemon.refusal(session="s16")
    assert refused.status_code == 429
    assert text_of(refused) == "There are 16 terminals already; end one first."


async def test_terminals_are_listed(daemon: DaemonProcess, client: httpx2.AsyncClient) -> None:
    async with daemon.terminal(session="a") as terminal:
        await terminal.attached()
        listed = (await client.get("/terminals")).json()
    assert listed == {"data": [{"session": "a", "tty": True, "attached": True, "exit_code": None}]}


async def test_a_removed_terminal_ends_with_its_client_and_its_program(
    daemon: DaemonProcess, client: httpx2.AsyncClient
) -> None:
    async with daemon.terminal(session="a") as terminal:
        deaf = "trap '' HUP; echo re''ady; while :; do sleep 1000; done\n"
        await terminal.type(deaf, until=b"ready")
        response = await client.delete("/terminals/a")
        assert await terminal.end() == (1001, "the terminal was removed")
    assert response.status_code == 204
    await until(lambda: daemon.processes() == [daemon.process.pid])
    again = await client.delete("/terminals/a")
    assert again.status_code == 404
    assert text_of(again) == "There is no terminal of this name."


def taken(terminal: Terminal) -> int:
    """Return how much of its input a client knows to be taken."""
    told = [message["position"] for message in terminal.controls if message["type"] == "input"]
    return told[-1] if told else 0


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def have_read(daemon: DaemonProcess, name: str) -> list[int]:
    """Return how many bytes the programs of a name have read; only those that have read some."""
    counts = list[int]()
    for pid in daemon.processes():
        with suppress(OSError):  # it has ended meanwhile
            if f"({name})" in Path(f"/proc/{pid}/stat").read_text():
                counts.append(int(Path(f"/proc/{pid}/io").read_text().split()[1]))
    return [count for count in counts if count > 100_000]

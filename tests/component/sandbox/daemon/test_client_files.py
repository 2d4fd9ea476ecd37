"""Files that are fetched from an intern, sent to one, and listed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.component.sandbox.daemon.tcp_proxy import TcpProxy
from tests.support.loop_time import LoopTime
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns.daemon import DaemonCredentials
from tollhouse.cli.interns.files import InternFiles, open_files
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.secret import Secret

LARGE = 20_000_000


@pytest.fixture
async def files(tcp_proxy: TcpProxy) -> AsyncIterator[InternFiles]:
    access = DaemonCredentials(
        tcp_proxy.environment["ORIGIN"], Secret(tcp_proxy.environment["TOKEN"])
    )
    async with open_files(access) as files:
        yield files


async def test_a_file_is_sent_with_its_permissions_and_fetched_with_them(
    files: InternFiles, daemon: DaemonProcess, tmp_path: Path
) -> None:
    script = tmp_path / "run.sh"
    script.write_text("echo hello")
    script.chmod(0o750)
    sent = await files.put(script, "bin/run.sh")
    size = await files.get("bin/run.sh", tmp_path / "back.sh")
    assert sent["mode"] == "0750"
    assert size == 10
    assert (daemon.workspace / "bin/run.sh").read_text() == "echo hello"
    assert (tmp_path / "back.sh").read_text() == "echo hello"
    assert (tmp_path / "back.sh").stat().st_mode & 0o777 == 0o750


async def test_a_folder_gives_a_file_its_name_on_either_side(
    files: InternFiles, daemon: DaemonProcess, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "here").mkdir()
    await files.put(tmp_path / "a.txt", "/workspace/there/")
    await files.get("/workspace/there/a.txt", tmp_path / "here")
    assert (daemon.workspace / "there/a.txt").read_text() == "a"
    assert (tmp_path / "here/a.txt").read_text() == "a"


async def test_standard_input_and_output_do_too(
    files: InternFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped")))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(taken))
    await files.put(None, "x")
    assert await files.get("x", None) == 5
    assert taken.getvalue() == b"piped"


async def test_standard_input_may_take_its_time(
    files: InternFiles, daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = LoopTime(monkeypatch)

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            time.jump(3600)
            return super().read(size)

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Slow(b"late")))
    await files.put(None, "x")
    assert (daemon.workspace / "x").read_text() == "late"


async def test_a_reader_of_standard_output_that_has_enough_is_no_failure(
    files: InternFiles, daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    (daemon.workspace / "x").write_text("x")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody:
        monkeypatch.setattr(sys, "stdout", nobody)
        assert await files.get("x", None) == 0


async def test_a_large_folder_is_listed_whole(files: InternFiles, daemon: DaemonProcess) -> None:
    (daemon.workspace / "many").mkdir()
    for number in range(1500):
        (daemon.workspace / "many" / f"{number:04}").touch()
    found = [item["name"] for item in await files.listed("many")]
    assert found == [f"{number:04}" for number in range(1500)]


async def test_a_file_whose_connection_breaks_is_gone_on_with(
    files: InternFiles, daemon: DaemonProcess, tcp_proxy: TcpProxy, tmp_path: Path
) -> None:
    content = os.urandom(LARGE)
    (daemon.workspace / "large").write_bytes(content)
    target = tmp_path / "large"
    breaking = Breaking(tcp_proxy)
    monitored = files._fetch  # noqa: SLF001 - to break it while it runs

    async def fetch(path: str, file: io.BufferedIOBase, begun: object) -> int:
        return await monitored(path, breaking.around(file), begun)  # type: ignore[arg-type]

    files._fetch = fetch  # type: ignore[method-assign]  # noqa: SLF001
    assert await files.get("large", target) == LARGE
    assert target.read_bytes() == content
    assert breaking.count == 2


async def test_a_pipe_gets_a_file_and_stays_a_pipe(
    files: InternFiles, daemon: DaemonProcess, tmp_path: Path
) -> None:
    (daemon.workspace / "x").write_text("x")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        await files.get("x", pipe)
        assert reader.read() == "x"
    assert pipe.is_fifo()


async def test_what_cannot_be_read_here_is_told(files: InternFiles, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be read"):
        await files.put(tmp_path / "none", "x")


async def test_a_link_leads_to_the_file_that_is_replaced_once_it_is_there(
    files: InternFiles, daemon: DaemonProcess, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(CommandFailed, match="There is no such file or folder"):
        await files.get("x", tmp_path / "link")
    assert (tmp_path / "file").read_text() == "old"
    (daemon.workspace / "x").write_text("new")
    await files.get("x", tmp_path / "link")
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    assert {*os.listdir(tmp_path)} == {"file", "link"}  # noqa: PTH208 - names


async def test_what_is_no_file_is_not_fetched_and_no_folder_not_listed(
    files: InternFiles, daemon: DaemonProcess, tmp_path: Path
) -> None:
    (daemon.workspace / "folder").mkdir()
    (daemon.workspace / "file").touch()
    with pytest.raises(CommandFailed, match="folder is a folder"):
        await files.get("folder", tmp_path / "x")
    with pytest.raises(CommandFailed, match="file is a file"):
        await files.listed("file")


async def test_a_way_that_leads_nowhere_is_told(tcp_proxy: TcpProxy) -> None:
    for origin, why in (
        (tcp_proxy.environment["ORIGIN"], "refused the token"),
        ("http://127.0.0.1:9", "the connection to the intern failed"),
    ):
        async with open_files(DaemonCredentials(origin, Secret("wrong"))) as files:
            with pytest.raises(CommandFailed, match=why):
                await files.listed()


class Breaking:
    """A file that cuts the way at some places of its content."""

    def __init__(self, tcp_proxy: TcpProxy) -> None:
        self._way = tcp_proxy
        self.count = 0

    def around(self, file: io.BufferedIOBase) -> Breaking:
        self._file = file
        return self

    def write(self, data: bytes) -> int:
        if self._file.tell() > (self.count + 1) * LARGE // 4 and self.count < 2:
            self.count += 1
            self._way.reset_connections()
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def isatty(self) -> bool:
        return False

"""The workspace's files over HTTP."""

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess, text_of
from tests.support.waiting import until

LARGE = 30_000_000
NAMES = ("plain", "with space", "ümläut", "日本", "a%20b", "q?x=1#f", "new\nline", "-rf", ".hidden")


def encoded(name: str) -> str:
    """Return a name as a path may hold it: every byte of it escaped."""
    return "".join(f"%{byte:02X}" for byte in name.encode())


async def test_a_file_that_is_sent_can_be_fetched(
    daemon: DaemonProcess, client: httpx2.AsyncClient
) -> None:
    sent = await client.put("/files/a/b/c.txt", content=b"hello")
    fetched = await client.get("/files/a/b/c.txt")
    assert sent.status_code == 201
    assert (daemon.workspace / "a/b/c.txt").read_bytes() == b"hello"
    assert fetched.content == b"hello"
    assert fetched.headers["Content-Type"] == "application/octet-stream"
    listed = (await client.get("/files/a/b/")).json()
    assert listed == {"data": [sent.json()], "has_more": False}
    how = {"name": "c.txt", "type": "file", "size": 5, "mode": "0644"}
    assert sent.json() == {**how, "modified_at": sent.json()["modified_at"]}


async def test_a_file_that_is_replaced_keeps_its_permissions_unless_others_are_asked_for(
    daemon: DaemonProcess, client: httpx2.AsyncClient
) -> None:
    script = daemon.workspace / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    sent = await client.put("/files/run.sh", content=b"new")
    assert (sent.status_code, sent.json()["mode"]) == (200, "0750")
    assert script.read_text() == "new"
    assert (await client.put("/files/run.sh?mode=755", content=b"x")).json()["mode"] == "0755"


async def test_a_path_through_too_many_folders_is_refused_and_makes_none(
    daemon: DaemonProcess, client: httpx2.AsyncClient
) -> None:
    deep = await client.put("/files/top" + "/d" * 256 + "/file", content=b"x")
    assert deep.status_code == 400
    assert text_of(deep) == "The path leads through more than 256 folders."
    assert not (daemon.workspace / "top").exists()
    fits = await client.put("/files/top" + "/d" * 255 + "/file", content=b"x")
    assert fits.status_code == 201


async def test_folders_of_any_depth_can_be_removed(
    daemon: DaemonProcess, client: httpx2.AsyncClient
) -> None:
    folder = os.open(daemon.workspace, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    removed = await client.delete("/files/d?recursive=true")
    assert removed.status_code == 204
    assert not (daemon.workspace / "d").exists()


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_may_hold_whatever_a_name_can(
    daemon: DaemonProcess, client: httpx2.AsyncClient, name: str
) -> None:
    await client.put(f"/files/{encoded(name)}", content=b"x")
    fetched = await client.get(f"/files/{encoded(name)}")
    names = [item["name"] for item in (await client.get("/files")).json()["data"]]
    assert (daemon.workspace / name).read_bytes() == b"x"
    assert fetched.content == b"x"
    assert name in names


def a_folder(workspace: Path) -> None:
    (workspace / "folder").mkdir()


def a_file(workspace: Path) -> None:
    (workspace / "file").touch()


def a_pipe(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")


def a_circle(workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")


MISSING = "There is no such file or folder."
NO_MODE = "mode has to be an octal number from 0 to 777."
NO_LIMIT = "limit has to be a whole number from 1 to 10000."


@pytest.mark.parametrize(
    ("made", "request_line", "status", "message"),
    [
        (None, "GET /files/%2e%2e/x", 400, "The path may not hold '.' or '..'."),
        (None, "GET /files/a%2f..%2f..%2fx", 400, "The path may not hold '.' or '..'."),
        (None, "GET /files/a/%2E/x", 400, "The path may not hold '.' or '..'."),
        (None, "GET /files/a//x", 400, "A name in the path is empty."),
        (None, "GET /files/a%00b", 400, "A name cannot hold a NUL."),
        (None, "GET /files/%ff", 400, "The path is not UTF-8."),
        (None, f"GET /files/{'x' * 256}", 400, "A name is too long."),
        *((None, f"{method} /files/none", 404, MISSING) for method in ("GET", "DELETE")),
        *((None, f"PUT /files/x?mode={m}", 400, NO_MODE) for m in ("7777", "rwx", "-1", "9", "")),
        *((None, f"GET /files?limit={n}", 400, NO_LIMIT) for n in ("0", "x", "10001", "-1")),
        (None, "DELETE /files/?recursive=true", 409, "The workspace itself cannot be removed."),
        (a_folder, "PUT /files/folder", 409, "There is a folder of this name."),
        (a_file, "PUT /files/file/below", 409, None),
        (a_pipe, "GET /files/pipe", 409, "It is neither a file nor a folder."),
        (a_circle, "GET /files/a", 409, "Links lead to each other."),
    ],
    ids=lambda told: told[:32] if isinstance(told, str) else None,
)
async def test_what_cannot_be_is_refused_with_the_reason(
    daemon: DaemonProcess,
    client: httpx2.AsyncClient,
    made: Callable[[Path], None] | None,
    request_line: str,
    status: int,
    message: str | None,
) -> None:
    if made is not None:
        made(daemon.workspace)
    method, path = request_line.split(" ")
    response = await client.request(method, path)
    assert response.status_code == status
    assert message in {None, text_of(response)}


class TestLinks:
    async def test_a_link_that_leads_out_is_not_followed(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient, tmp_path: Path
    ) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "file").write_text("not yours")
        beside = daemon.workspace.with_name("workspace-2")
        links = {
            "up": "../outside",
            "absolute": str(tmp_path / "outside"),
            "etc": "/etc",
            "out and back": "../workspace/real",
            "beside": str(beside),  # its name begins the same
        }
        (daemon.workspace / "real").mkdir()
        beside.mkdir(exist_ok=True)
        for name, target in links.items():
            (daemon.workspace / name).symlink_to(target)
        for name in links:
            for method in ("GET", "PUT", "DELETE"):
                response = await client.request(method, f"/files/{name}/file")
                assert response.status_code == 403
                assert text_of(response) == "A link on the path leads out of the workspace."
        assert (tmp_path / "outside" / "file").read_text() == "not yours"

    async def test_a_link_that_stays_inside_is_followed(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient
    ) -> None:
        (daemon.workspace / "real").mkdir()
        (daemon.workspace / "real" / "file").write_text("here")
        (daemon.workspace / "relative").symlink_to("real")
        (daemon.workspace / "absolute").symlink_to(daemon.workspace / "real")
        (daemon.workspace / "real" / "back").symlink_to("../real/file")
        for path in ("relative/file", "absolute/file", "relative/back"):
            assert (await client.get(f"/files/{path}")).content == b"here"

    async def test_what_is_sent_to_a_link_replaces_the_file_and_not_the_link(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient
    ) -> None:
        (daemon.workspace / "file").write_text("old")
        (daemon.workspace / "link").symlink_to("file")
        await client.put("/files/link", content=b"new")
        assert (daemon.workspace / "link").is_symlink()
        assert (daemon.workspace / "file").read_text() == "new"

    async def test_a_link_is_removed_and_not_what_it_leads_to(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient, tmp_path: Path
    ) -> None:
        (tmp_path / "outside").mkdir()
        (daemon.workspace / "link").symlink_to(tmp_path / "outside")
        response = await client.delete("/files/link?recursive=true")
        assert response.status_code == 204
        assert not (daemon.workspace / "link").is_symlink()
        assert (tmp_path / "outside").exists()


class TestListings:
    async def test_a_folder_is_listed_by_name_with_what_its_things_are(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient
    ) -> None:
        (daemon.workspace / "file").write_text("12345")
        (daemon.workspace / "folder").mkdir()
        (daemon.workspace / "link").symlink_to("file")
        os.mkfifo(daemon.workspace / "pipe")
        listed = (await client.get("/files")).json()
        assert [(item["name"], item["type"], item["size"]) for item in listed["data"]] == [
            ("file", "file", 5),
            ("folder", "folder", 0),
            ("link", "link", 0),
            ("pipe", "other", 0),
        ]

    async def test_a_large_folder_comes_in_pages(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient
    ) -> None:
        for number in range(25):
            (daemon.workspace / f"{number:02}").touch()
        found = list[str]()
        more = True
        while more:
            query = {"limit": 10, "after": found[-1] if found else ""}
            page = (await client.get("/files/", params=query)).json()
            found += [item["name"] for item in page["data"]]
            more = page["has_more"]
        assert found == [f"{number:02}" for number in range(25)]

    async def test_a_name_that_is_not_utf8_is_left_out(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient
    ) -> None:
        (daemon.workspace / os.fsdecode(b"\xff")).touch()
        (daemon.workspace / "seen").touch()
        listed = (await client.get("/files")).json()
        assert [item["name"] for item in listed["data"]] == ["seen"]


class TestParts:
    @pytest.mark.parametrize(
        ("wanted", "status", "content", "content_range"),
        [
            ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
            ("bytes=7-", 206, b"789", "bytes 7-9/10"),
            ("bytes=-2", 206, b"89", "bytes 8-9/10"),
            ("bytes=5-99", 206, b"56789", "bytes 5-9/10"),
            *(
                (no_part, 200, b"0123456789", None)
                for no_part in ("lines=1-2", "bytes=3-1", "bytes=0-1,4-5", "bytes=-")
            ),
            *((behind, 416, None, "bytes */10") for behind in ("bytes=10-", "bytes=-0")),
        ],
    )
    async def test_a_part_of_a_file_can_be_asked_for(
        self,
        daemon: DaemonProcess,
        client: httpx2.AsyncClient,
        wanted: str,
        status: int,
        content: bytes | None,
        content_range: str | None,
    ) -> None:
        (daemon.workspace / "digits").write_text("0123456789")
        response = await client.get("/files/digits", headers={"Range": wanted})
        assert response.status_code == status
        assert response.headers.get("Content-Range") == content_range
        if content is None:
            assert text_of(response) == "The file has no such part."
        else:
            assert response.content == content

    async def test_a_part_of_a_file_that_has_changed_meanwhile_is_the_whole_file(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient
    ) -> None:
        (daemon.workspace / "file").write_text("old one")
        tag = (await client.head("/files/file")).headers["ETag"]
        (daemon.workspace / "file").write_text("another")
        headers = {"Range": "bytes=3-", "If-Range": tag}
        response = await client.get("/files/file", headers=headers)
        assert response.status_code == 200
        assert response.content == b"another"

    async def test_a_head_says_how_large_a_file_is(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient
    ) -> None:
        (daemon.workspace / "digits").write_text("0123456789")
        response = await client.head("/files/digits")
        assert response.headers["Content-Length"] == "10"
        assert response.headers["Accept-Ranges"] == "bytes"
        assert response.content == b""


async def test_a_folder_goes_with_all_that_it_holds_only_when_asked_to(
    daemon: DaemonProcess, client: httpx2.AsyncClient
) -> None:
    (daemon.workspace / "a" / "b").mkdir(parents=True)
    (daemon.workspace / "a" / "file").touch()
    assert (await client.delete("/files/a/file")).status_code == 204
    assert [path.name for path in (daemon.workspace / "a").iterdir()] == ["b"]
    refused = await client.delete("/files/a")
    assert refused.status_code == 409
    assert "recursive=true" in text_of(refused)
    assert (await client.delete("/files/a?recursive=true")).status_code == 204
    assert not (daemon.workspace / "a").exists()


class TestLargeFiles:
    @pytest.fixture
    def daemon(self, own_daemon: DaemonProcess) -> DaemonProcess:
        """One whose memory and limits are this test's."""
        return own_daemon

    async def test_a_file_of_any_size_passes_through_a_bounded_piece_of_memory(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient
    ) -> None:
        await client.get("/files")
        before = peak(daemon)
        await client.put("/files/large", content=pieces(LARGE))
        async with client.stream("GET", "/files/large") as response:
            size = sum([len(piece) async for piece in response.aiter_raw()])
        assert size == LARGE
        assert peak(daemon) - before < 6_000_000

    async def test_a_file_that_is_not_sent_to_its_end_is_not_there(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient
    ) -> None:
        async def broken() -> AsyncIterator[bytes]:
            yield b"x" * 1_000_000
            raise ConnectionAbortedError

        (daemon.workspace / "file").write_text("old")
        with pytest.raises(ConnectionAbortedError):
            await client.put("/files/file", content=broken())
        await until(lambda: uploads(daemon) == [])
        assert (daemon.workspace / "file").read_text() == "old"

    async def test_what_a_kill_has_left_of_a_file_goes_with_the_next_start(
        self, tmp_path: Path
    ) -> None:
        left = tmp_path / "workspace" / ".intern" / "uploads"
        left.mkdir(parents=True)
        (left / "half").touch()
        with DaemonProcess(tmp_path) as daemon:
            async with daemon.client() as client:
                await client.get("/healthz")
            assert uploads(daemon) == []

    async def test_a_file_over_the_limit_is_a_413(self, tmp_path: Path) -> None:
        with DaemonProcess(tmp_path, largest_file_bytes=1000) as daemon:
            async with daemon.client() as client:
                declared = await client.put("/files/x", content=b"x" * 1001)
                streamed = await client.put("/files/x", content=pieces(1001))
                fits = await client.put("/files/x", content=b"x" * 1000)
        for response in (declared, streamed):
            assert response.status_code == 413
            assert text_of(response) == "A file may have 1000 bytes at most."
        assert fits.status_code == 201

    async def test_a_file_that_cannot_fit_is_a_507_before_it_is_sent(self, tmp_path: Path) -> None:
        with DaemonProcess(tmp_path, largest_file_bytes=1 << 62) as daemon:
            reader, writer = await asyncio.open_unix_connection(daemon.path)
            head = f"PUT /files/x HTTP/1.1\r\nHost: d\r\nContent-Length: {1 << 61}\r\n"
            writer.write(f"{head}Authorization: Bearer {daemon.token}\r\n\r\n".encode())
            assert await reader.readline() == b"HTTP/1.1 507 Insufficient Storage\r\n"
            writer.close()
            await writer.wait_closed()

    async def test_who_may_write_no_more_is_told_so(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient
    ) -> None:
        await client.get("/healthz")
        limits = (0, resource.RLIM_INFINITY)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, limits)
        response = await client.put("/files/x", content=b"x")
        health = await client.get("/healthz")
        assert (response.status_code, text_of(response)) == (507, "The workspace is full.")
        assert health.json()["disk_full"] is True

    async def test_a_disk_that_is_full_is_a_507_and_leaves_nothing(
        self, daemon: DaemonProcess, client: httpx2.AsyncClient
    ) -> None:
        limits = (1_000_000, resource.RLIM_INFINITY)
        await client.get("/healthz")
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, limits)
        response = await client.put("/files/x", content=b"x" * 2_000_000)
        assert response.status_code == 507
        assert uploads(daemon) == []
        assert not (daemon.workspace / "x").exists()

    async def test_a_reader_that_leaves_closes_the_file(self, daemon: DaemonProcess) -> None:
        (daemon.workspace / "large").write_bytes(b"x" * LARGE)
        async with daemon.client() as client, client.stream("GET", "/files/large") as response:
            assert response.status_code == 200
            await until(lambda: opened(daemon, "large"))
        await until(lambda: not opened(daemon, "large"))

    async def test_a_file_that_shrinks_while_it_is_read_is_not_taken_for_whole(
        self, daemon: DaemonProcess
    ) -> None:
        (daemon.workspace / "large").write_bytes(b"x" * LARGE)
        async with daemon.client() as client, client.stream("GET", "/files/large") as response:
            os.truncate(daemon.workspace / "large", 10)
            with pytest.raises(httpx2.RemoteProtocolError):
                await response.aread()


async def pieces(size: int) -> AsyncIterator[bytes]:
    """Yield so many bytes, in pieces, so that nobody knows their number."""
    while size:
        piece = min(size, 100_000)
        yield b"x" * piece
        size -= piece


def peak(daemon: DaemonProcess) -> int:
    """Return the most memory that the daemon ever had, in bytes."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    (line,) = (line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def uploads(daemon: DaemonProcess) -> list[str]:
    folder = daemon.workspace / ".intern" / "uploads"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def opened(daemon: DaemonProcess, name: str) -> bool:
    """Tell whether the daemon has a file of a name open."""
    for file in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if str(file.readlink()).endswith(f"/{name}"):
                return True
    return False

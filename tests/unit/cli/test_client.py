"""The client against made-up servers; the real ones are in `tests/acceptance/cli`."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tollhouse.cli.client import Server, UploadBody, is_listening
from tollhouse.cli.errors import CommandFailed, ReplyTruncated
from tollhouse.cli.references import intern_id
from tollhouse.kernel.errors import StartError

Handler = Callable[[httpx2.Request], httpx2.Response]


def server_that(handle: Handler) -> Server:
    http = httpx2.AsyncClient(
        transport=httpx2.MockTransport(handle), base_url="http://gateway.example/v1"
    )
    return Server(http)


def listing(total: int, page: int, *, counted: bool) -> tuple[Server, list[str]]:
    """Return a server with a list of numbers, and the queries that it gets."""
    queries: list[str] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        queries.append(request.url.query.decode())
        offset = int(request.url.params["offset"])
        reply: dict[str, Any] = {"data": [{"n": n} for n in range(total)][offset : offset + page]}
        return httpx2.Response(200, json=reply | ({"total_count": total} if counted else {}))

    return server_that(handle), queries


@pytest.mark.parametrize(
    ("total", "page", "counted", "requests"),
    [
        (0, 50, True, 1),
        (50, 50, True, 1),
        (120, 50, True, 3),
        (0, 100, False, 1),
        (99, 100, False, 1),
        (100, 100, False, 2),
        (250, 100, False, 3),
    ],
)
async def test_a_list_is_read_to_its_end(
    total: int, page: int, requests: int, *, counted: bool
) -> None:
    server, queries = listing(total, page, counted=counted)
    assert [each["n"] for each in await server.list_all("/keys")] == list(range(total))
    assert len(queries) == requests


async def test_a_list_that_shrinks_while_it_is_read_still_ends() -> None:
    def handle(request: httpx2.Request) -> httpx2.Response:
        data = [{"n": 1}] if request.url.params["offset"] == "0" else []
        return httpx2.Response(200, json={"data": data, "total_count": 5})

    assert await server_that(handle).list_all("/users") == [{"n": 1}]


def test_no_socket_can_have_so_long_a_path(tmp_path: Path) -> None:
    assert not is_listening(tmp_path / ("x" * 200) / "control.sock")


def test_a_folder_of_another_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_: socket.socket, __: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(StartError, match="belongs to another user"):
        is_listening(tmp_path / "control.sock")


def streaming(*pieces: bytes, end: Exception | None = None, hang: bool = False) -> Server:
    """Return a server whose reply comes in pieces, and then to this end."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if hang:
            await asyncio.Event().wait()
        if end is not None:
            raise end

    return server_that(
        lambda _: httpx2.Response(200, headers={"Content-Type": "Text/X; a=b"}, content=body())
    )


async def read(server: Server) -> list[bytes]:
    async with server.stream("/x", {}, begin_seconds=1, silent_seconds=0.05) as reply:
        assert (reply.status, reply.content_type) == (200, "text/x")
        return [piece async for piece in reply.pieces]


@pytest.mark.parametrize("hang", [True, False], ids=["silent", "cut"])
async def test_a_reply_that_does_not_come_to_its_end_has_broken_off(*, hang: bool) -> None:
    server = streaming(b"a", end=httpx2.ReadError("reset"), hang=hang)
    with pytest.raises(ReplyTruncated, match="broke off") as broken:
        await read(server)
    assert broken.value.retryable


async def test_a_date_to_come_again_is_no_number_of_seconds() -> None:
    headers = {"Retry-After": "Sun, 22 Nov 2026 12:00:00 GMT"}
    with pytest.raises(CommandFailed) as refused:
        await read(server_that(lambda _: httpx2.Response(503, headers=headers)))
    assert refused.value.retry_after_seconds is None


async def test_of_several_interns_of_one_name_none_is_meant() -> None:
    interns = [{"id": each, "name": "bob"} for each in ("b1", "b2")]
    server = server_that(lambda _: httpx2.Response(200, json={"data": interns, "has_more": False}))
    assert await intern_id(server, "b1") == "b1"
    with pytest.raises(CommandFailed, match="several interns"):
        await intern_id(server, "bob")


@pytest.mark.parametrize("prefix", ["connection", "proxy"])
async def test_what_comes_under_tls_during_an_upload_may_be_no_answer(prefix: str) -> None:
    class Readable:
        def get_extra_info(self, _: str) -> bool:
            return True

    body = UploadBody([b"one", b"two"])
    await body.trace("connection.connect_tcp.complete", {"return_value": Readable()})
    await body.trace(f"{prefix}.start_tls.complete", {"return_value": Readable()})
    assert [each async for each in body] == [b"one", b"two"]

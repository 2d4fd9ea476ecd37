"""The client against made-up servers; the real ones are in `tests/acceptance/cli`."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tollhouse.cli.client import Server, is_listening
from tollhouse.cli.errors import CommandFailed, ReplyTruncated
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


async def test_what_is_not_given_is_not_sent() -> None:
    server, queries = listing(0, 50, counted=True)
    await server.list_all("/keys", workspace_id=None, include_disabled=True, include_expired=False)
    assert queries == ["offset=0&include_disabled=true&include_expired=false"]


async def test_paths_lie_below_the_version() -> None:
    seen: list[str] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(str(request.url))
        return httpx2.Response(200, json={"data": {}})

    await server_that(handle).get("/keys/a%2Fb")
    assert seen == ["http://gateway.example/v1/keys/a%2Fb"]


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(200, text="<html>"),
        httpx2.Response(200, json=[]),
        httpx2.Response(200, json={"hello": 1}),
        httpx2.Response(302, headers={"location": "https://login.example"}),
        httpx2.Response(502, text="Bad Gateway"),
    ],
)
async def test_another_kind_of_server_is_recognised(response: httpx2.Response) -> None:
    with pytest.raises(CommandFailed, match="not like a Tollhouse server"):
        await server_that(lambda _: response).get("/keys")


async def test_a_refusal_says_what_the_server_said() -> None:
    reply = {"error": {"code": 404, "message": "No such user."}}
    server = server_that(lambda _: httpx2.Response(404, json=reply))
    with pytest.raises(CommandFailed, match=r"^No such user\. `tollhouse users list`"):
        await server.get("/users/x")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (httpx2.ConnectError("Connection refused"), r"\(Connection refused\)"),
        (httpx2.ReadTimeout("took long"), r"\(it did not answer in time\)"),
    ],
)
async def test_nobody_there_is_one_line(error: httpx2.RequestError, said: str) -> None:
    def handle(_: httpx2.Request) -> httpx2.Response:
        raise error

    with pytest.raises(CommandFailed, match=said) as failed:
        await server_that(handle).get("/keys")
    assert "\n" not in str(failed.value)


def test_a_socket_answers_while_somebody_listens(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    assert not is_listening(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert is_listening(path)
    assert path.exists()
    assert not is_listening(path)  # what a killed server leaves behind


def test_no_socket_can_have_so_long_a_path(tmp_path: Path) -> None:
    assert not is_listening(tmp_path / ("x" * 200) / "control.sock")


def test_a_folder_of_another_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_: socket.socket, __: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(StartError, match="belongs to another user"):
        is_listening(tmp_path / "control.sock")


async def test_a_list_that_says_whether_there_is_more_is_read_to_its_end() -> None:
    def handle(request: httpx2.Request) -> httpx2.Response:
        offset = int(request.url.params["offset"])
        data = [{"n": n} for n in range(offset, offset + 100)]
        return httpx2.Response(200, json={"data": data, "has_more": offset < 100})

    assert len(await server_that(handle).list_all("/vault/secrets")) == 200


async def test_a_deletion_may_be_answered_with_nothing() -> None:
    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(204)

    assert await server_that(handle).send("DELETE", "/vault/secrets/a") is None


async def test_nothing_is_no_answer_to_a_question() -> None:
    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(204)

    with pytest.raises(CommandFailed, match="not like a Tollhouse server"):
        await server_that(handle).get("/vault/secrets")


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


async def test_a_reply_is_read_as_it_comes() -> None:
    assert await read(streaming(b"a", b"b")) == [b"a", b"b"]


@pytest.mark.parametrize("hang", [True, False], ids=["silent", "cut"])
async def test_a_reply_that_does_not_come_to_its_end_has_broken_off(*, hang: bool) -> None:
    server = streaming(b"a", end=httpx2.ReadError("reset"), hang=hang)
    with pytest.raises(ReplyTruncated, match="broke off") as broken:
        await read(server)
    assert broken.value.retryable


async def test_a_refusal_has_the_reason_and_when_to_come_again() -> None:
    def handle(_: httpx2.Request) -> httpx2.Response:
        error = {"code": 409, "message": "No.", "metadata": {"reason": "busy", "retryable": True}}
        return httpx2.Response(409, headers={"Retry-After": "5"}, json={"error": error})

    with pytest.raises(CommandFailed, match=r"^No\.") as refused:
        await read(server_that(handle))
    error = refused.value
    assert (error.status, error.reason, error.retry_after_seconds) == (409, "busy", 5.0)


async def test_a_date_to_come_again_is_no_number_of_seconds() -> None:
    headers = {"Retry-After": "Sun, 22 Nov 2026 12:00:00 GMT"}
    with pytest.raises(CommandFailed) as refused:
        await read(server_that(lambda _: httpx2.Response(503, headers=headers)))
    assert refused.value.retry_after_seconds is None

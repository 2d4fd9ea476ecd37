"""The tee keeps what a gateway streams; what breaks the grammar then fails its test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.chat_grammar import IllegalStream, check_recorded
from tests.support.chat_tee import ChatTee, RecordedStream
from tests.unit.interns.chat.test_chat_grammar import as_bytes, asking, failing, legal

if TYPE_CHECKING:
    from tollhouse.api.asgi import Message, Receive, Scope, Send

PATH = "/v1/interns/ada/chat/completions"
WHOLE = as_bytes(legal())
BEGUN = WHOLE[: WHOLE.index(b"data: ", WHOLE.index(b'"x"'))]


class Gateway:
    """Streams some bytes; what the client does meanwhile is told."""

    def __init__(
        self, data: bytes, *, ends: bool = True, kind: bytes = b"text/event-stream"
    ) -> None:
        self._data = data
        self._ends = ends
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        headers = [(b"content-type", self._kind)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self._data, "more_body": True})
        if self._ends:
            await send({"type": "http.response.body", "body": b""})
        else:
            await receive()


async def heard(
    gateway: Gateway, path: str = PATH, *, told: str = "http.request"
) -> list[RecordedStream]:
    tee = ChatTee(gateway)
    came: list[Message] = []

    async def receive() -> Message:
        return {"type": told}

    async def send(message: Message) -> None:
        came.append(message)

    scope: Any = {"type": "http", "path": path}
    await tee(scope, receive, send)
    assert came[0]["status"] == 200
    return tee.streams


@pytest.mark.parametrize("chunks", [legal(), asking(), failing()])
async def test_a_legal_stream_passes(chunks: list[dict[str, Any]]) -> None:
    [passed] = await heard(Gateway(as_bytes(chunks)))
    assert passed == RecordedStream(as_bytes(chunks), ended=True, client_left=False)
    check_recorded(passed)


async def test_a_stream_that_breaks_the_grammar_is_found() -> None:
    [passed] = await heard(Gateway(WHOLE.replace(b'"index": 0', b'"index": 1')))
    with pytest.raises(IllegalStream, match="another index"):
        check_recorded(passed)


async def test_a_stream_that_the_gateway_does_not_end_is_found() -> None:
    [passed] = await heard(Gateway(BEGUN, ends=False))
    with pytest.raises(IllegalStream, match="broke off"):
        check_recorded(passed)


@pytest.mark.parametrize("data", [b"", BEGUN[:20], BEGUN, BEGUN + WHOLE[:9], WHOLE[:-20], WHOLE])
async def test_a_stream_that_its_client_left_may_be_a_beginning(data: bytes) -> None:
    [passed] = await heard(Gateway(data, ends=False), told="http.disconnect")
    assert passed.client_left
    check_recorded(passed)


@pytest.mark.parametrize("poison", [(b'"x"', b'""'), (b"assistant", b"user"), (b"data:", b"say:")])
async def test_also_a_beginning_has_to_be_legal(poison: tuple[bytes, bytes]) -> None:
    gateway = Gateway(BEGUN.replace(*poison), ends=False)
    [passed] = await heard(gateway, told="http.disconnect")
    with pytest.raises(IllegalStream):
        check_recorded(passed)


async def test_who_does_not_read_has_left() -> None:
    tee = ChatTee(Gateway(BEGUN))
    stuck = asyncio.Event()

    async def send(message: Message) -> None:
        if message.get("body"):
            stuck.set()
            await asyncio.Event().wait()

    scope: Any = {"type": "http", "path": PATH}
    answering = asyncio.ensure_future(tee(scope, asyncio.Event().wait, send))  # type: ignore[arg-type]
    await stuck.wait()
    answering.cancel()
    await asyncio.wait([answering])
    [passed] = tee.streams
    assert passed.client_left
    check_recorded(passed)


async def test_nothing_but_streams_of_chats_is_kept() -> None:
    assert await heard(Gateway(WHOLE), "/v1/chat/completions") == []
    assert await heard(Gateway(b"{}", kind=b"application/json")) == []


def test_a_stream_is_a_line_of_a_file_and_back() -> None:
    passed = RecordedStream(b"data: \xc3\xa9\n\n", ended=False, client_left=True)
    assert RecordedStream.from_line(passed.as_line()) == passed

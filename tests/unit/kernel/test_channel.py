"""A channel between two processes: every message comes whole, or an error says why not."""

import asyncio
import io
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.kernel.channel import (
    Channel,
    ChannelClosed,
    ChannelError,
    MalformedMessage,
    MessageTooLong,
)


class Text(msgspec.Struct, tag="text", frozen=True):
    text: str


class Data(msgspec.Struct, tag="data", frozen=True):
    data: bytes
    number: int = 0


class Anything(msgspec.Struct, tag="anything", frozen=True):
    value: object


Message = Text | Data | Anything
LARGEST = 4096
CHANNEL: Channel[Message] = Channel(Message, largest=LARGEST)
MESSAGES = (Text("Grüße"), Data(bytes(range(256)), 7), Anything({"a": [1, None, "b", 1.5]}))
FRAMES = b"".join(map(CHANNEL.encode, MESSAGES))


def stream_of(data: bytes, *, ended: bool = True) -> asyncio.StreamReader:
    stream = asyncio.StreamReader(limit=64)
    stream.feed_data(data)
    if ended:
        stream.feed_eof()
    return stream


async def from_stream(data: bytes) -> list[Message]:
    """Return what comes before the other side's end."""
    reader = CHANNEL.reader(stream_of(data))
    found: list[Message] = []
    with suppress(ChannelClosed):
        while True:
            found.append(await reader.receive())
    return found


def from_file(data: bytes) -> list[Message]:
    file = io.BytesIO(data)
    found: list[Message] = []
    with suppress(ChannelClosed):
        while True:
            found.append(CHANNEL.receive_blocking(file))
    return found


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


async def errors_of(data: bytes) -> list[ChannelError]:
    """Return the error with which each way of reading refuses these bytes."""
    errors: list[ChannelError] = []
    with pytest.raises(ChannelError) as raised:
        await CHANNEL.reader(stream_of(data)).receive()
    errors.append(raised.value)
    ways: tuple[Callable[[], object], ...] = (
        lambda: CHANNEL.receive_blocking(io.BytesIO(data)),
        lambda: CHANNEL.decode(data),
    )
    for way in ways:
        with pytest.raises(ChannelError) as raised:
            way()
        errors.append(raised.value)
    return errors


async def test_messages_come_as_they_were_sent_in_their_order() -> None:
    assert await from_stream(FRAMES) == list(MESSAGES)
    assert from_file(FRAMES) == list(MESSAGES)
    assert [CHANNEL.decode(CHANNEL.encode(each)) for each in MESSAGES] == list(MESSAGES)


async def test_frames_cut_at_any_byte_give_the_whole_messages_before_it() -> None:
    ends = [len(b"".join(map(CHANNEL.encode, MESSAGES[:n]))) for n in range(len(MESSAGES) + 1)]
    for size in range(len(FRAMES) + 1):
        whole = list(MESSAGES[: sum(end <= size for end in ends) - 1])
        assert await from_stream(FRAMES[:size]) == whole
        assert from_file(FRAMES[:size]) == whole


async def test_the_error_of_a_cut_says_how_much_came() -> None:
    frame = CHANNEL.encode(Text("secret"))
    for cut, text in (
        (0, "is gone"),
        (3, "after 3 of 4 bytes"),
        (len(frame) - 1, "after 22 of 23"),
    ):
        for error in await errors_of(frame[:cut]):
            assert isinstance(error, ChannelClosed)
            assert isinstance(error, EOFError)
            assert text in str(error)
            assert "secret" not in repr(error)


async def test_a_message_of_the_largest_size_passes_and_one_byte_more_does_not() -> None:
    overhead = len(CHANNEL.encode(Data(b"x" * 300))) - 4 - 300
    largest = Data(b"x" * (LARGEST - overhead))
    frame = CHANNEL.encode(largest)
    assert len(frame) == 4 + LARGEST
    assert await from_stream(frame) == from_file(frame) == [largest]
    with pytest.raises(MessageTooLong, match=f"{LARGEST + 1} bytes; {LARGEST} are allowed"):
        CHANNEL.encode(Data(largest.data + b"x"))


async def test_a_length_over_the_limit_is_refused_before_anything_is_read() -> None:
    for size in (LARGEST + 1, 0xFFFF_FFFF):
        head = size.to_bytes(4, "big")
        for error in await errors_of(head):
            assert isinstance(error, MessageTooLong)
        file = io.BytesIO(head + b"rest")
        with pytest.raises(MessageTooLong):
            CHANNEL.receive_blocking(file)
        assert file.read() == b"rest"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x81",
        msgspec.msgpack.encode(3),
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode({}),
        msgspec.msgpack.encode({"type": "text"}),
        msgspec.msgpack.encode({"type": "text", "text": 3}),
        msgspec.msgpack.encode({"type": 3, "text": "x"}),
        msgspec.msgpack.encode({"type": "other", "text": "x"}),
        msgspec.msgpack.encode(Text("x")) + b"\x00",
        b"\x82\xa4type\xa4text\xa4text\xa2\xff\xff",
        b"\x82\xa4type\xa8anything\xa5value" + b"\x91" * 3000 + b"\xc0",
    ],
)
async def test_what_is_no_message_of_the_channel_is_malformed(body: bytes) -> None:
    for error in await errors_of(framed(body)):
        assert isinstance(error, MalformedMessage)


async def test_the_error_of_a_malformed_message_quotes_no_value() -> None:
    class Choice(msgspec.Struct, tag="choice"):
        choice: bool
        password: bytes = b""

    channel = Channel(Choice, largest=100)
    bodies = (
        {"type": "secret", "choice": True},
        {"type": "choice", "choice": "secret"},
        {"type": "choice", "choice": True, "password": "secret!"},
    )
    for body in bodies:
        with pytest.raises(MalformedMessage) as raised:
            channel.decode(framed(msgspec.msgpack.encode(body)))
        assert "secret" not in str(raised.value)
        assert "$." in str(raised.value)


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_an_error_of_the_channel(data: bytes) -> None:
    file = io.BytesIO(data)
    with suppress(ChannelError):
        while True:
            CHANNEL.receive_blocking(file)


async def test_sending_waits_while_the_other_process_does_not_read() -> None:
    ours, theirs = socket.socketpair()
    _, writer = await asyncio.open_unix_connection(sock=ours)
    message, sent = Data(b"x" * 4000), 0

    async def send_all() -> None:
        nonlocal sent
        for sent in range(1, 1001):  # noqa: B007 - counted for the test
            await CHANNEL.send(writer, message)

    sending = asyncio.create_task(send_all())
    before = -1
    while sent != before:
        before = sent
        await asyncio.sleep(0.05)
    assert 0 < sent < 1000
    stream, answering = await asyncio.open_unix_connection(sock=theirs)
    reader = CHANNEL.reader(stream)
    with closing(writer), closing(answering):
        for _ in range(1000):
            assert await reader.receive() == message
        await sending


async def test_sending_to_a_process_that_is_gone_is_a_closed_channel() -> None:
    ours, theirs = socket.socketpair()
    _, writer = await asyncio.open_unix_connection(sock=ours)
    theirs.close()

    async def send_all() -> None:
        while True:
            await CHANNEL.send(writer, Text("x"))
            await asyncio.sleep(0)

    with closing(writer), pytest.raises(ChannelClosed):
        await send_all()
    with pytest.raises(ChannelClosed):
        await CHANNEL.send(writer, Text("x"))


def test_the_module_imports_nothing_heavy() -> None:
    heavy = {"asyncio", "structlog", "pydantic", "sqlalchemy", "email", "http", "ssl"}
    code = "import sys, tollhouse.kernel.channel; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert heavy.isdisjoint(loaded.decode().split())

"""What the gateway and its proxy say to each other arrives as it was said, and shows no value."""

from __future__ import annotations

import asyncio
from io import StringIO

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tollhouse.vault.egress.messages import (
    LARGEST_OPEN,
    AskBound,
    AskLapsed,
    AskRelease,
    Begin,
    Bound,
    Close,
    FromProxy,
    Given,
    Lapsed,
    Limits,
    Open,
    Opened,
    ToProxy,
    Value,
    Values,
    Withheld,
    frame,
    open_message,
    read_from_proxy,
    read_open,
    read_to_proxy,
)

LIMITS = Limits(100, 60.0, 3_600.0, 1_000_000)
VALUE = Value("token", "gh0_\u00fc\U0001f511\t", "vault", 3)
TO_PROXY = {
    "begin": Begin(("127.0.0.1", 8080), ["/v1/models"], LIMITS, ["a.com"], ["10.0.0.0/8"]),
    "begin with all": Begin(
        ("::1", 8080),
        [],
        LIMITS,
        [],
        [],
        {"a.com": "10.0.0.5"},
        "-----BEGIN CERTIFICATE-----",
        ["a.com:8443"],
    ),
    "close": Close("session"),
    "bound": Bound(1, bound=True),
    "values": Values(2, [VALUE]),
    "withheld": Withheld(3, "unbound"),
    "lapsed": Lapsed(4, [0, 2]),
}
FROM_PROXY = {
    "opened": Opened("session", "-----BEGIN CERTIFICATE-----"),
    "ask bound": AskBound(1, "session", "a.com"),
    "ask release": AskRelease(2, "session", "a.com", ["token", "user"]),
    "ask lapsed": AskLapsed(3, [Given("session", "a.com", "token", "vault", 3)]),
}
OPEN = Open("session", "sk-or-v1-key", "password-1", plain_http=False)


def stream(*pieces: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    for piece in pieces:
        reader.feed_data(piece)
    reader.feed_eof()
    return reader


@pytest.mark.parametrize("message", TO_PROXY.values(), ids=TO_PROXY)
async def test_the_proxy_reads_what_the_gateway_said(message: ToProxy) -> None:
    assert await read_to_proxy(stream(frame(message))) == message


@pytest.mark.parametrize("message", FROM_PROXY.values(), ids=FROM_PROXY)
async def test_the_gateway_reads_what_the_proxy_said(message: FromProxy) -> None:
    assert await read_from_proxy(stream(frame(message))) == message


async def test_messages_follow_each_other_in_any_pieces() -> None:
    data = b"".join(map(frame, TO_PROXY.values()))
    reader = stream(*(data[at : at + 7] for at in range(0, len(data), 7)))
    assert [await read_to_proxy(reader) for _ in TO_PROXY] == [*TO_PROXY.values()]


@given(st.text(), st.text(), st.integers(0, 2**31))
def test_any_value_arrives_as_it_was(name: str, value: str, number: int) -> None:
    async def read() -> ToProxy:
        return await read_to_proxy(stream(frame(said)))

    try:
        (name + value).encode()
    except UnicodeEncodeError:
        return  # no value is stored that is no Unicode
    said = Values(number, [Value(name, value, "vault", 1)])
    assert asyncio.run(read()) == said


@pytest.mark.parametrize("size", [0, 3, 4, 10])
async def test_a_message_that_broke_off_ends_the_stream(size: int) -> None:
    data = frame(Close("session"))
    with pytest.raises(EOFError):
        await read_to_proxy(stream(data[:size]))
    with pytest.raises(EOFError):
        await read_from_proxy(stream(data[:size]))


async def test_each_side_hears_only_what_the_other_one_says() -> None:
    with pytest.raises(msgspec.ValidationError):
        await read_to_proxy(stream(frame(FROM_PROXY["opened"])))
    with pytest.raises(msgspec.ValidationError):
        await read_from_proxy(stream(frame(TO_PROXY["values"])))


@pytest.mark.parametrize(
    "opened",
    [OPEN, Open("session", None, None, plain_http=True)],
    ids=["with a key and a password", "without"],
)
def test_what_opens_a_session_comes_beside_its_socket(opened: Open) -> None:
    data = open_message(opened)
    assert len(data) < LARGEST_OPEN
    assert read_open(data) == opened


def in_colours(message: object) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(message)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_no_message_shows_a_value_or_a_key() -> None:
    shown = f"{OPEN!r} {VALUE!r} {Values(1, [VALUE])!r} {OPEN} {VALUE}"
    assert shown.startswith("Open(session) Value(token) ")
    shown += in_colours([OPEN, VALUE, Values(1, [VALUE])])
    assert "gh0_" not in shown
    assert "sk-or" not in shown
    assert "password-1" not in shown

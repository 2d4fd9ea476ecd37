"""What the gateway and its proxy say to each other arrives as it was said, and shows no value."""

from __future__ import annotations

import asyncio
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tollhouse.kernel.channel import ChannelClosed, MalformedMessage
from tollhouse.vault.egress.messages import (
    FROM_PROXY,
    LARGEST_OPEN,
    OPEN,
    TO_PROXY,
    AskBound,
    AskLapsed,
    AskRelease,
    Bound,
    CloseSession,
    FromProxy,
    Grant,
    Lapsed,
    OpenSession,
    ReleaseDenied,
    ReleasedValue,
    SessionLimits,
    SessionOpened,
    StartProxy,
    ToProxy,
    Values,
)

LIMITS = SessionLimits(100, 60.0, 3_600.0, 1_000_000)
VALUE = ReleasedValue("token", "gh0_\u00fc\U0001f511\t", "vault", 3)
MESSAGES_TO = {
    "begin": StartProxy(("127.0.0.1", 8080), ["/v1/models"], LIMITS, ["a.com"], ["10.0.0.0/8"]),
    "begin with all": StartProxy(
        ("::1", 8080),
        [],
        LIMITS,
        [],
        [],
        {"a.com": "10.0.0.5"},
        "-----BEGIN CERTIFICATE-----",
        ["a.com:8443"],
    ),
    "close": CloseSession("session"),
    "bound": Bound(1, bound=True),
    "values": Values(2, [VALUE]),
    "withheld": ReleaseDenied(3, "unbound"),
    "lapsed": Lapsed(4, [0, 2]),
}
MESSAGES_FROM = {
    "opened": SessionOpened("session", "-----BEGIN CERTIFICATE-----"),
    "ask bound": AskBound(1, "session", "a.com"),
    "ask release": AskRelease(2, "session", "a.com", ["token", "user"]),
    "ask lapsed": AskLapsed(3, [Grant("session", "a.com", "token", "vault", 3)]),
}
OPENED = OpenSession("session", "sk-or-v1-key", "password-1", plain_http=False)


def stream(*pieces: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    for piece in pieces:
        reader.feed_data(piece)
    reader.feed_eof()
    return reader


@pytest.mark.parametrize("message", MESSAGES_TO.values(), ids=MESSAGES_TO)
async def test_the_proxy_reads_what_the_gateway_said(message: ToProxy) -> None:
    assert await TO_PROXY.reader(stream(TO_PROXY.encode(message))).receive() == message


@pytest.mark.parametrize("message", MESSAGES_FROM.values(), ids=MESSAGES_FROM)
async def test_the_gateway_reads_what_the_proxy_said(message: FromProxy) -> None:
    assert await FROM_PROXY.reader(stream(FROM_PROXY.encode(message))).receive() == message


async def test_messages_follow_each_other_in_any_pieces() -> None:
    data = b"".join(map(TO_PROXY.encode, MESSAGES_TO.values()))
    reader = TO_PROXY.reader(stream(*(data[at : at + 7] for at in range(0, len(data), 7))))
    assert [await reader.receive() for _ in MESSAGES_TO] == [*MESSAGES_TO.values()]


@given(st.text(), st.text(), st.integers(0, 2**31))
def test_any_value_arrives_as_it_was(name: str, value: str, number: int) -> None:
    try:
        (name + value).encode()
    except UnicodeEncodeError:
        return  # no value is stored that is no Unicode
    said = Values(number, [ReleasedValue(name, value, "vault", 1)])
    assert TO_PROXY.decode(TO_PROXY.encode(said)) == said


@pytest.mark.parametrize("size", [0, 3, 4, 10])
async def test_a_message_that_broke_off_ends_the_stream(size: int) -> None:
    data = TO_PROXY.encode(CloseSession("session"))
    with pytest.raises(ChannelClosed):
        await TO_PROXY.reader(stream(data[:size])).receive()
    with pytest.raises(ChannelClosed):
        await FROM_PROXY.reader(stream(data[:size])).receive()


async def test_each_side_hears_only_what_the_other_one_says() -> None:
    with pytest.raises(MalformedMessage):
        await TO_PROXY.reader(stream(FROM_PROXY.encode(MESSAGES_FROM["opened"]))).receive()
    with pytest.raises(MalformedMessage):
        await FROM_PROXY.reader(stream(TO_PROXY.encode(MESSAGES_TO["values"]))).receive()


@pytest.mark.parametrize(
    "opened",
    [OPENED, OpenSession("session", None, None, plain_http=True)],
    ids=["with a key and a password", "without"],
)
def test_what_opens_a_session_comes_beside_its_socket(opened: OpenSession) -> None:
    data = OPEN.encode(opened)
    assert len(data) < LARGEST_OPEN
    assert OPEN.decode(data) == opened


def in_colours(message: object) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(message)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_no_message_shows_a_value_or_a_key() -> None:
    shown = f"{OPENED!r} {VALUE!r} {Values(1, [VALUE])!r} {OPENED} {VALUE}"
    assert shown.startswith("OpenSession(session) ReleasedValue(token) ")
    shown += in_colours([OPENED, VALUE, Values(1, [VALUE])])
    assert "gh0_" not in shown
    assert "sk-or" not in shown
    assert "password-1" not in shown

"""What the gateway and its proxy say to each other arrives as it was said, and shows no value."""

import asyncio
from collections.abc import Awaitable
from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tollhouse.kernel.channel import MalformedMessage
from tollhouse.vault.egress import secret_broker
from tollhouse.vault.egress.exchange import RequestSequence
from tollhouse.vault.egress.messages import (
    FROM_PROXY,
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
from tollhouse.vault.egress.rejections import UNAVAILABLE, Rejected, Rejection
from tollhouse.vault.egress.secret_broker import SecretBrokerClient

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


async def test_each_side_hears_only_what_the_other_one_says() -> None:
    with pytest.raises(MalformedMessage):
        await TO_PROXY.reader(stream(FROM_PROXY.encode(MESSAGES_FROM["opened"]))).receive()
    with pytest.raises(MalformedMessage):
        await FROM_PROXY.reader(stream(TO_PROXY.encode(MESSAGES_TO["values"]))).receive()


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


# A sequence of requests shows no value that it was told


NOT_USED: Any = None


def test_values_that_were_sent_are_in_no_repr() -> None:
    sequence = RequestSequence(NOT_USED, NOT_USED, NOT_USED, NOT_USED)
    sequence._values.add("hunter2")  # noqa: SLF001 - what an exchange does
    assert "hunter2" not in repr(sequence)
    assert "hunter2" not in repr(sequence.exchange)


# What the proxy asks the gateway, and what it takes for an answer


HOST = "a.com"


class Gateway:
    """Remembers what it is asked, and answers when a test wants it to."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.broker = SecretBrokerClient(self._hear)

    def _hear(self, framed: bytes) -> None:
        self.asked.append(msgspec.to_builtins(FROM_PROXY.decode(framed)))

    async def bound(self, host: str = HOST) -> asyncio.Task[bool]:
        asking = asyncio.create_task(self.broker.is_bound("session", host))
        await asyncio.sleep(0)
        return asking


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


async def refusal_of(asking: Awaitable[object]) -> Rejection:
    with pytest.raises(Rejected) as refused:
        await asking
    return refused.value.rejection


async def test_each_answer_goes_to_its_question(gateway: Gateway) -> None:
    first, second = await gateway.bound("a.com"), await gateway.bound("b.com")
    numbers = {each["host"]: each["number"] for each in gateway.asked}
    gateway.broker.receive(Bound(numbers["b.com"], bound=True))
    gateway.broker.receive(Bound(numbers["a.com"], bound=False))
    assert (await first, await second) == (False, True)


async def test_a_gateway_that_does_not_answer_is_not_available(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_broker, "ANSWER_SECONDS", 0.01)
    assert await refusal_of(await gateway.bound()) is UNAVAILABLE


async def test_an_answer_that_comes_too_late_is_nobodys(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(secret_broker, "ANSWER_SECONDS", 0.01)
        await refusal_of(await gateway.bound())
    asking = await gateway.bound()
    gateway.broker.receive(Bound(1, bound=True))
    gateway.broker.receive(Bound(2, bound=False))
    assert await asking is False


async def test_of_two_answers_to_one_question_the_first_one_counts(gateway: Gateway) -> None:
    asking = await gateway.bound()
    gateway.broker.receive(Bound(1, bound=False))
    gateway.broker.receive(Bound(1, bound=True))
    assert await asking is False


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ReleaseDenied(1, "no-such-reason"), id="a reason that is none"),
        pytest.param(Values(1, []), id="an answer to another question"),
    ],
)
async def test_what_is_no_answer_is_a_no(gateway: Gateway, answer: ReleaseDenied | Values) -> None:
    asking = await gateway.bound()
    gateway.broker.receive(answer)
    assert await refusal_of(asking) is UNAVAILABLE

"""What the proxy asks the gateway, and what it takes for an answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tollhouse.vault.egress import secret_broker
from tollhouse.vault.egress.messages import (
    FROM_PROXY,
    Bound,
    Grant,
    Lapsed,
    ReleaseDenied,
    ReleasedValue,
    Values,
)
from tollhouse.vault.egress.rejections import OTHER_HOST, UNAVAILABLE, Rejected, Rejection
from tollhouse.vault.egress.secret_broker import SecretBrokerClient

if TYPE_CHECKING:
    from collections.abc import Awaitable

HOST = "a.com"


class Gateway:
    """Remembers what it is asked, and answers when a test wants it to."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.broker = SecretBrokerClient(self._hear)

    def _hear(self, framed: bytes) -> None:
        self.asked.append(msgspec.to_builtins(FROM_PROXY.decode(framed)))

    async def bound(self, host: str = HOST) -> asyncio.Task[bool]:
        """Return a question that has been asked."""
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


async def test_values_come_with_what_they_were_released_as(gateway: Gateway) -> None:
    asking = asyncio.create_task(gateway.broker.release("session", HOST, ["token"]))
    await asyncio.sleep(0)
    gateway.broker.receive(Values(1, [ReleasedValue("token", "value", "vault", 3)]))
    found = (await asking)["token"]
    assert found.grant == Grant("session", HOST, "token", "vault", 3)
    assert found.value.reveal() == "value"


async def test_what_has_lapsed_is_told_by_its_place(gateway: Gateway) -> None:
    grants = [Grant("session", HOST, name, "vault", 1) for name in ("one", "two", "three")]
    asking = asyncio.create_task(gateway.broker.lapsed(grants))
    await asyncio.sleep(0)
    gateway.broker.receive(Lapsed(1, [2, 0]))
    assert await asking == [grants[2], grants[0]]


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


async def test_what_is_withheld_is_refused_for_the_reason_that_is_given(gateway: Gateway) -> None:
    asking = await gateway.bound()
    gateway.broker.receive(ReleaseDenied(1, OTHER_HOST.reason))
    assert await refusal_of(asking) is OTHER_HOST


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

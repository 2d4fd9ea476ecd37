r"""Attacks on the proxy: each sends bytes, and checks what reached the host.

    @attack(row, off)
    async def name(egress): ...       asserts that it is stopped

`off` disables the rule; the same attack must then succeed, or the test proves nothing.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from tests.component.vault.egress.egress_fixture import API, VALUE, Client, EgressFixture
from tests.support.providers.raw_server import RawServer

DisableRule = Callable[[pytest.MonkeyPatch], None]
RunAttack = Callable[[EgressFixture], Awaitable[None]]
TOKEN = "Authorization: Bearer {{secret:token}}"


class Attack(NamedTuple):
    """An attack, and how its rule is disabled."""

    row: str
    run: RunAttack
    off: DisableRule


ATTACKS: dict[str, Attack] = {}


def attack(row: str, off: DisableRule) -> Callable[[RunAttack], RunAttack]:
    def register(run: RunAttack) -> RunAttack:
        ATTACKS[run.__name__] = Attack(row, run, off)
        return run

    return register


def without(owner: object, name: str, instead: object) -> DisableRule:
    return lambda patch: patch.setattr(owner, name, instead)


def check_nothing(*_: object, **__: object) -> None:
    """Check nothing."""


def is_refused(
    row: str,
    off: DisableRule,
    reason: str,
    name: str,
    lines: tuple[str, ...] = (TOKEN,),
    request: str = "GET / HTTP/1.1",
    host: str = API,
    body: bytes = b"",
) -> None:
    """Register an attack that is one request, and refused before anything reaches a host."""

    async def run(egress: EgressFixture) -> None:
        client = await egress.tunnel()
        head = egress.head(*lines, request=request, host=host)
        await assert_refused(client, head + body, reason, request.partition(" ")[0])
        assert_nothing_reached(egress.api)

    ATTACKS[name] = Attack(row, run, off)


async def assert_refused(client: Client, data: bytes, reason: str, method: str = "GET") -> None:
    _, headers, body = await client.request(data, method)
    assert headers.get("x-tollhouse-egress") == reason
    assert VALUE.encode() not in body


def assert_nothing_reached(server: RawServer) -> None:
    assert [bytes(peer.arrived) for peer in server.peers if peer.arrived] == []

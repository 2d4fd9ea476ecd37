r"""Attacks on the proxy: the bytes, what may reach a host's socket, and the rule that stops them.

    @attack(row, off)
    async def name(house): ...        asserts that it is stopped

`off` takes the rule away; the same attack must then be seen, or the test shows nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.integration.vault.egress.house import VALUE, Client, House

if TYPE_CHECKING:
    from tollhouse.testing.raw_server import RawServer

Off = Callable[[pytest.MonkeyPatch], None]
Run = Callable[[House], Awaitable[None]]
TOKEN = "Authorization: Bearer {{secret:token}}"


class Attack(NamedTuple):
    """An attack, and how its rule is taken away."""

    row: str
    run: Run
    off: Off


ATTACKS: dict[str, Attack] = {}


def attack(row: str, off: Off) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        ATTACKS[run.__name__] = Attack(row, run, off)
        return run

    return register


def without(owner: object, name: str, instead: object) -> Off:
    """Return what puts something else in the place of a rule."""
    return lambda patch: patch.setattr(owner, name, instead)


def nothing(*_: object, **__: object) -> None:
    """Check nothing."""


async def refused(client: Client, data: bytes, reason: str, method: str = "GET") -> None:
    _, headers, body = await client.ask(data, method)
    assert headers.get("x-tollhouse-egress") == reason
    assert VALUE.encode() not in body


def nothing_reached(server: RawServer) -> None:
    assert [bytes(peer.arrived) for peer in server.peers if peer.arrived] == []

"""From a host name to addresses, and from addresses to a socket: what every way out shares.

Where somebody else names the host, `CheckedDialer` judges its addresses before one is called:

    name ──> looked up once ──> every address judged ──> one of these is connected to

The name is not looked up again, so an answer that changes meanwhile changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from aiohappyeyeballs import (
    start_connection,  # pyright: ignore[reportUnknownVariableType] - a tuple left open in its types
)

from tollhouse.outbound.destinations import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.outbound.destinations import Network

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""As `socket.getaddrinfo` returns them."""

Resolve = Callable[[str, int], Awaitable[Sequence[AddressInfo]]]
"""From a host and a port to addresses; raises `OSError` where there is none."""

CONNECT_SECONDS: Final = 10.0
"""How long a `CheckedDialer` tries."""
_HAPPY_EYEBALLS_SECONDS: Final = 0.25
"""RFC 8305, section 5: the recommended Connection Attempt Delay."""


class SystemResolver:
    """Asks the system; requests for one name share one lookup.

    A lookup occupies a thread until the system answers, which cannot be cancelled. Sharing keeps
    a name server that hangs from taking one thread for each request.
    """

    def __init__(self) -> None:
        self._lookups: dict[tuple[str, int], asyncio.Task[list[AddressInfo]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[AddressInfo]:
        """Return the addresses of a host; raises `OSError` where it has none."""
        with suppress(socket.gaierror):
            return numeric(host, port)
        lookup = self._lookups.get((host, port))
        if lookup is None:
            lookup = asyncio.create_task(_look_up(host, port))
            self._lookups[host, port] = lookup
            lookup.add_done_callback(lambda done: self._forget((host, port), done))
        return await asyncio.shield(lookup)

    def close(self) -> None:
        """Wait for no answer any more."""
        for lookup in tuple(self._lookups.values()):
            lookup.cancel()

    def _forget(self, key: tuple[str, int], done: asyncio.Task[list[AddressInfo]]) -> None:
        self._lookups.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever asked may have gone: an error is not left unlooked at


async def connect_to(addresses: Sequence[AddressInfo]) -> socket.socket:
    """Return a connection to the first of some addresses that answers, or raise `OSError`."""
    try:
        return await start_connection(
            addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_SECONDS, socket_factory=open_socket
        )
    except (RuntimeError, ValueError) as error:
        raise OSError(str(error)) from error


def open_socket(info: AddressInfo) -> socket.socket:
    """Return a socket that sends at once and probes a silent peer."""
    family, kind, proto, _, _ = info
    sock = socket.socket(family, kind, proto)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


async def _look_up(host: str, port: int) -> list[AddressInfo]:
    loop = asyncio.get_running_loop()
    return [*await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def numeric(host: str, port: int) -> list[AddressInfo]:
    """Return an address as it is connected to; raises `socket.gaierror` where it is none."""
    return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)]


class DestinationRefused(Exception):
    """The host has an address that may not be called."""


@dataclass(frozen=True, slots=True)
class CheckedDialer:
    """Connects to hosts that others name."""

    _resolve: Resolve
    _allowed: Sequence[Network]
    """What an operator opens; see `destinations`."""
    _addresses: Mapping[str, str]
    """Fixed addresses of hosts, in place of a name server's; judged like any other."""

    async def dial(self, host: str, port: int) -> socket.socket:
        """Return a connection.

        Raises:
            DestinationRefused: One of the host's addresses may not be called.
            OSError: None can be reached, or not in time.
        """
        async with asyncio.timeout(CONNECT_SECONDS):
            known = self._addresses.get(host)
            found = await self._resolve(host, port) if known is None else numeric(known, port)
            for info in found:
                why = refusal(ip_address(info[4][0].partition("%")[0]), self._allowed)
                if why is not None:
                    raise DestinationRefused(why)
            return await connect_to(found)

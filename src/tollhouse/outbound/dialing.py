"""From a host name to addresses, and from addresses to a socket: what every way out shares."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from aiohappyeyeballs import (
    start_connection,  # pyright: ignore[reportUnknownVariableType] - a tuple left open in its types
)

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""As `socket.getaddrinfo` returns them."""

Resolve = Callable[[str, int], Awaitable[Sequence[AddressInfo]]]
"""From a host and a port to addresses; raises `OSError` where there is none."""

_HAPPY_EYEBALLS_SECONDS: Final = 0.25
"""RFC 8305, section 5: the recommended Connection Attempt Delay."""


class SystemResolver:
    """Asks the system; requests for one name share one lookup.

    A lookup occupies a thread until the system answers, which cannot be cancelled. Sharing keeps
    a name server that hangs from taking one thread for each request.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._lookups: dict[tuple[str, int], asyncio.Task[list[AddressInfo]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[AddressInfo]:
        """Return the addresses of a host.

        Raises:
            OSError: It has none.
        """
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
    """Return a connection to the first of some addresses that answers.

    Raises:
        OSError: None does.
    """
    try:
        return await start_connection(
            addresses,
            happy_eyeballs_delay=_HAPPY_EYEBALLS_SECONDS,
            socket_factory=open_socket,
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
    """Return an address as it is connected to.

    Raises:
        socket.gaierror: It is none.
    """
    return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)]

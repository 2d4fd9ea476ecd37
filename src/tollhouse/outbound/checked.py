"""Connections for somebody who names the host: its addresses are judged before one is called.

    name ──> looked up once ──> every address judged ──> one of these is connected to

The name is not looked up again, so an answer that changes meanwhile changes nothing.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from tollhouse.outbound.destinations import refusal
from tollhouse.outbound.dialing import connect_to, numeric

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    from tollhouse.outbound.destinations import Network
    from tollhouse.outbound.dialing import AddressInfo, Resolve

CONNECT_SECONDS: Final = 10.0


class DestinationRefused(Exception):
    """The host has an address that may not be called."""

    def __init__(self, why: str) -> None:
        """Take what kind of address it is."""
        super().__init__(why)
        self.why = why


class CheckedDialer:
    """Connects to hosts that others name."""

    def __init__(
        self, resolve: Resolve, allowed: Sequence[Network], addresses: Mapping[str, str]
    ) -> None:
        """Take the rules.

        Args:
            resolve: Looks names up.
            allowed: Networks that an operator opens; see `destinations`.
            addresses: Addresses of names that nobody is asked for; judged like any other.
        """
        self._resolve = resolve
        self._allowed = allowed
        self._addresses = addresses

    async def dial(self, host: str, port: int) -> socket.socket:
        """Return a connection.

        Raises:
            DestinationRefused: One of the host's addresses may not be called.
            OSError: None can be reached, or not in time.
        """
        async with asyncio.timeout(CONNECT_SECONDS):
            found = await self._look_up(host, port)
            for info in found:
                why = refusal(ip_address(info[4][0].partition("%")[0]), self._allowed)
                if why is not None:
                    raise DestinationRefused(why)
            return await connect_to(found)

    async def _look_up(self, host: str, port: int) -> Sequence[AddressInfo]:
        known = self._addresses.get(host)
        return await self._resolve(host, port) if known is None else numeric(known, port)

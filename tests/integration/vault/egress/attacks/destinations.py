"""Attacks with who answers: a false certificate, an address of ours."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme

from tests.integration.vault.egress.attacks.table import (
    TOKEN,
    attack,
    nothing,
    nothing_reached,
    without,
)
from tests.integration.vault.egress.house import API, VALUE, ConnectRefusedError, House, Names
from tollhouse.outbound import checked, destinations
from tollhouse.testing.raw_server import RawServer
from tollhouse.vault.egress import targets, ways

# -------------------------------------------------------------------- upstream certificate


def _trusts_anybody(patch: pytest.MonkeyPatch) -> None:
    connect = ways.Network.connect_securely

    async def loosely(self: ways.Network, target: object) -> object:
        self._trust.check_hostname = False  # pyright: ignore[reportPrivateUsage]
        self._trust.verify_mode = ssl.CERT_NONE  # pyright: ignore[reportPrivateUsage]
        return await connect(self, target)  # type: ignore[arg-type]

    patch.setattr(ways.Network, "connect_securely", loosely)


@attack("upstream certificate", _trusts_anybody)
async def a_certificate_of_another_host(house: House) -> None:
    house.keeper.secrets["wrong"] = (VALUE, frozenset({"wrong.example"}))
    house.names.addresses["wrong.example"] = ["127.0.0.1"]
    with pytest.raises(ConnectRefusedError, match="certificate"):
        await house.tunnel("wrong.example", port=house.api.port)
    nothing_reached(house.api)


@attack("upstream certificate", _trusts_anybody)
async def a_certificate_of_nobody_that_is_trusted(house: House) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(API).configure_cert(context)
    async with RawServer(ssl_context=context) as server:
        house.names.ports[API] = server.port
        with pytest.raises(ConnectRefusedError, match="certificate"):
            await house.tunnel()
        nothing_reached(server)


# ------------------------------------------------------------------- addresses and names


@attack("destinations", without(checked, "refusal", nothing))
async def a_name_with_an_address_of_ours(house: House) -> None:
    await house.again(allowed=())
    with pytest.raises(ConnectRefusedError, match="destination"):
        await house.tunnel()
    nothing_reached(house.api)


@attack("destinations", without(checked, "refusal", nothing))
async def a_name_with_one_address_of_ours_beside_others(house: House) -> None:
    await house.again(allowed=("127.0.0.1/32",))
    house.names.addresses[API] = ["127.0.0.1", "127.0.0.2"]
    with pytest.raises(ConnectRefusedError, match="destination"):
        await house.tunnel()
    nothing_reached(house.api)


@attack("destinations", without(destinations, "METADATA", frozenset()))
async def a_metadata_address_in_a_network_that_is_open(house: House) -> None:
    await house.again(allowed=("0.0.0.0/0",))
    # Reserved for documentation: nobody is there, where the rule is off.
    house.names.addresses[API] = ["168.63.129.16", "192.0.2.1"]
    with pytest.raises(ConnectRefusedError, match="destination"):
        await asyncio.wait_for(house.tunnel(), 2)


class Rebinding(Names):
    """Shows an address that may be called first, and then another one."""

    async def __call__(self, host: str, port: int) -> object:  # type: ignore[override]
        found = await super().__call__(host, port)
        self.addresses[host] = ["127.0.0.2"]
        return found


def _looks_up_twice(patch: pytest.MonkeyPatch) -> None:
    dial = checked.connect_to

    async def again(addresses: object) -> object:
        del addresses
        names = _REBOUND[0]
        return await dial(await names(API, 0))  # type: ignore[arg-type]

    patch.setattr(checked, "connect_to", again)


_REBOUND: list[Rebinding] = []


@attack("destinations", _looks_up_twice)
async def a_name_that_changes_its_address(house: House) -> None:
    names = Rebinding()
    names.addresses = dict(house.names.addresses)
    _REBOUND[:] = [names]
    await house.again(names=names, allowed=("127.0.0.1/32",))
    client = await house.tunnel()
    await client.ask(house.head(TOKEN))
    assert names.asked == [API]


@attack("destinations", without(targets, "normal_host", lambda text: text.strip("[]")))
async def an_address_in_place_of_a_name(house: House) -> None:
    for spelling in (
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "[::1]",
        "127.0.0.1.",
    ):
        house.names.addresses[spelling] = ["127.0.0.1"]
        client = await house.client()
        with pytest.raises(ConnectRefusedError, match="not_a_name"):
            await client.connect(spelling, house.other.port)
    nothing_reached(house.other)

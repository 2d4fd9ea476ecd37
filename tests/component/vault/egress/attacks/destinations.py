"""Attacks with the destination: a false certificate, a private address."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme

from tests.component.vault.egress.attacks.table import (
    TOKEN,
    assert_nothing_reached,
    attack,
    check_nothing,
    without,
)
from tests.component.vault.egress.egress_fixture import (
    API,
    VALUE,
    ConnectRefusedError,
    EgressFixture,
    FakeNameServer,
)
from tests.support.providers.raw_server import RawServer
from tollhouse.outbound import destinations, dialing
from tollhouse.vault.egress import request_head, routes

# -------------------------------------------------------------------- upstream certificate


def _trusts_anybody(patch: pytest.MonkeyPatch) -> None:
    connect = routes.HostConnector.connect_securely

    async def loosely(self: routes.HostConnector, target: object) -> object:
        self.trust.check_hostname = False
        self.trust.verify_mode = ssl.CERT_NONE
        return await connect(self, target)  # type: ignore[arg-type]

    patch.setattr(routes.HostConnector, "connect_securely", loosely)


@attack("upstream certificate", _trusts_anybody)
async def a_certificate_of_another_host(egress: EgressFixture) -> None:
    egress.broker.secrets["wrong"] = (VALUE, frozenset({"wrong.example"}))
    egress.name_server.addresses["wrong.example"] = ["127.0.0.1"]
    with pytest.raises(ConnectRefusedError, match="certificate"):
        await egress.tunnel("wrong.example", port=egress.api.port)
    assert_nothing_reached(egress.api)


@attack("upstream certificate", _trusts_anybody)
async def a_certificate_of_nobody_that_is_trusted(egress: EgressFixture) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(API).configure_cert(context)
    async with RawServer(ssl_context=context) as server:
        egress.name_server.ports[API] = server.port
        with pytest.raises(ConnectRefusedError, match="certificate"):
            await egress.tunnel()
        assert_nothing_reached(server)


# ------------------------------------------------------------------- addresses and names


@attack("destinations", without(dialing, "refusal", check_nothing))
async def a_name_with_an_address_of_ours(egress: EgressFixture) -> None:
    await egress.restart(allowed=())
    with pytest.raises(ConnectRefusedError, match="destination"):
        await egress.tunnel()
    assert_nothing_reached(egress.api)


@attack("destinations", without(dialing, "refusal", check_nothing))
async def a_name_with_one_address_of_ours_beside_others(egress: EgressFixture) -> None:
    await egress.restart(allowed=("127.0.0.1/32",))
    egress.name_server.addresses[API] = ["127.0.0.1", "127.0.0.2"]
    with pytest.raises(ConnectRefusedError, match="destination"):
        await egress.tunnel()
    assert_nothing_reached(egress.api)


@attack("destinations", without(destinations, "METADATA", frozenset()))
async def a_metadata_address_in_a_network_that_is_open(egress: EgressFixture) -> None:
    await egress.restart(allowed=("0.0.0.0/0",))
    # Reserved for documentation: nobody is there, where the rule is off.
    egress.name_server.addresses[API] = ["168.63.129.16", "192.0.2.1"]
    with pytest.raises(ConnectRefusedError, match="destination"):
        await asyncio.wait_for(egress.tunnel(), 2)


class Rebinding(FakeNameServer):
    """Resolves to an allowed address first, and then to another one."""

    async def __call__(self, host: str, port: int) -> object:  # type: ignore[override]
        found = await super().__call__(host, port)
        self.addresses[host] = ["127.0.0.2"]
        return found


def _looks_up_twice(patch: pytest.MonkeyPatch) -> None:
    dial = dialing.connect_to

    async def again(addresses: object) -> object:
        del addresses
        names = _REBOUND[0]
        return await dial(await names(API, 0))  # type: ignore[arg-type]

    patch.setattr(dialing, "connect_to", again)


_REBOUND: list[Rebinding] = []


@attack("destinations", _looks_up_twice)
async def a_name_that_changes_its_address(egress: EgressFixture) -> None:
    names = Rebinding()
    names.addresses = dict(egress.name_server.addresses)
    _REBOUND[:] = [names]
    await egress.restart(name_server=names, allowed=("127.0.0.1/32",))
    client = await egress.tunnel()
    await client.request(egress.head(TOKEN))
    assert names.asked == [API]


@attack("destinations", without(request_head, "normal_host", lambda text: text.strip("[]")))
async def an_address_in_place_of_a_name(egress: EgressFixture) -> None:
    for spelling in (
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "[::1]",
        "127.0.0.1.",
    ):
        egress.name_server.addresses[spelling] = ["127.0.0.1"]
        client = await egress.client()
        with pytest.raises(ConnectRefusedError, match="not_a_name"):
            await client.connect(spelling, egress.other.port)
    assert_nothing_reached(egress.other)

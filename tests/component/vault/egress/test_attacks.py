"""Every attack of the table is stopped; and it would be seen if its rule were not there."""

import pytest

from tests.component.vault.egress.attacks import ATTACKS
from tests.component.vault.egress.attacks.table import TOKEN
from tests.component.vault.egress.egress_fixture import OTHER, VALUE, Client, EgressFixture
from tests.support.providers.raw_server import reply, say

ROWS = {
    "wrong host",
    "wrong port",
    "names disagree",
    "plain http",
    "smuggling",
    "placeholder elsewhere",
    "upstream certificate",
    "destinations",
    "echo",
    "websocket",
    "exhaustion",
}


def test_every_row_has_its_attacks() -> None:
    assert {each.row for each in ATTACKS.values()} == ROWS


@pytest.mark.parametrize("name", ATTACKS)
async def test_is_stopped(egress: EgressFixture, name: str) -> None:
    await ATTACKS[name].run(egress)


@pytest.mark.parametrize("name", ATTACKS)
async def test_is_seen_where_its_rule_is_off(
    egress: EgressFixture, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ATTACKS[name].off(monkeypatch)
    egress.patience = 0.8
    with pytest.raises((AssertionError, EOFError, TimeoutError, pytest.fail.Exception)):
        await ATTACKS[name].run(egress)


# What is stopped because nothing does it: there is no rule that could be off.


async def test_a_redirect_is_not_followed(egress: EgressFixture, client: Client) -> None:
    location = f"Location: https://{OTHER}/?x=1\r\n".encode()
    egress.api.behave = say(reply(b"", "302 Found", location))
    status, headers, _ = await client.request(egress.head(TOKEN))
    assert (status, headers["location"]) == (302, f"https://{OTHER}/?x=1")
    assert egress.other.peers == []


@pytest.mark.parametrize(
    "garbage",
    [
        f"{VALUE}\r\n\r\n".encode(),
        f"HTTP/1.1 200 OK\r\n{VALUE}\r\n\r\n".encode(),
        f"HTTP/1.1 200 OK\r\nContent-Length: {VALUE}\r\n\r\n".encode(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["no status", "no field", "no length", "two lengths"],
)
async def test_an_error_says_nothing_of_what_the_host_said(
    egress: EgressFixture, client: Client, garbage: bytes
) -> None:
    egress.api.behave = say(garbage)
    status, headers, body = await client.request(egress.head(TOKEN))
    assert (status, headers["x-tollhouse-egress"]) == (502, "broken")
    assert VALUE.encode() not in body

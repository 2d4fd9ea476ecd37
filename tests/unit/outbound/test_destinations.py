"""Which addresses may be called."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.outbound.destinations import METADATA, refusal

EVERYTHING = [ip_network("0.0.0.0/0"), ip_network("::/0")]


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"]
)
def test_what_is_on_the_internet_may_be_called(address: str) -> None:
    assert refusal(ip_address(address)) is None


REFUSED = {
    "loopback": "127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1",
    "private": "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 ::ffff:10.0.0.1 fd12::1 fec0::1",
    "link-local": "169.254.1.1 fe80::1 fe80::1%eth0",
    "shared by a provider's customers": "100.64.0.1 100.127.255.255",
    "multicast": "224.0.0.1 ff02::1",
    "a way to another address": (
        "64:ff9b::1.1.1.1 64:ff9b:1::1 2002:7f00:1:: 2001:0:4136:e378:8000:63bf:3fff:fdd2 "
        "::7f00:1 :: 192.88.99.1"
    ),
    "reserved": (
        "0.0.0.0 0.1.2.3 192.0.0.8 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 240.0.0.1 "
        "255.255.255.255 100::1 2001:db8::1 3fff::1 5f00::1 4000::1"
    ),
}
"""Addresses, by the reason for which they are."""


@pytest.mark.parametrize(
    ("address", "reason"),
    [(each, why) for why, addresses in REFUSED.items() for each in addresses.split()],
)
def test_what_is_ours_a_neighbours_or_nobodys_may_not(address: str, reason: str) -> None:
    assert refusal(ip_address(address)) == reason


@pytest.mark.parametrize("address", sorted(METADATA, key=str), ids=str)
def test_a_metadata_address_is_never_opened(address: IPv4Address | IPv6Address) -> None:
    assert refusal(address) == "a metadata address"
    assert refusal(address, EVERYTHING) == "a metadata address"


@pytest.mark.parametrize(
    "address",
    [
        "::ffff:169.254.169.254",
        "::a9fe:a9fe",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "2001:0:4136:e378:8000:63bf:5601:5601",
        "fd00:ec2::254%eth0",
    ],
)
def test_no_spelling_of_a_metadata_address_is_opened(address: str) -> None:
    assert refusal(ip_address(address), EVERYTHING) == "a metadata address"


def test_an_operator_opens_networks_and_nothing_beside_them() -> None:
    opened = [ip_network("10.1.0.0/16"), ip_network("fd12::/32")]
    assert refusal(ip_address("10.1.2.3"), opened) is None
    assert refusal(ip_address("::ffff:10.1.2.3"), opened) is None
    assert refusal(ip_address("fd12::1"), opened) is None
    assert refusal(ip_address("10.2.0.1"), opened) == "private"
    assert refusal(ip_address("fd13::1"), opened) == "private"


@given(st.ip_addresses())
def test_what_python_calls_private_is_refused(address: IPv4Address | IPv6Address) -> None:
    if not address.is_global or address.is_multicast:
        assert refusal(address) is not None

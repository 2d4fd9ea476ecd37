"""Which addresses may be called."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import tables
from tollhouse.outbound.destinations import METADATA, refusal

CASES = tables(__file__)

EVERYTHING = [ip_network("0.0.0.0/0"), ip_network("::/0")]


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"]
)
def test_what_is_on_the_internet_may_be_called(address: str) -> None:
    assert refusal(ip_address(address)) is None


REFUSED = CASES["REFUSED"]
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


@pytest.mark.parametrize("address", CASES["no_spelling_of_a_metadata_address_is_opened"])
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

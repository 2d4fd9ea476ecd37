"""Which addresses a user may have called: public ones, and those that an operator opens.

    name ──> addresses ──> each is judged ──> a judged one is connected to, never the name again

One address that is refused refuses the name: who answers for it could otherwise show a harmless
address first and another one later. An operator may open private networks; addresses at which
clouds tell machines their credentials are never opened.

Source: the IANA registries of special-purpose addresses (RFC 6890 and its updates), RFC 6052
(NAT64), RFC 3056 (6to4), RFC 4380 (Teredo), RFC 4291 section 2.5.5 (IPv4 inside IPv6); the clouds'
own pages for their metadata addresses.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

METADATA: Final[frozenset[Address]] = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Azure, Google, Oracle, DigitalOcean, OpenStack
        "169.254.169.253",  # AWS: the resolver
        "169.254.169.123",  # AWS: the clock
        "169.254.170.2",  # AWS: credentials of containers
        "169.254.170.23",  # AWS: credentials of pods
        "168.63.129.16",  # Azure: the wire server
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # AWS
        "fd00:ec2::253",
        "fd00:ec2::123",
        "fd00:ec2::23",
        "fd20:ce::254",  # Google
    )
)
"""Never opened, whatever an operator says."""

_REFUSED: Final[Sequence[tuple[str, Sequence[Network]]]] = [
    (reason, [ip_network(text) for text in texts.split()])
    for reason, texts in (
        ("loopback", "127.0.0.0/8 ::1/128"),
        ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
        ("link-local", "169.254.0.0/16 fe80::/10"),
        ("shared by a provider's customers", "100.64.0.0/10"),
        ("multicast", "224.0.0.0/4 ff00::/8"),
        (
            "a way to another address",
            "64:ff9b::/96 64:ff9b:1::/48 2002::/16 2001::/32 ::/96 192.88.99.0/24",
        ),
        (
            "reserved",
            "0.0.0.0/8 192.0.0.0/24 192.0.2.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24",
        ),
        ("reserved", "240.0.0.0/4 100::/64 100:0:0:1::/64 2001::/23 2001:db8::/32"),
        ("reserved", "3fff::/20 5f00::/16"),
    )
]
_GLOBAL_IPV6: Final = IPv6Network("2000::/3")


def refusal(address: Address, allowed: Iterable[Network] = ()) -> str | None:
    """Return why an address may not be called; None where it may.

    An operator opens the `allowed` networks, but never a metadata address.
    """
    plain = _plain(address)
    if plain in METADATA or any(inner in METADATA for inner in _inside(plain)):
        return "a metadata address"
    if any(plain.version == network.version and plain in network for network in allowed):
        return None
    for reason, networks in _REFUSED:
        if any(plain.version == network.version and plain in network for network in networks):
            return reason
    if isinstance(plain, IPv6Address) and plain not in _GLOBAL_IPV6:
        return "reserved"
    return None


def _plain(address: Address) -> Address:
    """Return the IPv4 address that a mapped one is: sockets connect to that. No zone is kept."""
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or IPv6Address(int(address))
    return address


def _inside(address: Address) -> Sequence[IPv4Address]:
    """Return the IPv4 addresses to which an IPv6 address may lead."""
    if isinstance(address, IPv4Address):
        return ()
    number = int(address)
    behind_6to4, behind_teredo = number >> 80, ~number
    return [IPv4Address(each & 0xFFFFFFFF) for each in (number, behind_6to4, behind_teredo)]

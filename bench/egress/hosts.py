"""Hosts of the benchmark, and the secret that goes to some of them."""

from __future__ import annotations

from typing import Final

BOUND: Final = "api.bench.example"
UNREAD: Final = "www.bench.example"
"""No secret is bound to it, so that its TLS is passed on."""
LOCAL: Final = "localhost"
"""What mitmproxy finds without our list of addresses."""
SECRET: Final = "token"
VALUE: Final = "gh0_the-value-of-a-token-of-40-characters"
PLACEHOLDER: Final = b"Bearer {{secret:token}}"
SHOWN: Final = f"Bearer {VALUE}".encode()


def fresh(number: int) -> str:
    """Return a host that is connected to once."""
    return f"host-{number:04}.fresh.example"


WILDCARD: Final = "*.fresh.example"

"""The certificates that the machine trusts, read once.

Every HTTP client reads them when it is made, which takes 40 ms; tests make thousands.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

import httpcore2

if TYPE_CHECKING:
    from ssl import SSLContext

_read = httpcore2.default_ssl_context


@cache
def _context(*_places: str | None, _trust_env: bool) -> SSLContext:
    return _read(_trust_env=_trust_env)


def _shared(*, _trust_env: bool = True) -> SSLContext:
    places = (os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
    return _context(*places, _trust_env=_trust_env)


def share_certificates() -> None:
    """Have the HTTP clients of this process share them."""
    httpcore2.default_ssl_context = _shared

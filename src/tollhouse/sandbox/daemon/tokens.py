"""Who may ask the daemon: whoever shows the token, of which it knows the digest alone.

Source: RFC 6750, sections 2.1 and 3.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from tollhouse.sandbox.daemon.errors import Refused, rendered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

_SCHEME: Final = b"bearer"
_MISSING: Final = Refused(401, "A bearer token is needed.", {"WWW-Authenticate": "Bearer"})
_WRONG: Final = Refused(
    401, "The token is wrong.", {"WWW-Authenticate": 'Bearer error="invalid_token"'}
)


class Guard:
    """Lets those requests and WebSockets through that show the token."""

    def __init__(self, app: ASGIApp, token_sha256: str) -> None:
        """Take what it guards.

        Args:
            app: Sees only what was let through.
            token_sha256: See `Settings`.
        """
        self._app = app
        self._token_sha256 = token_sha256

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        token = bearer(scope["headers"])
        if token is None:
            await rendered(_MISSING)(scope, receive, send)
        elif not matches(token, self._token_sha256):
            await rendered(_WRONG)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the token of a request; None where it shows none, or more than one."""
    found = [value for name, value in headers if name.lower() == b"authorization"]
    if len(found) != 1:
        return None
    scheme, _, token = found[0].partition(b" ")
    return token.strip() or None if scheme.lower() == _SCHEME else None


def matches(token: bytes, token_sha256: str) -> bool:
    """Tell whether a token has this digest, in a time that does not depend on how much of it."""
    return hmac.compare_digest(hashlib.sha256(token).hexdigest(), token_sha256)

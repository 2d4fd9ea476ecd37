"""How an error leaves over HTTP: status, headers and envelope, the same for every way in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.api.asgi import JSON
from tollhouse.kernel.envelope import envelope, status_of
from tollhouse.kernel.errors import MethodNotAllowed, RateLimited, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tollhouse.kernel.errors import RateWindow, TollhouseError

_encode = msgspec.json.Encoder().encode


def error_response(
    error: TollhouseError, shown: Mapping[str, object] | None = None
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return the response that an error becomes.

    Args:
        error: What went wrong.
        shown: The body, where the request's format has an envelope of its own.

    Returns:
        The status, the headers without a content length, and the body.

    Source: RFC 9110, sections 10.2.1 (Allow), 10.2.3 (Retry-After), 11.6.1 (WWW-Authenticate).
    """
    headers: list[tuple[bytes, bytes]] = [JSON]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(error.retry_after).encode()))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.allow).encode()))
    if isinstance(error, RateLimited):
        headers.extend(_rate_limit(error.window))
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    return status_of(error), headers, _encode(envelope(error) if shown is None else shown)


def _rate_limit(window: RateWindow) -> Iterator[tuple[bytes, bytes]]:
    for name, value in window.headers().items():
        yield name.lower().encode(), value.encode()

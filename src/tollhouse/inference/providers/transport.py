"""From a failed exchange to our errors, the same for every provider behind HTTP."""

from __future__ import annotations

import re

from tollhouse.inference.upstream import errors as upstream
from tollhouse.kernel.errors import ProviderFailure, ProviderTimeout, ProviderUnavailable

_TIMEOUTS = (
    upstream.ConnectTimeout,
    upstream.HeadTimeout,
    upstream.IdleTimeout,
    upstream.TotalTimeout,
)
_SECONDS = re.compile(r"\d{1,7}")


def from_transport(error: upstream.UpstreamError, name: str) -> ProviderFailure:
    """Return our error for an exchange that failed."""
    if isinstance(error, _TIMEOUTS):
        return ProviderTimeout(
            f"{name} did not answer in time.", provider_name=name, ambiguous=error.sent
        )
    if isinstance(error, upstream.PoolTimeout):
        text = f"Every connection to {name} is busy."
    elif isinstance(error, upstream.ConnectFailed):
        text = f"{name} cannot be reached."
    elif isinstance(error, (upstream.ProtocolViolation, upstream.ResponseTooLarge)):
        text = f"{name} sent an invalid response."
    else:
        text = f"{name} closed the connection."
    return ProviderUnavailable(text, provider_name=name, ambiguous=error.sent)


def unreadable(name: str) -> ProviderFailure:
    """Return our error for a reply that is not what its format promises."""
    return ProviderUnavailable(
        f"{name} sent an invalid response.", provider_name=name, ambiguous=True
    )


def whole_seconds(hint: str | None) -> int | None:
    """Return a `Retry-After` of seconds, at least 1; its date form is not a hint to us.

    Source: RFC 9110, section 10.2.3.
    """
    if hint is None or not _SECONDS.fullmatch(hint.strip()):
        return None
    return max(1, int(hint))

"""Which endpoints failed of late. One process's own memory; nothing is asked for its sake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.kernel.errors import ProviderModerated, ProviderRefused

if TYPE_CHECKING:
    from tollhouse.inference.types import Endpoint
    from tollhouse.kernel.errors import ProviderFailure

COOL_DOWN_SECONDS: Final = 30.0
"""Source: the public gateway's reference of provider routing: outages of the last 30 seconds."""
_LONGEST_SECONDS: Final = 300.0
"""What a provider's own hint may ask for."""


class Health:
    """Endpoints that are cooling down."""

    def __init__(self, cool_down_seconds: float = COOL_DOWN_SECONDS) -> None:
        """Start with everything healthy.

        Args:
            cool_down_seconds: How long an endpoint that failed is tried after those that did not.
        """
        self._cool_down_seconds = cool_down_seconds
        self._until: dict[tuple[str, str], float] = {}

    def failed(self, endpoint: Endpoint, error: ProviderFailure, now: float) -> None:
        """Note a failure; one that is the request's own fault says nothing of the endpoint.

        Args:
            endpoint: Who failed.
            error: How; a rate limit's own hint counts if it is longer than the usual time.
            now: Monotonic seconds.
        """
        if isinstance(error, (ProviderRefused, ProviderModerated)):
            return
        hint = min(float(error.retry_after or 0), _LONGEST_SECONDS)
        seconds = max(self._cool_down_seconds, hint)
        self._until[endpoint.provider, endpoint.model] = now + seconds

    def answered(self, endpoint: Endpoint) -> None:
        """Note that an endpoint accepted a request."""
        if self._until:
            self._until.pop((endpoint.provider, endpoint.model), None)

    def is_cooling(self, endpoint: Endpoint, now: float) -> bool:
        """Tell whether an endpoint failed of late."""
        if not self._until:
            return False
        return self._until.get((endpoint.provider, endpoint.model), 0.0) > now

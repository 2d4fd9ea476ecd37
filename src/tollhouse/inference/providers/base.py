"""What the pipeline asks of a provider.

    reply = await provider.open(call)          # the provider accepted; nothing read yet
    try:
        body = await reply.whole()             # a whole reply in the call's dialect ...
        async for events in reply.events():    # ... or the data of its events as they come
            ...
    finally:
        await reply.close()

Whatever goes wrong is a `ProviderFailure`: each provider translates foreign errors in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from tollhouse.inference.types import Dialect, Endpoint


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """One request to one provider."""

    endpoint: Endpoint
    dialect: Dialect
    stream: bool
    body: bytes = field(repr=False)
    query: str = ""
    """The part of the URL behind the `?`."""
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    """The client's headers that pass through."""
    owner: str = ""
    """The account whose request it is."""


class ProviderExchange(Protocol):
    """A reply that a provider has begun."""

    async def whole(self) -> bytes:
        """Return the body of a whole reply.

        Raises:
            ProviderFailure: It did not arrive.
        """
        ...

    def events(self) -> AsyncIterator[Sequence[bytes]]:
        """Return the data of the events as they arrive, one sequence for each piece read.

        Raises:
            ProviderFailure: While iterating, where the stream broke.
        """
        ...

    async def close(self) -> None:
        """End the reply; one that is still under way is cancelled at the provider."""
        ...


class Provider(Protocol):
    """A configured provider."""

    @property
    def name(self) -> str:
        """The name that replies and errors show."""
        ...

    @property
    def dialects(self) -> Collection[Dialect]:
        """What it speaks."""
        ...

    @property
    def on_disconnect(self) -> Literal["cancel", "drain"]:
        """What becomes of a call whose client went away."""
        ...

    async def open(self, call: ProviderCall) -> ProviderExchange:
        """Send a request; return once the provider accepted it.

        Raises:
            ProviderFailure: It did not.
        """
        ...

    async def check(self) -> None:
        """Find out, free of charge, whether it can be reached and takes the gateway's key.

        Raises:
            ProviderFailure: It cannot, or does not.
        """
        ...

    async def close(self) -> None:
        """Give up every connection."""
        ...

"""What the pipeline needs from the outside: admission, settlement, and providers.

    reply = await provider.open(call)          # the provider accepted; nothing read yet
    try:
        body = reply.whole()                   # a whole reply in the call's dialect ...
        ended = await reply.relay(take)        # ... or the data of its events as they come
    finally:
        reply.close()                          # to be awaited where it is not None

Whatever goes wrong at a provider is a `ProviderFailure`: each provider translates foreign errors
in one place.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from datetime import date

    from tollhouse.accounting.admission.types import AdmissionPreview, AdmissionRequest, Admitted
    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.inference.types import Dialect, Endpoint
    from tollhouse.provider_keys.types import OwnKey


class Settlement(Protocol):
    """Books generations."""

    def begin(self, record: GenerationRecord) -> None:
        """Keep that a provider is about to be asked, so that a kill leaves a trace of it.

        That lasts until the generation is accepted or forgotten. Raises `Unavailable` where it
        cannot be kept.
        """
        ...

    def forget(self, generation_id: str) -> None:
        """Forget a generation that no provider bills."""
        ...

    def accept(self, record: GenerationRecord) -> Awaitable[None] | None:
        """Take a generation into the books.

        Its charge cannot be lost any more once what is returned was awaited; at once, if that is
        None.
        """
        ...


class Admission(Protocol):
    """Lets generations begin."""

    async def admit(self, request: AdmissionRequest) -> Admitted:
        """Hold what a request may cost, until it is settled or released.

        Raises:
            PaymentRequired: Credits, or a limit of them, do not suffice.
            RateLimited: It comes too often.
            Unavailable: Its charge could not be kept.
        """
        ...

    def try_admit(self, request: AdmissionRequest) -> Admitted | None:
        """Do the same without waiting; None where `admit` would have to wait."""
        ...

    async def preview(self, request: AdmissionRequest) -> AdmissionPreview:
        """Return how a request would be received now; nothing is held or counted."""
        ...

    def release(self, generation_id: str) -> None:
        """End a hold without a charge; does nothing where it has ended."""
        ...

    async def may_use_free(self, generation_id: str) -> bool:
        """Count an admitted request to free models, once own keys failed; false: no room."""
        ...


class OwnAllowance(Protocol):
    """Counts the requests with own keys that cost no fee."""

    async def know(self, account_id: str, key_hashes: Sequence[str]) -> None:
        """Read an account, so that `is_free_own` knows what is left of its allowance."""
        ...

    def is_free_own(self, generation_id: str, account_id: str, day: date) -> bool:
        """Tell whether a generation that own keys served costs no fee."""
        ...

    def own_booked(self, record: GenerationRecord) -> None:
        """Learn that a batch's generation of own keys is in the books."""
        ...

    def own_dropped(self, record: GenerationRecord) -> None:
        """Learn that it never will be."""
        ...


class OwnKeySource(Protocol):
    """Knows the own keys of accounts."""

    def known(self, account_id: str) -> Sequence[OwnKey] | None:
        """Return an account's enabled keys in the order of their places; None: `read` them."""
        ...

    async def read(self, account_id: str) -> Sequence[OwnKey]:
        """Return the same, read anew.

        Raises whatever the database does where it cannot be asked.
        """
        ...

    def accepted(self, key: OwnKey) -> None:
        """Forget why a provider did not take a key, since it does now; without waiting."""
        ...

    def refused(self, key: OwnKey, reason: str) -> None:
        """Keep why a provider did not take a key, for its owner."""
        ...


class ProviderCall(NamedTuple):
    """One request to one provider."""

    endpoint: Endpoint
    dialect: Dialect
    stream: bool
    body: bytes
    query: str = ""
    """The part of the URL behind the `?`."""
    headers: Sequence[tuple[str, str]] = ()
    """The client's headers that pass through."""
    owner: str = ""
    """The account whose request it is."""
    own_key: OwnKey | None = None
    """The customer's own key that is shown in place of the gateway's."""

    def __repr__(self) -> str:
        """Show who is asked for what, and nothing that was said."""
        return f"<{type(self).__name__} {self.endpoint.provider} {self.endpoint.model}>"


class OpenedReply(Protocol):
    """A reply that a provider has begun."""

    def whole(self) -> bytes | Awaitable[bytes]:
        """Return the body of a whole reply, or what to await until it has come."""
        ...

    async def relay(self, take: Callable[[Sequence[bytes]], bool]) -> bool:
        """Give a function the data of events as they arrive, one sequence for each piece read.

        Returns true at the end of the reply, and false once the function has returned false: what
        arrives after that is for the next call. What the function raises is raised here.
        """
        ...

    def close(self, patience: float = 0.0) -> Awaitable[None] | None:
        """End the reply; one that is still under way is cancelled at the provider.

        One whose last event has come has so many seconds for the rest of its body, so that its
        connection can be used again. Returns what to await, if it takes its time.
        """
        ...


class CancelledUnsent(asyncio.CancelledError):
    """A call was cancelled before anything of it had left for the provider."""


class Provider(Protocol):
    """A configured provider."""

    name: str
    """The name that replies and errors show."""
    dialects: Collection[Dialect]
    on_disconnect: Literal["cancel", "drain"]
    """What becomes of a call whose client went away."""

    def open(self, call: ProviderCall) -> Awaitable[OpenedReply]:
        """Send a request; what is returned is awaited until the provider has accepted it."""
        ...

    async def check(self) -> None:
        """Find out, free of charge, whether it can be reached and takes the gateway's key."""
        ...

    async def close(self) -> None:
        """Give up every connection."""
        ...

"""What the proxy has to ask: who knows the secrets is another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tollhouse.kernel.secret import Secret


@dataclass(frozen=True, slots=True)
class Grant:
    """A secret of one version, released to one session for one host."""

    session: str
    host: str
    name: str
    vault_id: str
    version: int


@dataclass(frozen=True, slots=True)
class Released:
    """A value, and what it was released as."""

    grant: Grant
    value: Secret = field(repr=False)


class Keeper(Protocol):
    """Knows what is bound to which host; releases values, and writes down that it did."""

    async def is_bound(self, session: str, host: str) -> bool:
        """Tell whether a secret of a session is bound to a host.

        Raises:
            Refused: Nothing may be reached now.
        """
        ...

    async def release(
        self, session: str, host: str, names: Sequence[str]
    ) -> Mapping[str, Released]:
        """Return the values of some names for one request to a host; the record has them then.

        Raises:
            Refused: One of them does not go there, or the record cannot be written.
        """
        ...

    async def lapsed(self, grants: Collection[Grant]) -> Collection[Grant]:
        """Return those that would not be given any more."""
        ...

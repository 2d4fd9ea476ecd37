"""What admission needs from the outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tollhouse.accounting.admission.types import AccountFacts, KeyFacts


class AccountLoader(Protocol):
    """Reads an account and a key from the database."""

    async def load(self, account_id: str, key_hash: str) -> tuple[AccountFacts, KeyFacts]:
        """Return it as it is while no group of this process' charges is half way there.

        Raises:
            Exception: The database cannot be reached or read.
        """
        ...

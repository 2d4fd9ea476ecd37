"""A provider that is configured and cannot be called: its models are listed and answer 503."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NoReturn

from tollhouse.inference.types import Dialect
from tollhouse.kernel.errors import ProviderOverloaded

if TYPE_CHECKING:
    from collections.abc import Collection

    from tollhouse.inference.providers.base import ProviderCall


class UnavailableProvider:
    """Refuses every call, saying why."""

    dialects: Collection[Dialect] = frozenset(Dialect)
    on_disconnect: Literal["cancel", "drain"] = "cancel"

    def __init__(self, name: str, reason: str) -> None:
        """Take the reason that every caller gets."""
        self.name = name
        self._reason = reason

    async def open(self, call: ProviderCall) -> NoReturn:
        """Refuse.

        Raises:
            ProviderOverloaded: Always.
        """
        del call
        raise ProviderOverloaded(self._reason, provider_name=self.name)

    async def close(self) -> None:
        """Nothing is held."""

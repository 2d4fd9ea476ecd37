"""What the pipeline needs from the outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tollhouse.accounting.types import GenerationRecord


class Settlement(Protocol):
    """Books generations."""

    async def settle(self, record: GenerationRecord) -> None:
        """Take a generation into the books; return when its charge cannot be lost any more."""
        ...

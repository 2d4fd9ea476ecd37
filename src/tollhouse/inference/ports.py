"""What the pipeline needs from the outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tollhouse.accounting.admission.types import AdmissionPreview, AdmissionRequest, Admitted
    from tollhouse.accounting.types import GenerationRecord


class Settlement(Protocol):
    """Books generations."""

    async def settle(self, record: GenerationRecord) -> None:
        """Take a generation into the books; return when its charge cannot be lost any more."""
        ...


class AdmissionForecast(Protocol):
    """Tells how admission would receive a request."""

    async def preview(self, request: AdmissionRequest) -> AdmissionPreview:
        """Return how a request would be received now; nothing is held or counted.

        Raises:
            Unavailable: The account cannot be read.
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

    def release(self, generation_id: str) -> None:
        """End a hold without a charge; does nothing where it has ended."""
        ...

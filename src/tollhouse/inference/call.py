"""A request on its way through the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tollhouse.inference.token_estimate import count_images, demand

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from tollhouse.accounting.types import Attribution
    from tollhouse.identity.types import Subject
    from tollhouse.inference.formats.adapter import ClientRequest, FormatAdapter
    from tollhouse.inference.formats.registry import ApiFormat, RawRequest
    from tollhouse.inference.token_estimate import Demand
    from tollhouse.inference.types import Preferences


@dataclass(frozen=True, slots=True)
class LargeRequest:
    """A body whose reading is work for a worker."""

    api_format: ApiFormat
    raw_request: RawRequest
    demand: Demand
    images: int


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked, in which dialects it can be asked, and who pays."""

    request: ClientRequest
    adapters: tuple[FormatAdapter, ...]
    """How it can be asked, best first: one adapter for each dialect."""
    preferences: Preferences
    subject: Subject
    attribution: Attribution
    received_at: datetime
    received_monotonic: float
    with_limit: Callable[[int], tuple[ClientRequest, tuple[FormatAdapter, ...]]]
    """Reads the request once more, with a limit of its output in place of those that it has."""
    in_batch: bool = False
    """Whether it is an item of a batch: it has a price of its own, and what it may cost is reserved
    already."""
    large: LargeRequest | None = None
    """Where it came with a large body: what that was, and what was found in it. The request and the
    adapters hold nothing of what is said then."""

    def demand(self) -> Demand:
        """Return what it asks for, before any endpoint."""
        return demand(self.request) if self.large is None else self.large.demand

    def images(self) -> int:
        """Return how many images it holds."""
        return count_images(self.request) if self.large is None else self.large.images

    def limited(self, output_tokens: int) -> Call:
        """Return the same call with a limit of output, as if the request had set it."""
        request, adapters = self.with_limit(output_tokens)
        return replace(self, request=request, adapters=adapters)

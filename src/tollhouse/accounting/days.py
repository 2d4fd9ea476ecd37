"""Which day a generation belongs to, and what it adds to that day."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from tollhouse.accounting.types import Spend

if TYPE_CHECKING:
    from datetime import date

    from tollhouse.accounting.types import GenerationRecord


def utc_day(record: GenerationRecord) -> date:
    """Return the UTC day that a generation counts towards: that of its request's arrival."""
    return record.created_at.astimezone(UTC).date()


def spend_of(record: GenerationRecord) -> Spend:
    """Return what a generation adds to the counters of its key."""
    if record.is_byok:
        return Spend(byok_usage_nano=record.charge.provider_cost_nano or 0)
    return Spend(usage_nano=record.charge.cost_nano)

"""What everything that changes batches uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tollhouse.accounting.service import AccountingService
    from tollhouse.batches.policy import BatchRules
    from tollhouse.batches.ports import Doorbell
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.storage.blobs.port import Blobs
    from tollhouse.storage.database import Database


@dataclass(frozen=True, slots=True)
class Context:
    """Where batches are, what they cost, and who is told of them."""

    database: Database
    """Has batches, chunks, and where the parts of results are."""
    blobs: Blobs
    """Have the items and the results themselves."""
    accounting: AccountingService
    doorbell: Doorbell
    rules: BatchRules
    clock: Clock
    ids: IdSource

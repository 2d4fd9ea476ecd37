"""How the items of a batch reach the ordinary pipeline: nothing is reserved or booked by it.

A batch's reservation stands for what its items may cost, and what each did cost is booked together
with its result.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tollhouse.inference.pipeline import Pipeline
from tollhouse.kernel.errors import TollhouseError, without_frames

if TYPE_CHECKING:
    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.batches.types import Batch
    from tollhouse.identity.service import IdentityService
    from tollhouse.identity.types import Subject
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.dependencies import PipelineDependencies
    from tollhouse.inference.request import InferenceRequest
    from tollhouse.kernel.ids import IdSource
    from tollhouse.storage.database import Database


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """What came of a request."""

    body: bytes = field(default=b"", repr=False)
    """The whole reply, in the format that it was asked in."""
    record: GenerationRecord | None = None
    """What is to be booked; None where no provider was asked."""
    error: TollhouseError | None = None


class InferenceClient:
    """Sends requests through a pipeline, and returns what is to be booked for them."""

    def __init__(self, catalog: Catalog, services: PipelineDependencies, ids: IdSource) -> None:
        self._records: dict[str, GenerationRecord | None] = {}
        self._allowance = services.allowance
        self.pipeline = Pipeline(catalog, replace(services, settlement=self), ids)

    async def ask(self, request: InferenceRequest, generation_id: str) -> InferenceResult:
        """Return what came of a request; when cancelled, the request ends."""
        self._records[generation_id] = None
        body, error = b"", None
        try:
            exchange = self.pipeline.begin(request, generation_id)
            try:
                body = await exchange.read()
            finally:
                exchange.client_left()
        except TollhouseError as refused:
            error = without_frames(refused)
        finally:
            record = self._records.pop(generation_id)
        return InferenceResult(body, record, error)

    def booked(self, record: GenerationRecord | None) -> None:
        """Learn that what came of a request is in the books."""
        if record is not None and record.is_byok and self._allowance is not None:
            self._allowance.own_booked(record)

    def dropped(self, record: GenerationRecord | None) -> None:
        """Learn that it never will be."""
        if record is not None and record.is_byok and self._allowance is not None:
            self._allowance.own_dropped(record)

    def accept(self, record: GenerationRecord) -> None:
        """Keep a record, if somebody still waits for it; fulfils `inference.ports.Settlement`."""
        if record.id in self._records:
            self._records[record.id] = record
        else:
            self.dropped(record)

    def begin(self, record: GenerationRecord) -> None:
        """Keep no trace: an item that a kill cuts off is asked for again, under the same id."""

    def forget(self, generation_id: str) -> None:
        """Keep no trace."""


@dataclass(frozen=True, slots=True)
class BatchSubjects:
    """Whose requests the items of batches are."""

    identity: IdentityService
    database: Database

    async def subject_of(self, batch: Batch) -> Subject:
        """Return the subject of a batch's key, even if revoked, with the policies of now.

        The key that answers for it is the one of then.
        """
        async with self.database.reading() as read:
            return await self.identity.owner(read, batch.key_hash, batch.payer_hash)

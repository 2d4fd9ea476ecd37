"""Items on their way through the ordinary pipeline: nothing held, nothing booked by it.

A batch's reservation stands for what its items may cost, and what each did cost is booked together
with its result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tollhouse.batches.ports import Answer
from tollhouse.inference.pipeline import Pipeline
from tollhouse.kernel.errors import TollhouseError, without_frames

if TYPE_CHECKING:
    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.inference.call import Call
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.generation import Services
    from tollhouse.kernel.ids import IdSource


class PipelineAsker:
    """Asks, and keeps the record for whoever asked; fulfils `ports.Asker`."""

    def __init__(self, catalog: Catalog, services: Services, ids: IdSource) -> None:
        """Take what ordinary requests use."""
        self._records: dict[str, GenerationRecord | None] = {}
        own = replace(services, settlement=self)
        self.pipeline = Pipeline(catalog, own, ids)

    async def ask(self, call: Call, generation_id: str) -> Answer:
        """Return what came of a request; see `Asker.ask`."""
        self._records[generation_id] = None
        body, error = b"", None
        try:
            exchange = self.pipeline.begin(call, generation_id)
            try:
                body = await exchange.read()
            finally:
                exchange.client_left()
        except TollhouseError as refused:
            error = without_frames(refused)
        finally:
            record = self._records.pop(generation_id)
        return Answer(body, record, error)

    async def settle(self, record: GenerationRecord) -> None:
        """Keep a record, if somebody still waits for it; fulfils `inference.ports.Settlement`."""
        if record.id in self._records:
            self._records[record.id] = record

"""Batches: the engine that runs them, and the service for their endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tollhouse.apps.blobs import check_blobs
from tollhouse.batches.chunk_store import BatchContext, ChunkStore, Doorbell
from tollhouse.batches.compression import ChunkCompressor
from tollhouse.batches.concurrency import ConcurrencyLimiters
from tollhouse.batches.driver import RequestDriver
from tollhouse.batches.engine import BatchEngine, BatchSweeper
from tollhouse.batches.inference_client import BatchSubjects, InferenceClient
from tollhouse.batches.ingest.reader import BatchLimits
from tollhouse.batches.ingest.receiver import BatchReceiver
from tollhouse.batches.policy import BatchRules
from tollhouse.batches.service import BatchService
from tollhouse.storage.notifications import Topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tollhouse.accounting.types import Reservation
    from tollhouse.apps.core import Core
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.dependencies import PipelineDependencies
    from tollhouse.settings.service_sections import BatchSettings
    from tollhouse.storage.blobs import Blobs


@dataclass(frozen=True, slots=True)
class BatchComponents:
    """What takes, runs and removes batches."""

    service: BatchService
    engine: BatchEngine
    sweeper: BatchSweeper
    compressor: ChunkCompressor
    client: InferenceClient
    blobs: Blobs
    has_database_alone: bool
    """Whether no other server uses the database."""

    async def start(self) -> None:
        """Recover what a killed server left, then run batches.

        Raises:
            StartError: The store of blobs cannot be used.
        """
        await check_blobs(self.blobs)
        if self.has_database_alone:
            await self.sweeper.recover_after_crash()
        self.engine.start()
        self.compressor.start()

    async def stop(self, seconds: float) -> None:
        """Stop running batches; items that do not end in half of the time are run again later."""
        await self.compressor.stop()
        await self.engine.stop(seconds / 2)
        await self.client.pipeline.drain(0)


def build_batches(  # noqa: PLR0913 - each is a part of the gateway
    settings: BatchSettings,
    core: Core,
    catalog: Catalog,
    services: PipelineDependencies,
    blobs: Blobs,
    *,
    largest_request: int,
    is_busy: Callable[[], bool],
    settled: Callable[[], Awaitable[None]],
    reload: Callable[[str, Sequence[str]], Awaitable[None]],
    reserve: Callable[[Reservation], Awaitable[None]],
) -> BatchComponents:
    """Return what runs batches on the services of ordinary requests.

    An ordinary request's body has at most `largest_request` bytes; `is_busy` tells whether one is
    under way that somebody waits for; `settled` waits until charges are booked; `reload` has
    admission read an account and keys again; of `reserve` see `BatchService`.
    """
    context = BatchContext(
        core.database, blobs, core.accounting, Doorbell(), rules_of(settings), core.clock, core.ids
    )
    core.database.notifications.subscribe(Topic.BATCH, context.doorbell.ring)
    chunks = ChunkStore(context, timedelta(seconds=settings.lease_seconds))
    sweeper = BatchSweeper(context, chunks)
    client = InferenceClient(catalog, services, core.ids)
    driver = RequestDriver(
        chunks=chunks,
        limiters=ConcurrencyLimiters(settings.requests_per_provider, core.clock, is_busy),
        client=client,
        subjects=BatchSubjects(core.identity, core.database),
        catalog=catalog,
        steps=services.steps,
        clock=core.clock,
        part_seconds=settings.part_seconds,
        keep_seconds=settings.lease_seconds / 3,
        booked=client.booked,
        dropped=client.dropped,
    )
    engine = BatchEngine(
        chunks,
        driver,
        context.doorbell,
        sweeper,
        places=settings.chunks_at_once,
        round_seconds=settings.round_seconds,
    )
    largest_item = settings.item_limit_bytes or largest_request
    limits = BatchLimits(settings.body_limit_bytes, settings.max_items, largest_item)
    service = BatchService(
        context,
        BatchReceiver(blobs, limits),
        catalog,
        lambda endpoint: services.providers[endpoint.provider].dialects,
        settled,
        reload,
        reserve,
        services.own_keys_of,
        services.rules.own_fee,
    )
    alone = core.database.dialect == "sqlite"
    compressor = ChunkCompressor(context)
    return BatchComponents(service, engine, sweeper, compressor, client, blobs, alone)


def rules_of(settings: BatchSettings) -> BatchRules:
    """Return the rules that the settings give."""
    return BatchRules(
        window=timedelta(hours=settings.window_hours),
        retention=timedelta(days=settings.retention_days),
        per_hour=settings.submits_per_hour,
        most_open=settings.max_open,
        assumed_output_tokens=settings.assumed_output_tokens,
    )

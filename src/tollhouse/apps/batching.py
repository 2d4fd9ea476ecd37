"""Batches, put together: the store of their blobs, the engine, and the service before both."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tollhouse.batches.asker import PipelineAsker
from tollhouse.batches.books import BatchBooks
from tollhouse.batches.context import Context
from tollhouse.batches.drivers.fanout import Fanout, Tools
from tollhouse.batches.engine import Engine
from tollhouse.batches.ingest.intake import IntakeLimits
from tollhouse.batches.ingest.receiver import Receiver
from tollhouse.batches.lanes import Lanes
from tollhouse.batches.owners import KeyOwners
from tollhouse.batches.policy import BatchRules
from tollhouse.batches.queue import LocalDoorbell
from tollhouse.batches.service import BatchService, Market
from tollhouse.batches.sweeper import Sweeper
from tollhouse.kernel.start import StartError
from tollhouse.storage.blobs.local import LocalBlobs
from tollhouse.storage.blobs.port import BlobsUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tollhouse.apps.core import Core
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.generation import Services
    from tollhouse.kernel.ids import IdSource
    from tollhouse.settings.stored import BatchSettings, BlobSettings
    from tollhouse.storage.blobs.port import Blobs
    from tollhouse.storage.data_folder import DataFolder


@dataclass(frozen=True, slots=True)
class Batching:
    """Everything of batches that runs or answers."""

    service: BatchService
    engine: Engine
    sweeper: Sweeper
    asker: PipelineAsker
    blobs: Blobs


def open_blobs(settings: BlobSettings, folder: DataFolder, ids: IdSource) -> Blobs:
    """Return the store of blobs; nothing is asked of it yet.

    Raises:
        StartError: Its settings contradict each other.
    """
    if settings.bucket is None:
        return LocalBlobs(folder.blobs)
    # Imported here: who stores locally saves its 20 ms and 7 MB.
    from tollhouse.storage.blobs.s3 import S3Blobs, S3Credentials, S3Place  # noqa: PLC0415

    key_id, secret = settings.access_key_id, settings.secret_access_key
    credentials = None
    if key_id is not None and secret is not None:
        credentials = S3Credentials(key_id, secret)
    elif key_id is not None or secret is not None:
        message = "blobs.access_key_id and blobs.secret_access_key belong together: set both"
        raise StartError(message)
    place = S3Place(
        bucket=settings.bucket,
        prefix=(settings.prefix or "").strip("/"),
        endpoint=settings.endpoint,
        region=settings.region,
        credentials=credentials,
    )
    return S3Blobs(place, ids)


async def ready_blobs(blobs: Blobs) -> None:
    """Make sure that blobs can be used, and remove what killed writers left in a local store.

    Raises:
        StartError: They cannot.
    """
    try:
        if isinstance(blobs, LocalBlobs):
            await blobs.sweep()
        else:
            await blobs.list("tollhouse-probe")
    except BlobsUnavailable as error:
        message = f"the store of blobs cannot be used ({error.reason}): mend it, or settings.blobs"
        raise StartError(message) from error


def build_batching(  # noqa: PLR0913 - each is a part of the gateway
    settings: BatchSettings,
    core: Core,
    catalog: Catalog,
    services: Services,
    blobs: Blobs,
    *,
    largest_request: int,
    is_busy: Callable[[], bool],
    settled: Callable[[], Awaitable[None]],
) -> Batching:
    """Return batches on the gateway's own services.

    Args:
        settings: Limits and paces.
        core: The database and the services above it.
        catalog: The models.
        services: What ordinary requests use.
        blobs: Where items and results are stored.
        largest_request: Bytes that the body of an ordinary request may have.
        is_busy: Whether requests are under way that somebody waits for.
        settled: Brings the books up to date.
    """
    context = Context(
        core.database,
        blobs,
        core.accounting,
        LocalDoorbell(),
        rules_of(settings),
        core.clock,
        core.ids,
    )
    books = BatchBooks(context, timedelta(seconds=settings.lease_seconds))
    sweeper = Sweeper(context, books)
    asker = PipelineAsker(catalog, services, core.ids)
    driver = Fanout(
        Tools(
            books=books,
            lanes=Lanes(settings.requests_per_provider, core.clock, is_busy),
            asker=asker,
            owners=KeyOwners(core.identity, core.database),
            catalog=catalog,
            steps=services.steps,
            clock=core.clock,
            part_seconds=settings.part_seconds,
            keep_seconds=settings.lease_seconds / 3,
        )
    )
    engine = Engine(
        books,
        driver,
        context.doorbell,
        sweeper,
        places=settings.chunks_at_once,
        round_seconds=settings.round_seconds,
    )
    largest_item = settings.item_limit_bytes or largest_request
    limits = IntakeLimits(settings.body_limit_bytes, settings.max_items, largest_item)
    market = Market(catalog, lambda offer: services.providers[offer.provider].dialects)
    service = BatchService(context, Receiver(blobs, limits), market, settled=settled)
    return Batching(service, engine, sweeper, asker, blobs)


def rules_of(settings: BatchSettings) -> BatchRules:
    """Return the rules that the settings give."""
    return BatchRules(
        window=timedelta(hours=settings.window_hours),
        retention=timedelta(days=settings.retention_days),
        per_hour=settings.submits_per_hour,
        most_open=settings.max_open,
        assumed_output_tokens=settings.assumed_output_tokens,
    )

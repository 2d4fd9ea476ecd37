"""The store of blobs, and the archives of interns' workspaces in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.interns.workspaces.archive_store import ArchiveStore
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.ids import IdSource, RandomIds
from tollhouse.storage.blobs import Blobs, BlobsUnavailable, LocalBlobs
from tollhouse.storage.data_folder import DataFolder

if TYPE_CHECKING:
    from tollhouse.settings.sections import Settings
    from tollhouse.settings.service_sections import BlobSettings


def open_blobs(settings: BlobSettings, folder: DataFolder, ids: IdSource) -> Blobs:
    """Return the store of blobs; nothing is asked of it yet.

    Raises:
        StartError: Its settings contradict each other.
    """
    if settings.bucket is None:
        return LocalBlobs(folder.blobs)
    # Imported here: who stores locally saves its 20 ms and 7 MB.
    from tollhouse.storage.s3_blobs import S3Blobs, S3Credentials, S3Place  # noqa: PLC0415

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


async def check_blobs(blobs: Blobs) -> None:
    """Check that blobs can be used, and remove what killed writers left in a local store.

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


def open_archives(settings: Settings) -> ArchiveStore:
    """Return the archives of an installation for reading, whether or not its server runs.

    Raises:
        StartError: The settings of the store contradict each other.
    """
    ids = RandomIds()
    blobs = open_blobs(settings.blobs, DataFolder(settings.data_dir), ids)
    return ArchiveStore(blobs, ids, SystemClock())

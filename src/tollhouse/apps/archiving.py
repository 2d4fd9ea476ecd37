"""The archives of interns' workspaces, for a command without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.apps.batching import open_blobs
from tollhouse.interns.archives import Archives
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.ids import RandomIds
from tollhouse.storage.data_folder import DataFolder

if TYPE_CHECKING:
    from tollhouse.settings.sections import Settings


def open_archives(settings: Settings) -> Archives:
    """Return the archives of an installation, whether or not its server runs: to be read.

    Raises:
        StartError: The settings of the store contradict each other.
    """
    ids = RandomIds()
    blobs = open_blobs(settings.blobs, DataFolder(settings.data_dir), ids)
    return Archives(blobs, ids, SystemClock())

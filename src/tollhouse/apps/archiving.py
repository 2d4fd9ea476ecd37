"""The archives of interns' workspaces, for the server and for a command without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.apps.batching import open_blobs
from tollhouse.interns.archives import Archives
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.ids import RandomIds
from tollhouse.storage.data_folder import DataFolder

if TYPE_CHECKING:
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.settings.hosted import InternSettings
    from tollhouse.settings.sections import Settings
    from tollhouse.storage.blobs.port import Blobs

_TIMES: Final = 2
_BESIDES: Final = 64 * 1024 * 1024


def build_archives(settings: InternSettings, blobs: Blobs, ids: IdSource, clock: Clock) -> Archives:
    """Return the archives of workspaces; nothing is asked of the store yet.

    Args:
        settings: How much a workspace may hold. An archive may have twice as much, since it has
            names too.
        blobs: Where they are.
        ids: Names them.
        clock: Dates them.
    """
    return Archives(blobs, ids, clock, _TIMES * settings.disk_bytes + _BESIDES)


def open_archives(settings: Settings) -> Archives:
    """Return the archives of an installation, whether or not its server runs: to be read.

    Raises:
        StartError: The settings of the store contradict each other.
    """
    ids = RandomIds()
    blobs = open_blobs(settings.blobs, DataFolder(settings.data_dir), ids)
    return build_archives(settings.interns, blobs, ids, SystemClock())

"""`tollhouse serve` that stops for ever at a named point in the life of a batch.

    python -m tests.faults.pausing_batches POINT PASSES MARKER serve --json ...

As `pausing_server`, at other points.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pausing_server import Failpoint, stop_at

from tollhouse.batches.chunk_store import ChunkStore
from tollhouse.batches.ingest.receiver import BatchReceiver
from tollhouse.batches.service import BatchService
from tollhouse.cli.main import main
from tollhouse.storage.blobs import LocalBlobs

POINTS = {
    "items stored": (BatchReceiver, "receive", "after"),
    "submitted, not yet said": (BatchService, "_create", "after"),
    "leased": (ChunkStore, "lease", "after"),
    "results stored, not yet named": (ChunkStore, "_store", "after"),
    "results named": (ChunkStore, "commit", "after"),
    "about to end": (ChunkStore, "close_if_done", "before"),
    "ended, not yet committed": (ChunkStore, "close_if_done", "after"),
    "cancelled, not yet committed": (BatchService, "cancel", "after"),
    "deleted, files there": (LocalBlobs, "delete_all", "before"),
    "deleted, files gone": (LocalBlobs, "delete_all", "after"),
}

if __name__ == "__main__":
    _, chosen, count, file, *arguments = sys.argv
    stop_at(*POINTS[chosen], Failpoint(int(count), Path(file)))
    sys.argv = ["tollhouse", *arguments]
    main()

"""`tollhouse serve` whose recovery of batches never ends, and whose requests wait 0.2 s for it.

    python -m tests.faults.pausing_recovery MARKER serve --json ...

It writes the file MARKER once recovery has begun. Nothing else of the program is changed.
"""

import sys
from pathlib import Path

from pausing_server import Failpoint, stop_at

from tollhouse.api.system import Recovery
from tollhouse.batches.engine import BatchSweeper
from tollhouse.cli.main import main

if __name__ == "__main__":
    _, marker, *arguments = sys.argv
    stop_at(BatchSweeper, "recover_after_crash", "before", Failpoint(1, Path(marker)))
    Recovery.PATIENCE_SECONDS = 0.2  # type: ignore[misc]
    sys.argv = ["tollhouse", *arguments]
    main()

"""The books process that stops for ever at a named point; `pausing_server` starts it.

python pausing_books.py DATABASE POINT PASSES MARKER
"""

from __future__ import annotations

import sys
from pathlib import Path

from pausing_server import POINTS_OF_BOOKS, Failpoint, set_failpoint

from tollhouse.accounting.settlement import postgresql_child, sqlite_child

MAINS = {"sqlite": sqlite_child.main, "postgresql": postgresql_child.main}

if __name__ == "__main__":
    _, database, chosen, count, file = sys.argv
    if chosen in POINTS_OF_BOOKS:
        set_failpoint(chosen, Failpoint(int(count), Path(file)))
    MAINS[database]()

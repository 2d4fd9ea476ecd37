"""The migrations of earlier releases."""

import shutil
from pathlib import Path

from tollhouse.storage.migrator import MIGRATIONS


def migrations_before(revision: str, folder: Path) -> Path:
    """Return a copy of the migrations that there were before a revision."""
    before = shutil.copytree(MIGRATIONS, folder / "migrations")
    for later in (before / "versions").glob("0*.py"):
        if later.name >= revision:
            later.unlink()
    return before

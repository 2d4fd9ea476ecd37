"""`tollhouse migrate`: the configured database, brought to the schema of this program.

The one way into Alembic from this process; a server starts the migrator as a child instead.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tollhouse.apps.startup import database_url
from tollhouse.storage.data_folder import DataFolder
from tollhouse.storage.database import open_database
from tollhouse.storage.migrator import upgrade
from tollhouse.storage.revision import current, is_behind

if TYPE_CHECKING:
    import sqlalchemy as sa

    from tollhouse.settings.sections import Settings


def is_current(settings: Settings) -> bool:
    """Tell whether the database has the schema of this program; touches nothing.

    Raises:
        StartError: It cannot be read, or only another version of the program knows its schema.
    """
    url = database_url(settings, DataFolder(settings.data_dir))
    return not is_behind(url, asyncio.run(_revision(url)))


def migrate(settings: Settings) -> None:
    """Apply the migrations that the database lacks.

    Raises:
        StartError: A server holds the data folder, or a migration failed; nothing was changed.
    """
    folder = DataFolder(settings.data_dir)
    url = database_url(settings, folder)
    with folder if url.get_backend_name() == "sqlite" else nullcontext():
        upgrade(url)


async def _revision(url: sa.URL) -> str | None:
    database = open_database(url)
    try:
        return await current(database)
    finally:
        await database.close()

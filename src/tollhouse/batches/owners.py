"""Whose requests the items of a batch are; fulfils `ports.Owners`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tollhouse.batches.types import Batch
    from tollhouse.identity.service import IdentityService
    from tollhouse.identity.types import Subject
    from tollhouse.storage.database import Database


class KeyOwners:
    """Reads them from the database."""

    def __init__(self, identity: IdentityService, database: Database) -> None:
        """Take what it needs."""
        self._identity = identity
        self._database = database

    async def owner(self, batch: Batch) -> Subject:
        """Return the subject of a batch's key; see `Owners.owner`."""
        async with self._database.reading() as read:
            return await self._identity.owner(read, batch.key_hash, batch.payer_hash)

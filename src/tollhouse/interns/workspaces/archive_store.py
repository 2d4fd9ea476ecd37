"""Archives of workspaces in the store of blobs: written, found, read back.

    interns/<id>/<attempt>/00000, 00001, ...   the pieces of one tar.zst
                           manifest.json       written last: without it, this is no archive

An attempt that fails takes its pieces with it; what a killed server leaves goes with the next
attempt, or at the next start once the intern is gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tollhouse.kernel.clock import Clock, iso_utc
from tollhouse.storage.blobs import BlobMissing, Blobs, BlobsUnavailable

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Sequence,
    )

    from tollhouse.interns.types import Intern
    from tollhouse.kernel.ids import IdSource

_TOP: Final = "interns"
_MANIFEST: Final = "manifest.json"
_PIECE: Final = 8 * 1024 * 1024
"""Bytes of a piece."""
_CLEAN_SECONDS: Final = 10.0
_log = structlog.get_logger(__name__)


class ArchiveDamaged(Exception):
    """What is stored is not what was written."""


class Manifest(msgspec.Struct, frozen=True):
    """What is known of an archive: whose it is, and what belongs to it."""

    intern_id: str
    name: str
    account_id: str
    workspace_id: str
    archived_at: str
    pieces: int
    bytes: int
    sha256: str
    """Of all pieces together."""
    version: int = 1


class Archive(msgspec.Struct, frozen=True):
    """An archive that is whole."""

    folder: str
    """In the store."""
    manifest: Manifest


@dataclass(slots=True)
class ArchiveStore:
    """The archives of workspaces."""

    blobs: Blobs
    ids: IdSource
    """Names attempts."""
    clock: Clock

    async def store(self, intern: Intern, content: AsyncIterator[bytes]) -> None:
        """Store the archive of an intern, in the place of what was stored of it before.

        Raises `BlobsUnavailable`, or whatever the content raises; nothing of it is left then.
        """
        before = await self._attempts(f"{_TOP}/{intern.id}")
        await self._discard(folder for folder, whole in before.items() if not whole)
        folder = f"{_TOP}/{intern.id}/{self.ids.uuid()}"
        try:
            manifest = await self._put(folder, intern, content)
        except BaseException:
            await self._discard([folder])
            raise
        await self._discard(folder for folder, whole in before.items() if whole)
        _log.info("intern_archived", intern=intern.id, pieces=manifest.pieces, size=manifest.bytes)

    async def list(self) -> Sequence[Archive]:
        """Return every archive that is whole, the oldest first; raises `BlobsUnavailable`."""
        attempts = await self._attempts(_TOP)
        found = [await self._archive(folder) for folder, whole in attempts.items() if whole]
        present = [each for each in found if each is not None]
        return sorted(present, key=lambda each: each.manifest.archived_at)

    async def read(self, archive: Archive) -> AsyncGenerator[bytes]:
        """Yield the content of an archive: a tar.zst.

        Raises `BlobsUnavailable`, or `ArchiveDamaged` where it is not what was written: what came
        before is not to be used.
        """
        digest = sha256()
        for number in range(archive.manifest.pieces):
            try:
                async for piece in self.blobs.stream(_piece_key(archive.folder, number)):
                    digest.update(piece)
                    yield piece
            except BlobMissing:
                raise ArchiveDamaged from None
        if digest.hexdigest() != archive.manifest.sha256:
            raise ArchiveDamaged

    async def sweep(self, known: Callable[[], Awaitable[Collection[str]]]) -> None:
        """Remove attempts without an end, of interns that `known` does not read any more."""
        try:
            attempts = await self._attempts(_TOP)
            there = await known()
            parts = [each for each, whole in attempts.items() if not whole]
            gone = [each for each in parts if each.split("/")[1] not in there]
            # Whoever was storing one while it was listed has come to the end: its intern is gone.
            left = [each for each in gone if not (await self._attempts(each)).get(each, True)]
        except BlobsUnavailable as error:
            _log.warning("intern_archives_not_swept", reason=error.reason)
            return
        await self._discard(left)

    async def _put(self, folder: str, intern: Intern, content: AsyncIterator[bytes]) -> Manifest:
        digest, pieces, size = sha256(), 0, 0
        async for piece in _in_large_pieces(content):
            size += len(piece)
            digest.update(piece)
            await self.blobs.put(_piece_key(folder, pieces), piece)
            pieces += 1
        manifest = Manifest(
            intern.id,
            intern.name,
            intern.account_id,
            intern.workspace_id,
            iso_utc(self.clock.now()),
            pieces,
            size,
            digest.hexdigest(),
        )
        await self.blobs.put(f"{folder}/{_MANIFEST}", msgspec.json.encode(manifest))
        return manifest

    async def _attempts(self, prefix: str) -> dict[str, bool]:
        """Return the folders of attempts, and whether each has come to its end."""
        found: dict[str, bool] = {}
        for key in await self.blobs.list(prefix):
            folder, _, name = key.rpartition("/")
            found[folder] = found.get(folder, False) or name == _MANIFEST
        return found

    async def _archive(self, folder: str) -> Archive | None:
        try:
            content = await self.blobs.get(f"{folder}/{_MANIFEST}")
            return Archive(folder, msgspec.json.decode(content, type=Manifest))
        except (BlobMissing, msgspec.DecodeError):
            _log.warning("intern_archive_unreadable", folder=folder)
            return None

    async def _discard(self, folders: Iterable[str]) -> None:
        """Remove what nobody needs; what cannot be removed now is found again later."""
        for folder in folders:
            try:
                async with asyncio.timeout(_CLEAN_SECONDS):
                    # The marker first: half of an archive is none.
                    await self.blobs.delete([f"{folder}/{_MANIFEST}"])
                    await self.blobs.delete_all(folder)
            except (BlobsUnavailable, TimeoutError):
                _log.warning("intern_archive_not_removed", folder=folder)


def _piece_key(folder: str, number: int) -> str:
    return f"{folder}/{number:05}"


async def _in_large_pieces(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield pieces as fewer and larger ones."""
    gathered = bytearray()
    async for piece in pieces:
        gathered += piece
        if len(gathered) >= _PIECE:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)

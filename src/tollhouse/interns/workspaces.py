"""The workspaces of this machine's interns: made, made safe, archived, removed.

    <data>/interns/machine         a name of this machine, made once
                   files/<id>/     an intern's workspace

An archive is `interns/<id>/<made>/00000`, `00001` and so on in the store of blobs: the pieces of
one tar.zst.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.interns import workspace
from tollhouse.interns.archive import pack
from tollhouse.interns.machine import machine_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from tollhouse.kernel.ids import IdSource
    from tollhouse.storage.blobs.port import Blobs

_PIECE: Final = 8 * 1024 * 1024
"""Bytes of a piece of an archive."""
_log = structlog.get_logger(__name__)


class Workspaces:
    """The folders of interns."""

    def __init__(self, root: Path, blobs: Blobs, ids: IdSource, first_user: int) -> None:
        """Take where they are.

        Args:
            root: The folder of all that belongs to interns.
            blobs: Where archives go.
            ids: Names this machine, and each archive.
            first_user: Where the server may choose as whom a sandbox runs, intern 1 is this user.
        """
        self._root = root
        self._files = root / "files"
        self._blobs = blobs
        self._ids = ids
        self._first_user = first_user

    @property
    def machine(self) -> str:
        """The name of this machine, which its interns are bound to."""
        return machine_name(self._root, self._ids)

    def user(self, number: int) -> int:
        """Return the user that the sandbox of an intern runs as.

        Args:
            number: The intern's.
        """
        return self._first_user + number - 1 if os.geteuid() == 0 else os.geteuid()

    def path(self, intern_id: str) -> Path:
        """Return the workspace of an intern."""
        return self._files / intern_id

    async def prepare(self, intern_id: str) -> None:
        """Make an intern's workspace where it is missing; whoever starts its sandbox gives it away.

        Raises:
            OSError: It cannot be made.
        """
        await asyncio.to_thread(workspace.make, self.path(intern_id))

    async def digest(self, intern_id: str) -> str:
        """Return what equal files of a workspace have in common, in hex.

        Raises:
            OSError: They cannot be read.
        """
        return await workspace.digest(self.path(intern_id))

    async def flush(self, intern_id: str) -> str:
        """Make a workspace survive a power failure; return its digest.

        Raises:
            OSError: It cannot be read or written.
        """
        await workspace.flush(self.path(intern_id))
        return await self.digest(intern_id)

    async def archive(self, intern_id: str) -> None:
        """Store a copy of a workspace that outlives it; nothing where it has none.

        Raises:
            BlobsUnavailable: The store fails.
            OSError: The files cannot be read.
        """
        path = self.path(intern_id)
        if not path.exists():
            return
        made = self._ids.uuid()
        pieces = _joined(pack(path))
        number = 0
        while piece := await asyncio.to_thread(next, pieces, b""):
            await self._blobs.put(f"interns/{intern_id}/{made}/{number:05}", piece)
            number += 1
        _log.info("intern_archived", intern=intern_id, archive=made, pieces=number)

    async def remove(self, intern_id: str) -> None:
        """Remove a workspace with all in it; where that fails, the next start tries again."""
        path = self.path(intern_id)
        # These take any tree that a stranger may have made: deep, wide, shut to its owner.
        await _run("chmod", "-R", "u+rwX", "--", str(path))
        if await _run("rm", "-rf", "--", str(path)):
            _log.error("intern_workspace_not_removed", intern=intern_id)

    async def sweep(self, known: Collection[str]) -> None:
        """Remove the workspaces of interns that there are no more."""
        found = await asyncio.to_thread(lambda: list(self._files.glob("*")))
        for path in found:
            if path.name not in known:
                await self.remove(path.name)


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces as fewer and larger ones."""
    gathered = bytearray()
    for piece in pieces:
        gathered += piece
        if len(gathered) >= _PIECE:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)


async def _run(*command: str) -> int:
    """Run a program to its end, silently; return its exit code."""
    nothing = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, stdin=nothing, stdout=nothing, stderr=nothing
    )
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise

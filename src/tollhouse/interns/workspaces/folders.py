"""The workspaces of this machine's interns: made, made safe, archived, removed.

    <data>/interns/machine                a name of this machine, made once
                   files/<id>/            an intern's workspace
                   files/<id>.gone-<at>/  one whose intern the database did not know at a start
                   files/<id>.gone-0/     one of an intern that is all but deleted

What the database does not know is put aside at a start, since it may be the wrong database, or
one from an old backup: it comes back once its intern is known again, and is removed after a week.
What was to be removed, when the server was killed, is as if it had been put aside long ago.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.interns.workspaces import contents
from tollhouse.interns.workspaces.jobs import WorkspaceJobs
from tollhouse.kernel.files import sync_folder
from tollhouse.kernel.subprocesses import kill, start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from datetime import datetime
    from pathlib import Path

    from tollhouse.interns.types import Intern
    from tollhouse.interns.workspaces.archive_store import ArchiveStore
    from tollhouse.kernel.ids import IdSource

_MACHINE_FILE: Final = "machine"


def machine_name(folder: Path, ids: IdSource) -> str:
    """Return the name that a folder keeps; made, and on the disk, where it has none yet.

    Raises `OSError` where it can be neither read nor written.
    """
    note = folder / _MACHINE_FILE
    if note.exists() and (kept := note.read_text()):
        return kept
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = folder / f".{_MACHINE_FILE}"
    with made.open("w", encoding="utf-8") as file:
        file.write(ids.uuid())
        file.flush()
        os.fsync(file.fileno())
    made.replace(note)  # a whole name, or none: half of one would be another machine
    sync_folder(folder)
    return note.read_text()


_GONE: Final = ".gone-"
"""Between the id of an intern and when its workspace was put aside, in seconds of Unix time."""
_GONE_SECONDS: Final = 7 * 24 * 60 * 60
_log = structlog.get_logger(__name__)


class Workspaces:
    """The folders of interns."""

    def __init__(self, root: Path, archives: ArchiveStore, machine: str, first_user: int) -> None:
        """Keep workspaces in a folder `files` of `root`.

        Where the server may choose as whom a sandbox runs, intern 1 is the user `first_user`.
        """
        self.machine = machine
        self._files = root / "files"
        self._archives = archives
        self._first_user = first_user
        self._jobs = WorkspaceJobs()

    def user(self, number: int) -> int:
        """Return the user that the sandbox of the intern of a number runs as."""
        return self._first_user + number - 1 if os.geteuid() == 0 else os.geteuid()

    def path(self, intern_id: str) -> Path:
        """Return the workspace of an intern."""
        return self._files / intern_id

    async def prepare(self, intern_id: str) -> None:
        """Make an intern's workspace where it is missing; its sandbox's start changes its owner."""
        await asyncio.to_thread(contents.make_workspace, self.path(intern_id))

    async def digest(
        self, intern_id: str, alive: Callable[[], None], *, flush: bool = False
    ) -> str:
        """Return the digest of a workspace; with `flush`, its files then survive a power failure.

        It fails as `WorkspaceJobs` does, and calls `alive` while it goes on.
        """
        return await self._jobs.digest(self.path(intern_id), alive, flush=flush)

    async def archive(self, intern: Intern, alive: Callable[[], None]) -> None:
        """Store a copy of an intern's workspace that outlives it; nothing where it has none.

        It fails as `WorkspaceJobs` does, and with `BlobsUnavailable`.
        """
        path = self.path(intern.id)
        if not path.exists():
            return
        async with aclosing(self._jobs.pack(path, alive)) as content:
            await self._archives.store(intern, content)

    async def retire(self, intern_id: str) -> None:
        """Mark a workspace as needed no more, so that a start after a kill removes it.

        It is for the moment before the database forgets its intern, which never runs again.
        """
        with suppress(FileNotFoundError):
            await asyncio.to_thread(self.path(intern_id).rename, self._retired(intern_id))

    async def remove(self, intern_id: str) -> None:
        """Remove a workspace that was retired, with all in it."""
        await self._remove(self._retired(intern_id))

    def is_empty(self) -> bool:
        """Tell whether there are no workspaces here."""
        return next(self._files.glob("*"), None) is None

    def put_aside(self, known: Collection[str], now: datetime) -> None:
        """Put workspaces aside whose interns there are no more; `sweep` removes them one day."""
        for path in list(self._files.glob("*")):
            if _GONE not in path.name and path.name not in known:
                aside = path.with_name(f"{path.name}{_GONE}{int(now.timestamp())}")
                _log.warning("intern_workspace_put_aside", intern=path.name)
                path.rename(aside)

    def bring_back(self, known: Collection[str]) -> None:
        """Bring back the newest of what was put aside of interns that are known again."""
        for path in sorted(self._files.glob(f"*{_GONE}*"), reverse=True):
            intern_id = path.name.partition(_GONE)[0]
            if intern_id in known and not self.path(intern_id).exists():
                path.rename(self.path(intern_id))
                _log.warning("intern_workspace_brought_back", intern=intern_id)

    async def sweep(self, known: Callable[[], Awaitable[Collection[str]]], now: datetime) -> None:
        """Remove what was put aside a week ago, and unfinished archives of what there is no more.

        `known` reads the ids of all interns.
        """
        for path in await asyncio.to_thread(lambda: list(self._files.glob(f"*{_GONE}*"))):
            if now.timestamp() - int(path.name.partition(_GONE)[2]) >= _GONE_SECONDS:
                await self._remove(path)
        await self._archives.sweep(known)

    def _retired(self, intern_id: str) -> Path:
        return self._files / f"{intern_id}{_GONE}0"

    async def _remove(self, path: Path) -> None:
        # These take any tree that a stranger may have made: deep, wide, shut to its owner.
        await _run("chmod", "-R", "u+rwX", "--", str(path))
        if await _run("rm", "-rf", "--", str(path)):
            _log.error("intern_workspace_not_removed", intern=path.name)


async def _run(*command: str) -> int:
    """Run a program to its end, silently; return its exit code."""
    nothing = asyncio.subprocess.DEVNULL
    process = await start(*command, stdin=nothing, stdout=nothing, stderr=nothing)
    try:
        return await process.wait()
    except asyncio.CancelledError:
        await kill(process)
        raise

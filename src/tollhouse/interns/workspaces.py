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
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.interns import workspace
from tollhouse.interns.walks.walker import Walker
from tollhouse.kernel.subprocesses import kill, start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from datetime import datetime
    from pathlib import Path

    from tollhouse.interns.archives import Archives
    from tollhouse.interns.types import Intern

_ASIDE: Final = ".gone-"
"""Between the id of an intern and when its workspace was put aside, in seconds of Unix time."""
_ASIDE_SECONDS: Final = 7 * 24 * 60 * 60
_log = structlog.get_logger(__name__)


class Workspaces:
    """The folders of interns."""

    def __init__(
        self,
        root: Path,
        archives: Archives,
        machine: str,
        first_user: int,
    ) -> None:
        """Take where they are.

        Args:
            root: The folder of all that belongs to interns.
            archives: Where archives go.
            machine: The name of this machine, which its interns are bound to.
            first_user: Where the server may choose as whom a sandbox runs, intern 1 is this user.
        """
        self.machine = machine
        self._files = root / "files"
        self._archives = archives
        self._first_user = first_user
        self._walker = Walker()

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

    async def digest(
        self, intern_id: str, alive: Callable[[], None], *, flush: bool = False
    ) -> str:
        """Return what equal files of a workspace have in common, in hex.

        Args:
            intern_id: Whose.
            alive: Called while it goes on.
            flush: Whether they are to survive a power failure once this returns.

        Raises:
            WalkRefused: They are too many.
            WalkBroken: Reading them ended without an end.
            OSError: They cannot be read, or flushed.
        """
        return await self._walker.digest(self.path(intern_id), alive, flush=flush)

    async def archive(self, intern: Intern, alive: Callable[[], None]) -> None:
        """Store a copy of a workspace that outlives it; nothing where it has none.

        Args:
            intern: Whose.
            alive: Called while it goes on.

        Raises:
            WalkRefused: Its files are too many.
            WalkBroken: Reading them ended without an end.
            BlobsUnavailable: The store fails.
            OSError: The files cannot be read.
        """
        path = self.path(intern.id)
        if not path.exists():
            return
        async with aclosing(self._walker.pack(path, alive)) as content:
            await self._archives.store(intern, content)

    async def retire(self, intern_id: str) -> None:
        """Mark a workspace as needed no more, so that a start after a kill removes it.

        It is for the moment before the database forgets its intern, which never runs again.

        Raises:
            OSError: It cannot be renamed.
        """
        await asyncio.to_thread(self._retire, intern_id)

    async def remove(self, intern_id: str) -> None:
        """Remove a workspace that was retired, with all in it."""
        await self._remove(self._retired(intern_id))

    def is_empty(self) -> bool:
        """Tell whether there are no workspaces here."""
        return next(self._files.glob("*"), None) is None

    def put_aside(self, known: Collection[str], now: datetime) -> None:
        """Put workspaces aside whose interns there are no more; `sweep` removes them one day.

        Args:
            known: Every intern there is.
            now: The present.

        Raises:
            OSError: One cannot be renamed.
        """
        for path in list(self._files.glob("*")):
            if _ASIDE not in path.name and path.name not in known:
                aside = path.with_name(f"{path.name}{_ASIDE}{int(now.timestamp())}")
                _log.warning("intern_workspace_put_aside", intern=path.name)
                path.rename(aside)

    def bring_back(self, known: Collection[str]) -> None:
        """Bring back the newest of what was put aside of interns that are known again.

        Raises:
            OSError: One cannot be renamed.
        """
        for path in sorted(self._files.glob(f"*{_ASIDE}*"), reverse=True):
            intern_id = path.name.partition(_ASIDE)[0]
            if intern_id in known and not self.path(intern_id).exists():
                path.rename(self.path(intern_id))
                _log.warning("intern_workspace_brought_back", intern=intern_id)

    async def sweep(self, known: Callable[[], Awaitable[Collection[str]]], now: datetime) -> None:
        """Remove what was put aside a week ago, and unfinished archives of what there is no more.

        Args:
            known: Reads every intern there is.
            now: The present.
        """
        for path in await asyncio.to_thread(lambda: list(self._files.glob(f"*{_ASIDE}*"))):
            if now.timestamp() - int(path.name.partition(_ASIDE)[2]) >= _ASIDE_SECONDS:
                await self._remove(path)
        await self._archives.sweep(known)

    def _retired(self, intern_id: str) -> Path:
        return self._files / f"{intern_id}{_ASIDE}0"

    def _retire(self, intern_id: str) -> None:
        if self.path(intern_id).exists():
            self.path(intern_id).rename(self._retired(intern_id))

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

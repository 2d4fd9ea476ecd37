"""Archives of workspaces, read out of the store into files and folders of this machine."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.interns.lookup import only
from tollhouse.cli.output import give_up
from tollhouse.cli.sinks import part_of, refuse_what_is_there
from tollhouse.interns.archive import ArchiveBroken, unpack
from tollhouse.interns.archives import ArchiveDamaged
from tollhouse.kernel.start import StartError
from tollhouse.storage.blobs.port import BlobsUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from tollhouse.interns.archives import Archive, Archives


async def listed(archives: Archives) -> list[dict[str, Any]]:
    """Return what is known of each archive.

    Raises:
        CommandFailed: The store cannot be read.
    """
    with _failures():
        return [msgspec.to_builtins(each.manifest) for each in await archives.list()]


async def exported(archives: Archives, reference: str, target: Path | None, *, force: bool) -> int:
    """Write an archive.

    Args:
        archives: All of them.
        reference: Id or name of the intern.
        target: The file, which is there once it is whole; None for standard output.
        force: Whether it may be there already.

    Returns:
        Its size in bytes; 0 where nobody reads standard output to its end.

    Raises:
        CommandFailed: There is none, it is damaged, the store cannot be read, or standard output is
            full.
        StartError: The file is there already, or cannot be written.
    """
    try:
        with _failures(), _opened(target, force=force) as file:
            archive = await _find(archives, reference)
            async with aclosing(archives.read(archive)) as content:
                async for piece in content:
                    file.write(piece)
            file.flush()
            return archive.manifest.bytes
    except OSError as error:  # of standard output: a file's is a StartError
        give_up(error)
        return 0


async def unpacked(archives: Archives, reference: str, folder: Path) -> None:
    """Make a folder of an archive; after an error some of it may be there.

    Raises:
        CommandFailed: There is none, it is damaged, or the store cannot be read.
        StartError: The folder is there already, or cannot be made.
    """
    loop = asyncio.get_running_loop()
    with _failures():
        archive = await _find(archives, reference)
        async with aclosing(archives.read(archive)) as content:

            async def following() -> bytes:
                return await anext(content, b"")

            def pieces() -> Iterator[bytes]:
                while piece := asyncio.run_coroutine_threadsafe(following(), loop).result():
                    yield piece

            try:
                await asyncio.to_thread(unpack, pieces(), folder)
                if await following():  # what it says of itself is known at its end
                    raise ArchiveDamaged
            except OSError as error:
                message = f"{folder} cannot be made ({error.strerror})"
                raise StartError(message) from None


async def _find(archives: Archives, reference: str) -> Archive:
    # An earlier archive of the same intern may be left where it could not be removed.
    newest = {each.manifest.intern_id: each for each in await archives.list()}
    if reference in newest:
        return newest[reference]
    found = [each for each in newest.values() if each.manifest.name == reference]
    return only(
        found,
        none=f"there is no archive of {reference}: `tollhouse intern archives list` shows them",
        several=f"several interns were called {reference}: name one by its id",
    )


@contextmanager
def _opened(target: Path | None, *, force: bool) -> Generator[BinaryIO]:
    """Open what an archive is written to; a file has another name until it is whole."""
    if target is None:
        yield sys.stdout.buffer
        return
    refuse_what_is_there(target, force=force)
    try:
        with part_of(target, mode=0o600) as file:
            yield file
    except OSError as error:
        message = f"{target} cannot be written ({error.strerror})"
        raise StartError(message) from None


@contextmanager
def _failures() -> Generator[None]:
    """Make what the store and the archive may be wrong with a line for people."""
    try:
        yield
    except BlobsUnavailable as error:
        message = f"the store of blobs cannot be read ({error.reason})"
        raise CommandFailed(message, passes=True) from None
    except (ArchiveDamaged, ArchiveBroken):
        message = "the archive is damaged: it is not what was written"
        raise CommandFailed(message) from None

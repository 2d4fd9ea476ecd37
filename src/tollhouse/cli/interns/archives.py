"""Archives of workspaces, read out of the store into files and folders of this machine.

CommandFailed where there is none, it is damaged, or the store cannot be read; StartError where the
file or folder is there already, or cannot be written.
"""

import asyncio
import sys
from collections.abc import Generator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.output import handle_output_error, refuse_existing, write_atomically
from tollhouse.cli.references import exactly_one
from tollhouse.interns.workspaces.archive_format import ArchiveBroken, unpack
from tollhouse.interns.workspaces.archive_store import Archive, ArchiveDamaged, ArchiveStore
from tollhouse.kernel.errors import StartError
from tollhouse.storage.blobs import BlobsUnavailable


async def listed(archives: ArchiveStore) -> list[dict[str, Any]]:
    """Return what is known of each archive."""
    with _failures():
        return [msgspec.to_builtins(each.manifest) for each in await archives.list()]


async def exported(
    archives: ArchiveStore, reference: str, target: Path | None, *, force: bool
) -> int:
    """Write an intern's archive to a file, or standard output, and return its size in bytes.

    The file is there once it is whole. 0 where nobody reads standard output to its end.
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
        handle_output_error(error)
        return 0


async def unpacked(archives: ArchiveStore, reference: str, folder: Path) -> None:
    """Make a folder of an intern's archive; after an error some of it may be there."""
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
                raise StartError(f"{folder} cannot be made ({error.strerror})") from None


async def _find(archives: ArchiveStore, reference: str) -> Archive:
    # An earlier archive of the same intern may be left where it could not be removed.
    newest = {each.manifest.intern_id: each for each in await archives.list()}
    if reference in newest:
        return newest[reference]
    found = [each for each in newest.values() if each.manifest.name == reference]
    return exactly_one(
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
    refuse_existing(target, force=force)
    try:
        with write_atomically(target, mode=0o600) as file:
            yield file
    except OSError as error:
        raise StartError(f"{target} cannot be written ({error.strerror})") from None


@contextmanager
def _failures() -> Generator[None]:
    """Make what the store and the archive may be wrong with a line for people."""
    try:
        yield
    except BlobsUnavailable as error:
        raise CommandFailed(
            f"the store of blobs cannot be read ({error.reason})", retryable=True
        ) from None
    except (ArchiveDamaged, ArchiveBroken):
        raise CommandFailed("the archive is damaged: it is not what was written") from None

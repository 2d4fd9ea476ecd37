"""A workspace as one stream of bytes, and back: a tar file in zstd, a piece at a time.

    pack(folder) ──> pieces ──> a store of blobs ──> pieces ──> unpack(pieces, folder)

The same content is the same stream: names are sorted, owners and times are not kept. Left out are
sockets and devices, and a file's right to run as its owner. A file with holes gets them back.

An archive may have been changed by somebody who can write to the store: unpacking makes a new
folder, and nothing outside of it.

Source: POSIX.1-2001 (pax), RFC 8878 (zstd).
"""

from __future__ import annotations

import os
import stat
import tarfile
from typing import IO, TYPE_CHECKING, Final, cast

from backports import zstd

from tollhouse.interns.tree import KEPT_MODE, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tollhouse.interns.tree import Entry

LEVEL: Final = 3
_PIECE_BYTES: Final = 256 * 1024
_BLOCK_BYTES: Final = 512
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: Final = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}


class ArchiveBroken(Exception):
    """What should be the archive of a workspace is none, or is cut off."""


def pack(folder: Path) -> Iterator[bytes]:
    """Yield the archive of a workspace. It blocks while it reads: draw from it in a thread.

    Raises:
        OSError: Something cannot be read, or was changed meanwhile: there is no archive.
    """
    compressor = zstd.ZstdCompressor(LEVEL)
    for entry in walk(folder, strict=True):
        for piece in _packed(entry):
            if packed := compressor.compress(piece):
                yield packed
    yield compressor.compress(bytes(2 * _BLOCK_BYTES)) + compressor.flush()


def unpack(pieces: Iterable[bytes], folder: Path) -> None:
    """Make a folder of an archive. It blocks: call it in a thread.

    Args:
        pieces: The archive.
        folder: Where to; it is made, and must not be there. After an error some of it may be.

    Raises:
        ArchiveBroken: This is no archive, or it leads out of the folder.
        OSError: The folder cannot be written.
    """
    folder.mkdir(mode=0o700)
    top = os.open(folder, _FOLDER)
    modes: list[tuple[str, int]] = []
    source = _Unpacked(pieces)
    try:
        with tarfile.open(
            fileobj=cast("IO[bytes]", source), mode="r|", encoding="utf-8", errors="surrogateescape"
        ) as archive:
            while (member := archive.next()) is not None:
                vars(archive)["members"].clear()  # it would keep them all
                _make(archive, member, top)
                if member.isdir():
                    modes.append((member.name, member.mode & KEPT_MODE))
        source.finish()
        for name, mode in reversed(modes):  # a folder that nobody may write to is filled before
            parent = _parent(top, name)
            try:
                os.chmod(name.rpartition("/")[2], mode, dir_fd=parent)
            finally:
                os.close(parent)
    except (tarfile.TarError, zstd.ZstdError, EOFError, UnicodeError) as error:
        raise ArchiveBroken from error
    finally:
        os.close(top)


def _packed(entry: Entry) -> Iterator[bytes]:
    kind = _KINDS.get(stat.S_IFMT(entry.status.st_mode))
    if kind is None:
        return
    info = tarfile.TarInfo(os.fsdecode(entry.path))
    info.type = kind
    info.mode = stat.S_IMODE(entry.status.st_mode) & KEPT_MODE
    if kind == tarfile.SYMTYPE:
        info.linkname = os.fsdecode(entry.target())
    if kind != tarfile.REGTYPE:
        yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        return
    info.size = entry.status.st_size
    yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    left = info.size
    with open(entry.open(), "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        while left:
            piece = file.read(min(left, _PIECE_BYTES))
            if not piece:
                message = "a file was changed while it was packed"
                raise OSError(message)
            left -= len(piece)
            yield piece
    yield bytes(-info.size % _BLOCK_BYTES)


def _make(archive: tarfile.TarFile, member: tarfile.TarInfo, top: int) -> None:
    name = member.name.rpartition("/")[2]
    parent = _parent(top, member.name)
    try:
        if member.isdir():
            os.mkdir(name, 0o700, dir_fd=parent)
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
        elif member.isfifo():
            os.mkfifo(name, 0o600, dir_fd=parent)
            os.chmod(name, member.mode & KEPT_MODE, dir_fd=parent)
        elif member.isreg():
            _write(archive, member, os.open(name, _NEW_FILE, 0o600, dir_fd=parent))
        else:
            raise ArchiveBroken
    except FileExistsError as error:
        raise ArchiveBroken from error
    finally:
        os.close(parent)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, opened: int) -> None:
    content = archive.extractfile(member)
    with open(opened, "wb", buffering=0) as file:
        left = member.size
        while left and content is not None:
            piece = content.read(min(left, _PIECE_BYTES))
            if not piece:
                raise EOFError
            left -= len(piece)
            if piece.count(0) == len(piece):
                file.seek(len(piece), os.SEEK_CUR)  # a hole takes no space
            else:
                _write_all(file, piece)
        file.truncate(member.size)
        os.fchmod(file.fileno(), member.mode & KEPT_MODE)


def _write_all(file: IO[bytes], piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]


def _parent(top: int, name: str) -> int:
    """Return a descriptor of the folder that a name stands in; no link leads there.

    Raises:
        ArchiveBroken: The name leads out of the top, or through something that is no folder.
    """
    *folders, last = name.split("/")
    if any(part in {"", ".", ".."} for part in (*folders, last)):
        raise ArchiveBroken
    current = os.dup(top)
    for part in folders:
        try:
            entered = os.open(part, _FOLDER, dir_fd=current)
        except OSError as error:
            raise ArchiveBroken from error
        finally:
            os.close(current)
        current = entered
    return current


class _Unpacked:
    """A file that is read from compressed pieces, holding little of them."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._decompressor = zstd.ZstdDecompressor()

    def read(self, size: int) -> bytes:
        """Return so many bytes, or less, none at the end."""
        while not self._decompressor.eof:
            given = next(self._pieces, b"") if self._decompressor.needs_input else b""
            if not given and self._decompressor.needs_input:
                raise EOFError
            if found := self._decompressor.decompress(given, size):
                return found
        return b""

    def finish(self) -> None:
        """Read what is left.

        Raises:
            EOFError: The end is missing.
        """
        while self.read(_PIECE_BYTES):
            pass

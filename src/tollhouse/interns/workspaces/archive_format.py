"""A workspace as one stream of bytes, and back: a tar file in zstd, a piece at a time.

    pack(folder) ──> pieces ──> a store of blobs ──> pieces ──> unpack(pieces, folder)

The same content with the same holes is the same stream: names are sorted, owners and times are not
kept. Left out are sockets and devices, and a file's right to run as its owner. Holes of a file are
not stored, and a file with several names is stored once: GNU's tar and Python's know both.

No path in an archive is longer than a path may be. What lies deeper is relocated, as on a CD: the
folder stands in its place empty, and what it holds is in a folder of `.relocated`, whose path a
record of the empty one's header says. `unpack` moves it back; another tar leaves it there.

An archive may have been changed by somebody who can write to the store: unpacking makes a new
folder, and nothing outside of it.

Source: POSIX.1-2001 (pax), RFC 8878 (zstd), GNU tar's manual ("PAX Format, Version 1.0").
"""

from __future__ import annotations

import os
import stat
import tarfile
from typing import IO, TYPE_CHECKING, Final, cast

from tollhouse.interns.workspaces.tree import (
    KEPT_MODE,
    FileChanged,
    extents,
    is_base,
    read_at,
    walk,
)
from tollhouse.kernel.files import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tollhouse.interns.workspaces.tree import TreeEntry

LEVEL: Final = 3
_PIECE_BYTES: Final = 256 * 1024
_BLOCK_BYTES: Final = 512
_MAGIC: Final = slice(257, 265)
_CHECKSUM: Final = slice(148, 156)
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o700
"""Of a folder that is being filled."""
_RELOCATED: Final = ".relocated"
_CONTENT: Final = "TOLLHOUSE.content"
"""Record of a folder that is stored empty: the path of the folder that holds its content."""
_KINDS: Final = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}


class ArchiveBroken(Exception):
    """What should be the archive of a workspace is none, or is cut off."""


def pack(folder: Path | str, alive: Callable[[], None] = lambda: None) -> Iterator[bytes]:
    """Yield the archive of a workspace, and call `alive` while that goes on.

    Raises `OSError` where something cannot be read, or was changed meanwhile: there is no archive.
    """
    compressor = zstd.ZstdCompressor(LEVEL)
    packer = _Packer(_unused_name(folder))
    for entry in walk(folder, strict=True):
        for piece in packer.packed(entry):
            alive()
            if packed := compressor.compress(piece):
                yield packed
    yield compressor.compress(bytes(2 * _BLOCK_BYTES)) + compressor.flush()


def unpack(pieces: Iterable[bytes], folder: Path) -> None:
    """Make a new folder of an archive; after an error it may hold a part. Call it in a thread.

    Raises `ArchiveBroken` where this is no archive or leads out of the folder, `OSError` where the
    folder cannot be written.
    """
    folder.mkdir(mode=_MODE)
    top = os.open(folder, _FOLDER)
    unfinished: list[tuple[str, int, str | None]] = []
    places = _Folders(top)
    source = _DecompressedFile(pieces)
    try:
        with tarfile.open(
            fileobj=cast("IO[bytes]", source), mode="r|", encoding="utf-8", errors="surrogateescape"
        ) as archive:
            while (member := archive.next()) is not None:
                vars(archive)["members"].clear()  # it would keep them all
                _unpack_member(archive, member, places)
                mode, content = member.mode & KEPT_MODE, member.pax_headers.get(_CONTENT)
                if member.isdir() and (content or mode & _MODE != _MODE):
                    unfinished.append((member.name, mode, content))
        source.finish()
        for name, mode, content in reversed(unfinished):
            _finish_folder(places, name, mode, content)
        for name in {content.partition("/")[0] for _, _, content in unfinished if content}:
            os.rmdir(name, dir_fd=top)
    except (tarfile.TarError, zstd.ZstdError, EOFError, UnicodeError, ValueError) as error:
        raise ArchiveBroken from error
    finally:
        places.close()


def _unused_name(folder: Path | str) -> str:
    """Return a name for the folder of what is relocated, which nothing at the top has."""
    name = _RELOCATED
    while os.path.lexists(f"{folder}/{name}"):
        name += "_"
    return name


class _Packer:
    """Makes tar's blocks of the entries of one walk."""

    def __init__(self, relocated: str) -> None:
        self._relocated = relocated
        self._bases = 0
        self._stored: dict[tuple[int, int], str] = {}
        """Of files with several names: the one that each is stored under."""

    def packed(self, entry: TreeEntry) -> Iterator[bytes]:
        """Yield an entry as it stands in the archive."""
        status = entry.status
        kind = _KINDS.get(stat.S_IFMT(status.st_mode))
        if kind is None:
            return
        info = tarfile.TarInfo(self._name(entry))
        info.type = kind
        info.mode = stat.S_IMODE(status.st_mode) & KEPT_MODE
        if kind == tarfile.REGTYPE:
            if status.st_nlink > 1:
                which = status.st_dev, status.st_ino
                info.linkname = self._stored.setdefault(which, info.name)
            if info.linkname in {"", info.name}:
                info.linkname = ""
                yield from _pack_file(info, entry)
                return
            info.type = tarfile.LNKTYPE
        elif kind == tarfile.SYMTYPE:
            info.linkname = os.fsdecode(entry.target())
        elif kind == tarfile.DIRTYPE and is_base(entry.path):
            yield from self._relocate(info)
            return
        yield _header(info)

    def _name(self, entry: TreeEntry) -> str:
        path = os.fsdecode(entry.path)
        return f"{self._relocated}/{entry.base}/{path}" if entry.base else path

    def _relocate(self, info: tarfile.TarInfo) -> Iterator[bytes]:
        """Yield a folder that is empty here, and the one that its content will stand in."""
        self._bases += 1
        if self._bases == 1:
            yield _header(_folder(self._relocated))
        content = f"{self._relocated}/{self._bases}"
        info.pax_headers = {_CONTENT: content}
        yield _header(info)
        yield _header(_folder(content))


def _folder(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, _MODE
    return info


def _pack_file(info: tarfile.TarInfo, entry: TreeEntry) -> Iterator[bytes]:
    opened = entry.open()
    try:
        size = os.fstat(opened).st_size
        found = list(extents(opened, size))
        stored = sum(end - begin for begin, end in found)
        if stored == size:
            info.size = size
            yield _header(info)
        else:
            lead = _sparse_map(found, size)
            info.size = len(lead) + stored
            yield _sparse_header(info, size)
            yield lead
        for begin, end in found:
            for at in range(begin, end, _PIECE_BYTES):
                yield read_at(opened, at, min(_PIECE_BYTES, end - at))
        if os.fstat(opened).st_size != size:
            raise FileChanged
    finally:
        os.close(opened)
    yield bytes(-info.size % _BLOCK_BYTES)


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _sparse_header(info: tarfile.TarInfo, size: int) -> bytes:
    """Return the header of a file with holes.

    What is stored of it may be too much for the number in a POSIX header. Every reader takes GNU's
    form of that number; one in the extended header, Python takes for the size of the whole file.
    """
    facts = {"major": "1", "minor": "0", "name": info.name, "realsize": str(size)}
    records = b"".join(
        _pax_record(f"GNU.sparse.{key}".encode(), os.fsencode(value))
        for key, value in facts.items()
    )
    extended = tarfile.TarInfo("PaxHeader")
    extended.type, extended.size = tarfile.XHDTYPE, len(records)
    held = tarfile.TarInfo("GNUSparseFile")
    held.mode, held.size = info.mode, info.size
    return (
        extended.tobuf(tarfile.USTAR_FORMAT)
        + records
        + bytes(-len(records) % _BLOCK_BYTES)
        + _as_posix(held.tobuf(tarfile.GNU_FORMAT))
    )


def _as_posix(header: bytes) -> bytes:
    """Return a header in GNU's form that says it is POSIX', as it has to after an extended one."""
    changed = bytearray(header)
    changed[_MAGIC] = tarfile.POSIX_MAGIC
    changed[_CHECKSUM] = b" " * 8
    changed[_CHECKSUM] = b"%06o\0 " % sum(changed)
    return bytes(changed)


def _pax_record(key: bytes, value: bytes) -> bytes:
    """Return a line of an extended header, which begins with its own length."""
    rest = b" %b=%b\n" % (key, value)
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return b"%d%b" % (length, rest)


def _sparse_map(found: list[tuple[int, int]], size: int) -> bytes:
    """Return where the data of a file with holes belongs."""
    pieces = [(begin, end - begin) for begin, end in found]
    if not found or found[-1][1] < size:
        pieces.append((size, 0))
    text = b"%d\n" % len(pieces) + b"".join(b"%d\n%d\n" % piece for piece in pieces)
    return text + bytes(-len(text) % _BLOCK_BYTES)


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, places: _Folders) -> None:
    name = member.name.rpartition("/")[2]
    parent = places.parent(member.name)
    try:
        if member.isdir():
            os.mkdir(name, _MODE, dir_fd=parent)
            os.chmod(name, (member.mode & KEPT_MODE) | _MODE, dir_fd=parent)
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
        elif member.isfifo():
            os.mkfifo(name, 0o600, dir_fd=parent)
            os.chmod(name, member.mode & KEPT_MODE, dir_fd=parent)
        elif member.islnk():
            _hard_link(member.linkname, name, places, parent)
        elif member.isreg():
            _write_file(archive, member, os.open(name, _NEW_FILE, 0o600, dir_fd=parent))
        else:
            raise ArchiveBroken
    except FileExistsError as error:
        raise ArchiveBroken from error
    finally:
        os.close(parent)


def _finish_folder(places: _Folders, name: str, mode: int, content: str | None) -> None:
    """Have `content`, if any, take a folder's place, then give it its mode.

    Called for the last folder first, it moves no folder before that one's own content is in its
    place, and shuts none before.
    """
    parent, last = places.parent(name), name.rpartition("/")[2]
    try:
        if content is not None:
            source = places.parent(content)
            try:
                os.replace(content.rpartition("/")[2], last, src_dir_fd=source, dst_dir_fd=parent)
            except OSError as error:
                raise ArchiveBroken from error
            finally:
                os.close(source)
        os.chmod(last, mode, dir_fd=parent)
    finally:
        os.close(parent)


def _hard_link(target: str, name: str, places: _Folders, parent: int) -> None:
    """Give a file of the archive another name."""
    there = places.parent(target)
    try:
        found = target.rpartition("/")[2]
        if not stat.S_ISREG(os.stat(found, dir_fd=there, follow_symlinks=False).st_mode):
            raise ArchiveBroken
        os.link(found, name, src_dir_fd=there, dst_dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError as error:
        raise ArchiveBroken from error
    finally:
        os.close(there)


def _write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, opened: int) -> None:
    # What `extractfile` returns reads holes too, and cannot pass over them in a stream.
    content = cast("IO[bytes]", archive.fileobj)
    content.seek(member.offset_data)
    with open(opened, "wb") as file:
        for begin, end in _data_ranges(member):
            file.seek(begin)
            _copy(content, file, end - begin)
        file.truncate(member.size)
        os.fchmod(file.fileno(), member.mode & KEPT_MODE)


def _data_ranges(member: tarfile.TarInfo) -> Iterator[tuple[int, int]]:
    """Yield where a file holds data; raises `ArchiveBroken` where what it says cannot be."""
    told = cast("list[tuple[int, int]] | None", member.sparse)  # which the stubs call bytes
    found = [(0, member.size)] if told is None else told
    last = 0
    for begin, size in found:
        if begin < last or size < 0 or begin + size > member.size:
            raise ArchiveBroken
        last = begin + size
        yield begin, last


def _copy(content: IO[bytes], file: IO[bytes], left: int) -> None:
    while left:
        piece = content.read(min(left, _PIECE_BYTES))
        if not piece:
            raise EOFError
        left -= len(piece)
        if piece.count(0) == len(piece):
            file.seek(len(piece), os.SEEK_CUR)  # a hole takes no space
        else:
            file.write(piece)


class _Folders:
    """Finds the folders of what is unpacked; no link leads there."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._last: tuple[list[str], int] = [], os.dup(top)
        """The folder that was found last, where the next one mostly is."""

    def parent(self, name: str) -> int:
        """Return a descriptor of the folder that a name stands in.

        Raises `ArchiveBroken` where that leads out of the top, or through what is no folder.
        """
        *folders, last = name.split("/")
        if any(part in {"", ".", ".."} for part in (*folders, last)):
            raise ArchiveBroken
        known, near = self._last
        if folders[: len(known)] != known:
            known, near = [], self._top
        current = os.dup(near)
        for part in folders[len(known) :]:
            try:
                entered = os.open(part, _FOLDER, dir_fd=current)
            except OSError as error:
                raise ArchiveBroken from error
            finally:
                os.close(current)
            current = entered
        os.close(self._last[1])
        self._last = folders, os.dup(current)
        return current

    def close(self) -> None:
        """Let go of all folders."""
        os.close(self._top)
        os.close(self._last[1])


class _DecompressedFile:
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
        """Read what is left; raises `EOFError` where the end is missing."""
        while self.read(_PIECE_BYTES):
            pass

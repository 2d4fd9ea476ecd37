"""`/files`: the workspace over HTTP.

An upload is complete under its name, or not there at all: it is written to `.intern/uploads` of the
workspace, and renamed once it is on the disk. The folder is emptied when the daemon starts, so that
a kill leaves nothing for ever.

Source: RFC 9110, sections 13.1.5 and 14 (ranges).
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import os
import re
import secrets
import stat
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, Response

from tollhouse.sandbox.daemon.http import (
    RequestError,
    read_flag,
    read_mode,
    read_number,
    read_path,
    wait_for_disconnect,
)
from tollhouse.sandbox.daemon.workspace_tree import PathLocation, WorkspaceTree, run_in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterator, Sequence

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

METHODS: Final = ("GET", "HEAD", "PUT", "DELETE")
_LISTED: Final = 1000
MOST_LISTED: Final = 10_000
_PIECE: Final = 256 * 1024
"""Bytes of a file in memory at a time, of each request."""
# A pipe would wait for a writer, and a device may do anything when it is opened.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_UPLOADS: Final = (".intern", "uploads")
_GATHERED: Final = 256 * 1024
"""Bytes of an upload that are written at once."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o644
_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class FileEndpoints:
    """Serves the files of a workspace; an upload has at most `largest` bytes."""

    def __init__(self, workspace: str, largest: int) -> None:
        self._tree = WorkspaceTree(workspace)
        self._largest = largest
        self._remove_old_uploads()

    async def serve(self, request: Request, path: bytes) -> Response:
        """Answer a request; `path` is what follows `/files`, as it was sent."""
        names = read_path(path)
        endpoints = {"PUT": self._put, "DELETE": self._delete}
        return await endpoints.get(request.method, self._get)(names, request)

    async def _get(self, names: Sequence[str], request: Request) -> Response:
        with self._tree.place(names) as place:
            file, status = _open_place(place)
        with ExitStack() as opened:
            opened.callback(os.close, file)
            if not stat.S_ISDIR(status.st_mode):
                response = FileResponse(file, status, request)
                opened.pop_all()  # the response closes it
                return response
            query = request.query_params
            limit = read_number(query.get("limit"), "limit", default=_LISTED, largest=MOST_LISTED)
            after = query.get("after", "")
            return JSONResponse(await run_in_thread(partial(_list_folder, file, after, limit)))

    async def _delete(self, names: Sequence[str], request: Request) -> Response:
        text = request.query_params.get("recursive")
        recursive = read_flag(text, "recursive", default=False)
        with self._tree.place(names, follow=False) as place:
            await run_in_thread(partial(_remove, place, recursive=recursive))
        return Response(status_code=204)

    async def _put(self, names: Sequence[str], request: Request) -> Response:
        """Write a file, and replace what has its name; missing folders are made."""
        length = request.headers.get("Content-Length")
        if "Content-Range" in request.headers:
            raise RequestError(400, "A file is sent whole, not in parts.")
        mode = read_mode(request.query_params.get("mode"))
        size = None if length is None else int(length)
        if not names:
            raise RequestError(409, "The workspace itself is a folder.")
        self._check(size or 0)
        if size is not None and size > self._tree.space():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with self._tree.place(names, make=True) as place:
            old = _existing_mode(place.folder, place.name)
            wanted = mode if mode is not None else _MODE if old is None else stat.S_IMODE(old)
            with self._tree.place((*_UPLOADS, secrets.token_hex(16)), make=True) as draft:
                file = os.open(draft.name, _NEW, 0o600, dir_fd=draft.folder)
                try:
                    await self._write(file, request.stream())
                    os.fchmod(file, wanted)
                    await run_in_thread(partial(os.fsync, file))
                    status = os.fstat(file)
                    os.rename(
                        draft.name, place.name, src_dir_fd=draft.folder, dst_dir_fd=place.folder
                    )
                except BaseException:
                    with suppress(OSError):
                        os.unlink(draft.name, dir_fd=draft.folder)
                    raise
                finally:
                    os.close(file)
        return JSONResponse(_file_entry(names[-1], status), 201 if old is None else 200)

    async def _write(self, file: int, body: AsyncIterable[bytes]) -> None:
        gathered = bytearray()
        size = 0
        async for piece in body:
            size += len(piece)
            self._check(size)
            gathered += piece
            if len(gathered) >= _GATHERED:
                await run_in_thread(partial(_write_all, file, gathered))
                gathered = bytearray()
        await run_in_thread(partial(_write_all, file, gathered))

    def _check(self, size: int) -> None:
        if size > self._largest:
            raise RequestError(413, f"A file may have {self._largest} bytes at most.")

    def _remove_old_uploads(self) -> None:
        """Remove what a killed daemon has left."""
        with suppress(OSError, RequestError), self._tree.place((*_UPLOADS, "x")) as place:
            folder = os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=place.folder)
            try:
                for name in os.listdir(folder):  # noqa: PTH208 - a path knows no descriptors
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)


def _existing_mode(folder: int, name: str) -> int | None:
    """Return the mode of the file that an upload would replace; refuse what cannot be replaced."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise RequestError(409, "There is a folder of this name.")
    if not stat.S_ISREG(mode):
        raise RequestError(409, "There is something of this name that is no file.")
    return mode


def _write_all(file: int, data: bytearray) -> None:
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.write(file, view[done:])


def _remove(place: PathLocation, *, recursive: bool) -> None:
    """Remove a file or folder; a link itself, which finding its place has not followed."""
    if place.name == ".":
        raise RequestError(409, "The workspace itself cannot be removed.")
    mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode):
        os.unlink(place.name, dir_fd=place.folder)
        return
    if recursive:
        _remove_contents(place)
    os.rmdir(place.name, dir_fd=place.folder)


def _remove_contents(place: PathLocation) -> None:
    """Remove what a folder holds; two folders are open at a time, at any depth."""
    current = os.open(place.name, _FOLDER, dir_fd=place.folder)
    above: list[tuple[str, list[str]]] = []
    try:
        folders = _remove_files(current)
        while folders or above:
            if folders:
                name = folders.pop()
                entered = os.open(name, _FOLDER, dir_fd=current)
                above.append((name, folders))
                folders = _remove_files(entered)
            else:
                entered = os.open("..", _FOLDER, dir_fd=current)
                name, folders = above.pop()
                os.rmdir(name, dir_fd=entered)
            os.close(current)
            current = entered
    finally:
        os.close(current)


def _remove_files(folder: int) -> list[str]:
    """Remove what a folder holds but for folders; return the names of those."""
    folders = list[str]()
    with os.scandir(folder) as found:
        for each in found:
            if each.is_dir(follow_symlinks=False):
                folders.append(each.name)
            else:
                os.unlink(each.name, dir_fd=folder)
    return folders


def _file_entry(name: str, status: os.stat_result) -> dict[str, str | int]:
    """Return a file or folder as clients see it: the size in bytes, 0 unless it is a file."""
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "other")
    return {
        "name": name,
        "type": kind,
        "size": status.st_size if kind == "file" else 0,
        "mode": _file_mode(status),
        "modified_at": _modified_at(status),
    }


def _file_mode(status: os.stat_result) -> str:
    """Return a file's permissions: octal, as `0644`."""
    return f"{stat.S_IMODE(status.st_mode):04o}"


def _modified_at(status: os.stat_result) -> str:
    """Return when a file was modified: in UTC, ISO 8601."""
    at = datetime.fromtimestamp(status.st_mtime_ns // 1_000_000 / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _list_folder(folder: int, after: str, limit: int) -> dict[str, object]:
    """Return a folder's entries after a name, in order; names that are not UTF-8 are left out.

    The limit bounds the memory, too.
    """
    names = heapq.nsmallest(limit + 1, (name for name in _names(folder) if name > after))
    entries: list[dict[str, str | int]] = []
    for name in names[:limit]:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # removed meanwhile
        entries.append(_file_entry(name, status))
    return {"data": entries, "has_more": len(names) > limit}


def _names(folder: int) -> Iterator[str]:
    with os.scandir(folder) as found:
        for one in found:
            try:
                one.name.encode()
            except UnicodeEncodeError:
                continue
            yield one.name


def parse_range(header: str | None, size: int) -> range | None:
    """Return the part of a file that a request asks for; None for all of it.

    Several ranges, or one that is not of bytes, are ignored, as a server may do. A part that begins
    after the file's end, or is empty, is refused.
    """
    match = _RANGE.fullmatch(header.replace(" ", "").lower()) if header else None
    if match is None or match[0] == "bytes=-":
        return None
    first, last = match[1], match[2]
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(int(last) + 1 if last else size, size)
        if last and int(last) < start:
            return None
    if start >= end:
        headers = {"Content-Range": f"bytes */{size}"}
        raise RequestError(416, "The file has no such part.", headers)
    return range(start, end)


def _open_place(place: PathLocation) -> tuple[int, os.stat_result]:
    """Open a file or folder, and nothing else; return its descriptor and its status."""
    kind = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise RequestError(409, "It is neither a file nor a folder.")
    file = os.open(place.name, _READ, dir_fd=place.folder)
    return file, os.fstat(file)


class FileResponse(Response):
    """An open file, or the part of it that a request wants; the file is closed once it is sent."""

    def __init__(self, file: int, status: os.stat_result, request: Request) -> None:
        tag = f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'
        part = None
        if request.headers.get("If-Range", tag) == tag:
            part = parse_range(request.headers.get("Range"), status.st_size)
        self._file = file
        self._part = part or range(status.st_size)
        self._bodiless = request.method == "HEAD"
        headers = {
            "Content-Length": str(len(self._part)),
            "Accept-Ranges": "bytes",
            "ETag": tag,
            "File-Modified-At": _modified_at(status),
            "File-Mode": _file_mode(status),
        }
        if part is not None:
            headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{status.st_size}"
        super().__init__(None, 206 if part else 200, headers, "application/octet-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Send it, until all is sent or the client has left."""
        head = {"type": "http.response.start", "status": self.status_code}
        gone = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            await send({**head, "headers": self.raw_headers})
            await self._send_body(send, gone)
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone
            os.close(self._file)

    async def _send_body(self, send: Send, gone: asyncio.Future[None]) -> None:
        at, end = self._part.start, self._part.stop
        if self._bodiless:
            at = end
        while at < end and not gone.done():
            piece = await run_in_thread(partial(os.pread, self._file, min(_PIECE, end - at), at))
            if not piece:
                # It was made shorter meanwhile. The server closes a connection whose response did
                # not end, which tells the client.
                return
            at += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if at == end:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

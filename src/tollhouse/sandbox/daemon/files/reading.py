"""Files and folders as responses: streamed in pieces, whole or in part."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from tollhouse.sandbox.daemon.errors import Refused
from tollhouse.sandbox.daemon.files.entries import entry, moment
from tollhouse.sandbox.daemon.files.ranges import Part, Unsatisfiable, wanted_part
from tollhouse.sandbox.daemon.files.work import beside

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from tollhouse.sandbox.daemon.files.tree import Place

PIECE: Final = 256 * 1024
"""Bytes of a file in memory at a time, of each request."""
# A pipe would wait for a writer, and a device may do anything when it is opened.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Opened:
    """A file or a folder that is open; whoever has it closes it."""

    file: int
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        """Tell whether it is a folder."""
        return stat.S_ISDIR(self.status.st_mode)


def opened(place: Place) -> Opened:
    """Open what is at a place.

    Raises:
        Refused: It is neither a file nor a folder.
        OSError: It is not there, or may not be read.
    """
    kind = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise Refused(409, "It is neither a file nor a folder.")
    file = os.open(place.name, _READ, dir_fd=place.folder)
    return Opened(file, os.fstat(file))


class FileResponse(Response):
    """A file, or the part of it that a request wants."""

    def __init__(self, found: Opened, request: Request) -> None:
        """Take an open file; it is closed once the response is sent.

        Raises:
            Refused: The part that is wanted is not there.
        """
        status = found.status
        tag = f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'
        part = _part(request, status.st_size, tag)
        self._file = found.file
        self._part = part or Part(0, status.st_size)
        self._bodiless = request.method == "HEAD"
        headers = {
            "Content-Length": str(self._part.size),
            "Accept-Ranges": "bytes",
            "ETag": tag,
            "File-Modified-At": moment(status),
            "File-Mode": entry("", status)["mode"],
        }
        if part is not None:
            end = part.start + part.size - 1
            headers["Content-Range"] = f"bytes {part.start}-{end}/{status.st_size}"
        super().__init__(None, 206 if part else 200, headers, "application/octet-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Send it, until all is sent or the client has left."""
        head = {"type": "http.response.start", "status": self.status_code}
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await send({**head, "headers": self.raw_headers})
            await self._send_body(send, gone)
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone
            os.close(self._file)

    async def _send_body(self, send: Send, gone: asyncio.Future[None]) -> None:
        at, end = self._part.start, self._part.start + self._part.size
        if self._bodiless:
            at = end
        while at < end and not gone.done():
            piece = await beside(partial(os.pread, self._file, min(PIECE, end - at), at))
            if not piece:
                # It was made shorter meanwhile. The server closes a connection whose response did
                # not end, which tells the client.
                return
            at += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if at == end:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _part(request: Request, size: int, tag: str) -> Part | None:
    if request.headers.get("If-Range", tag) != tag:
        return None
    try:
        return wanted_part(request.headers.get("Range"), size)
    except Unsatisfiable:
        headers = {"Content-Range": f"bytes */{size}"}
        raise Refused(416, "The file has no such part.", headers) from None


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

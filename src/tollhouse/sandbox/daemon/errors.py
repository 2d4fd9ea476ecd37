"""How the daemon says no: one exception, one envelope."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse

from tollhouse.sandbox.daemon.disk import is_full

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_THE_SYSTEM: Final[Mapping[int, tuple[int, str]]] = {
    errno.ENOENT: (404, "There is no such file or folder."),
    errno.ENOTDIR: (409, "A part of the path is a file, where a folder would have to be."),
    errno.EISDIR: (409, "There is a folder of this name."),
    errno.EEXIST: (409, "There is something of this name."),
    errno.ENOTEMPTY: (409, "The folder is not empty; recursive=true removes what is in it, too."),
    errno.ELOOP: (409, "Links lead to each other."),
    errno.EXDEV: (409, "The path leads to another file system."),
    errno.EBUSY: (409, "The file or folder is in use."),
    errno.ENAMETOOLONG: (400, "A name is too long."),
    errno.EACCES: (403, "The intern may not do this to the file or folder."),
    errno.EPERM: (403, "The intern may not do this to the file or folder."),
    errno.EROFS: (403, "The file or folder can only be read."),
    errno.ENOSPC: (507, "The workspace is full."),
    errno.EDQUOT: (507, "The workspace is full."),
    errno.EFBIG: (507, "The file is larger than the workspace takes."),
    errno.EMFILE: (503, "Too many files are open."),
    errno.ENFILE: (503, "Too many files are open."),
    errno.ENOMEM: (503, "There is too little memory."),
    errno.EAGAIN: (503, "Too many programs run."),
}


class Refused(Exception):
    """The request is answered with an error."""

    def __init__(
        self,
        status: int,
        message: str,
        headers: Mapping[str, str] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        """Take the answer.

        Args:
            status: Of HTTP.
            message: A sentence for people; nothing secret, no content of files.
            headers: Further ones.
            reason: A word for programs, where a status has several.
        """
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers
        self.reason = reason


def refusal_of(error: OSError) -> Refused:
    """Return what the system's refusal is to a client."""
    if error.errno == errno.EFBIG and is_full():
        error = OSError(errno.ENOSPC, "")
    status, message = _OF_THE_SYSTEM.get(
        error.errno or 0, (500, f"The system refused: {errno.errorcode.get(error.errno or 0)}.")
    )
    return Refused(status, message)


def rendered(refused: Refused) -> JSONResponse:
    """Return a refusal as a response, of HTTP or to a WebSocket's handshake."""
    told: dict[str, object] = {"code": refused.status, "message": refused.message}
    if refused.reason is not None:
        told["reason"] = refused.reason
    return JSONResponse({"error": told}, refused.status, refused.headers)

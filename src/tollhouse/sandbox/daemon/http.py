"""What endpoints share: values in paths and queries, and how a request is refused."""

from __future__ import annotations

import errno
import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive

_LARGEST_MODE: Final = 0o777
_MOST_DIGITS: Final = 18
_OS_ERRORS: Final[Mapping[int, tuple[int, str]]] = {
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


def disk_is_full() -> bool:
    """Tell whether the workspace is full: the host then forbids all processes to write.

    Source: getrlimit(2), RLIMIT_FSIZE.
    """
    return resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 0


class RequestError(Exception):
    """The request is answered with an error.

    Its message is for people, without secrets and contents of files; the `reason` is a word for
    programs, where a status has several.
    """

    def __init__(
        self,
        status: int,
        message: str,
        headers: Mapping[str, str] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers
        self.reason = reason


def error_from_os(error: OSError) -> RequestError:
    """Return the answer to a request that ended in an error of the system."""
    if error.errno == errno.EFBIG and disk_is_full():
        error = OSError(errno.ENOSPC, "")
    number = error.errno or 0
    other = (500, f"The system refused: {errno.errorcode.get(number)}.")
    return RequestError(*_OS_ERRORS.get(number, other))


def error_response(error: RequestError) -> JSONResponse:
    """Return an error as a response, also to a WebSocket's handshake."""
    body: dict[str, object] = {"code": error.status, "message": error.message}
    if error.reason is not None:
        body["reason"] = error.reason
    return JSONResponse({"error": body}, error.status, error.headers)


def read_path(raw: bytes) -> tuple[str, ...]:
    """Return the names of a path in the workspace, from what follows `/files` as it was sent.

    One `/` at its end changes nothing.
    """
    try:
        text = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise RequestError(400, "The path is not UTF-8.") from None
    if "\0" in text:
        raise RequestError(400, "A name cannot hold a NUL.")
    text = text.removeprefix("/").removesuffix("/")
    names = tuple(text.split("/")) if text else ()
    if not all(names):
        raise RequestError(400, "A name in the path is empty.")
    if "." in names or ".." in names:
        raise RequestError(400, "The path may not hold '.' or '..'.")
    return names


def read_mode(text: str | None) -> int | None:
    """Return a query's permissions: an octal number up to 777."""
    if text is None:
        return None
    with suppress(ValueError):
        if text.isdecimal() and (mode := int(text, 8)) <= _LARGEST_MODE:
            return mode
    raise RequestError(400, "mode has to be an octal number from 0 to 777.")


def read_flag(text: str | None, name: str, *, default: bool) -> bool:
    """Return a query's boolean."""
    if text is None:
        return default
    if text not in {"true", "false"}:
        raise RequestError(400, f"{name} has to be true or false.")
    return text == "true"


def read_number(text: str | None, name: str, *, default: int, largest: int, least: int = 1) -> int:
    """Return a query's number, from `least` to `largest`."""
    if text is None:
        return default
    # Leading zeros count, too: to parse a number of any length may take long.
    fits = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    number = int(text) if fits else least - 1
    if not least <= number <= largest:
        raise RequestError(400, f"{name} has to be a whole number from {least} to {largest}.")
    return number


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client of a request has left."""
    while (await receive())["type"] != "http.disconnect":
        pass

"""An intern's files: listed, fetched and sent, with a bar for large ones on a terminal.

Paths of the intern are relative to its workspace; a leading `/workspace/` may be there.
"""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote

import httpx2

from tollhouse.cli.client import UploadBody
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns import daemon
from tollhouse.cli.interns.daemon import DaemonCredentials, FileHead, FolderEntry, daemon_refusal
from tollhouse.cli.output import handle_output_error, write_atomically
from tollhouse.cli.progress import show_download, show_upload
from tollhouse.kernel.errors import StartError

_WORKSPACE: Final = "/workspace"
_PIECE: Final = 256 * 1024
_SECONDS: Final = 60.0
"""Without a byte; and for an answer that is no file, in all."""
_PIECE_SECONDS: Final = 2 * _SECONDS
"""For one piece that is sent: its own time, and that of an answer that comes before the rest."""
MOST_LISTED: Final = 100_000
"""Entries of one folder: more are for no reader, and a list of them may have no end."""
_ATTEMPTS: Final = 5
"""To go on with a file whose connection broke."""
_PARTIAL: Final = 206
_OK: Final = range(200, 300)


@asynccontextmanager
async def open_files(access: DaemonCredentials) -> AsyncGenerator["InternFiles"]:
    """Open the way to an intern's files."""
    async with httpx2.AsyncClient(
        base_url=access.origin,
        headers={**access.headers, "user-agent": "tollhouse-cli", "accept-encoding": "identity"},
        timeout=_SECONDS,
        trust_env=not access.is_near,
    ) as http:
        yield InternFiles(http)


class InternFiles:
    """The files of an intern.

    Every method raises CommandFailed where it was refused, nobody answered, the answer cannot be
    understood, or the connection broke again and again; StartError where a file here cannot be
    used.
    """

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def listed(self, path: str = "") -> list[FolderEntry]:
        """Return what a folder, the workspace unless named, holds by name, up to `MOST_LISTED`."""
        found: list[FolderEntry] = []
        while True:
            after = found[-1]["name"] if found else ""
            query = {"limit": str(daemon.PAGE), "after": after}
            async with self._asked("GET", path, params=query) as response:
                if response.headers.get("Content-Type") != "application/json":
                    raise CommandFailed(f"{path} is a file")
                page, has_more = daemon.parse_page(await _whole(response), after)
            found += page
            if not has_more or not page:
                return found
            if len(found) >= MOST_LISTED:
                raise CommandFailed(f"the folder has more than {MOST_LISTED} entries")

    async def get(self, path: str, to: Path | None) -> int:
        """Fetch a file, to standard output for None; return its size in bytes.

        It is there only once it is whole, with the permissions that it has there, and replaces what
        is there. A folder gets a file of the same name; a pipe or a device is written to. The size
        is 0 where nobody reads standard output to its end.
        """
        if to is None:
            try:
                return await self._fetch(path, sys.stdout.buffer, lambda _: None)
            except OSError as error:
                handle_output_error(error)
                return 0
        target = _target(to, path)
        try:
            with write_atomically(target) as file:
                return await self._fetch(path, file, lambda mode: _permit(file, mode))
        except OSError as error:
            raise StartError(f"{target} cannot be written ({error.strerror})") from None

    async def put(self, source: Path | None, path: str) -> FolderEntry:
        """Send a file, or standard input; it replaces what has its name, once it is whole there.

        A path with `/` at its end is the folder where the file gets the name that it has here.
        Returns the file as the intern has it.
        """
        if source is None:
            return await self._send(path, _pieces(sys.stdin.buffer), None, None)
        if path.endswith("/"):
            path += source.name
        try:
            with source.open("rb") as file:
                status = os.fstat(file.fileno())
                size = status.st_size if stat.S_ISREG(status.st_mode) else None
                mode = stat.S_IMODE(status.st_mode) & 0o777
                if size is None:  # a pipe, say: nobody knows how much of it there is
                    return await self._send(path, _pieces(file), None, mode)
                with show_upload(size) as counted:
                    return await self._send(path, counted(_pieces(file)), size, mode)
        except OSError as error:
            raise StartError(f"{source} cannot be read ({error.strerror})") from None

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link or a folder, which goes with all that it holds if `recursive`."""
        query = {"recursive": str(recursive).lower()}
        async with self._asked("DELETE", path, params=query):
            pass

    async def _send(
        self, path: str, pieces: Iterable[bytes], size: int | None, mode: int | None
    ) -> FolderEntry:
        headers = {} if size is None else {"Content-Length": str(size)}
        query = {} if mode is None else {"mode": f"{mode:o}"}
        async with self._asked("PUT", path, pieces, params=query, headers=headers) as response:
            return daemon.parse_entry(await _whole(response))

    async def _fetch(self, path: str, file: BinaryIO, begun: Callable[[int], None]) -> int:
        """Write a file's content; go on where a connection broke, while the file stays the same."""
        whole: FileHead | None = None
        at, attempts = 0, 0
        with show_download(quiet=file.isatty()) as show:
            while True:
                # What is still missing, if the file is the same.
                rest = {} if whole is None else {"Range": f"bytes={at}-", "If-Range": whole.tag}
                try:
                    async with self._asked("GET", path, headers=rest) as response:
                        told = daemon.parse_file_head(response.headers)
                        if told is None:
                            raise CommandFailed(f"{path} is a folder")
                        if whole is None:
                            whole = told
                            begun(told.mode)
                            show(0, told.size)
                        elif response.status_code != _PARTIAL or not told.is_rest_of(whole, at):
                            raise CommandFailed(
                                f"{path} changed while it was fetched: try again", retryable=True
                            )
                        async for piece in response.aiter_raw(_PIECE):
                            file.write(piece)
                            at += len(piece)
                            show(at, whole.size)
                            attempts = 0
                    file.flush()
                except httpx2.RequestError as error:
                    attempts += 1
                    if not at or attempts == _ATTEMPTS:
                        raise _unreachable(error) from None
                else:
                    return at

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        pieces: Iterable[bytes] | None = None,
        **asked: Any,  # noqa: ANN401 - as the HTTP library has it
    ) -> AsyncGenerator[httpx2.Response]:
        """Ask, and wait for the head of the answer; its body breaks off with a `RequestError`."""
        patience = asyncio.timeout(_SECONDS)
        if pieces is not None:
            body = UploadBody(_paced(pieces, patience))
            asked |= {"content": body, "extensions": {"trace": body.trace}}
        async with AsyncExitStack() as stack:
            try:
                async with patience:
                    asking = self._http.stream(method, f"/files/{_escaped(path)}", **asked)
                    response = await stack.enter_async_context(asking)
                    if response.status_code not in _OK:
                        said = await daemon.read_start(response)
                        raise daemon_refusal(response.status_code, said)
            except TimeoutError:
                raise _late() from None
            except httpx2.RequestError as error:
                raise _unreachable(error) from None
            yield response


async def _whole(response: httpx2.Response) -> bytes:
    """Return the body of an answer that is no file, within a time and a size."""
    try:
        async with asyncio.timeout(_SECONDS):
            return await daemon.read_body(response)
    except TimeoutError:
        raise _late() from None
    except httpx2.RequestError as error:
        raise _unreachable(error) from None


def _paced(pieces: Iterable[bytes], patience: asyncio.Timeout) -> Iterator[bytes]:
    """Return pieces as they are sent; from the last one on, so long may the answer take."""
    now = asyncio.get_running_loop().time
    for piece in pieces:
        patience.reschedule(now() + _PIECE_SECONDS)
        yield piece
    patience.reschedule(now() + _SECONDS)


def _target(to: Path, path: str) -> Path:
    return to / path.rstrip("/").rpartition("/")[2] if to.is_dir() else to


def _permit(file: BinaryIO, mode: int) -> None:
    """Give a file its permissions; a pipe or a device keeps those that it has."""
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        os.fchmod(file.fileno(), mode)


def _escaped(path: str) -> str:
    relative = path.removeprefix(_WORKSPACE) if path.startswith(f"{_WORKSPACE}/") else path
    return quote(relative.removeprefix("/"), safe="/", errors="surrogateescape")


def _unreachable(error: httpx2.RequestError) -> CommandFailed:
    return CommandFailed(
        f"the connection to the intern failed ({str(error) or type(error).__name__}): try again",
        retryable=True,
    )


def _late() -> CommandFailed:
    return CommandFailed("the intern does not answer in time: try again", retryable=True)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece

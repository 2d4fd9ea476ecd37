"""An intern's files: listed, fetched and sent, with a bar for large ones on a terminal.

    async with opened(access) as files:
        await files.get("results/out.csv", Path("out.csv"))
        await files.put(Path("data.csv"), "data/in.csv")
        entries = await files.listed("data")

Paths of the intern are relative to its workspace; a leading `/workspace/` may be there.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import quote

from tollhouse.cli.batches.meters import sending
from tollhouse.cli.bodies import Body
from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.interns import replies
from tollhouse.cli.interns.access import refusal
from tollhouse.cli.interns.meters import receiving
from tollhouse.cli.output import give_up
from tollhouse.cli.sinks import part_of
from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
    from pathlib import Path

    import httpx2

    from tollhouse.cli.interns.access import Access
    from tollhouse.cli.interns.replies import Content, Entry

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
async def opened(access: Access) -> AsyncGenerator[Files]:
    """Open the way to an intern's files.

    Args:
        access: Where the daemon is.
    """
    import httpx2

    async with httpx2.AsyncClient(
        base_url=access.origin,
        headers={**access.headers, "user-agent": "tollhouse-cli", "accept-encoding": "identity"},
        timeout=_SECONDS,
        trust_env=not access.is_near,
    ) as http:
        yield Files(http)


class Files:
    """The files of an intern."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        """Take an open client whose base URL is the daemon's origin; see `opened`."""
        self._http = http

    async def listed(self, path: str = "") -> list[Entry]:
        """Return what a folder holds, by name: `name`, `type`, `size`, `mode`, `modified_at`.

        Args:
            path: Of the folder; nothing for the workspace.

        Raises:
            CommandFailed: It was refused, it is a file, it has more than `MOST_LISTED` entries,
                nobody answered, or the answer cannot be understood.
        """
        found: list[Entry] = []
        while True:
            after = found[-1]["name"] if found else ""
            query = {"limit": str(replies.PAGE), "after": after}
            async with self._asked("GET", path, params=query) as response:
                if response.headers.get("Content-Type") != "application/json":
                    message = f"{path} is a file"
                    raise CommandFailed(message)
                page = replies.page(await _whole(response), after)
            found += page.entries
            if not page.has_more or not page.entries:
                return found
            if len(found) >= MOST_LISTED:
                message = f"the folder has more than {MOST_LISTED} entries"
                raise CommandFailed(message)

    async def get(self, path: str, to: Path | None) -> int:
        """Fetch a file.

        Args:
            path: Of the file.
            to: Where to; it is there only once it is whole, with the permissions that it has
                there, and replaces what is there. A folder gets a file of the same name; a pipe or
                a device is written to. None for standard output.

        Returns:
            Its size in bytes; 0 where nobody reads standard output to its end.

        Raises:
            CommandFailed: It was refused, it is a folder, nobody answered, the answer cannot be
                understood, the connection broke again and again, or standard output is full.
            StartError: It cannot be written here.
        """
        if to is None:
            try:
                return await self._fetch(path, sys.stdout.buffer, lambda _: None)
            except OSError as error:
                give_up(error)
                return 0
        target = _target(to, path)
        try:
            with part_of(target) as file:
                return await self._fetch(path, file, lambda mode: _permit(file, mode))
        except OSError as error:
            message = f"{target} cannot be written ({error.strerror})"
            raise StartError(message) from None

    async def put(self, source: Path | None, path: str) -> Entry:
        """Send a file; it replaces what has its name, once it is there as a whole.

        Args:
            source: The file; None for standard input.
            path: Of the file at the intern; with `/` at its end, the folder where it gets the name
                that it has here.

        Returns:
            The file as the intern has it: `name`, `type`, `size`, `mode`, `modified_at`.

        Raises:
            CommandFailed: It was refused (no room, too large, a folder of this name), or nobody
                answered.
            StartError: It cannot be read here.
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
                with sending(size) as counted:
                    return await self._send(path, counted(_pieces(file)), size, mode)
        except OSError as error:
            message = f"{source} cannot be read ({error.strerror})"
            raise StartError(message) from None

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link or a folder.

        Args:
            path: Of it.
            recursive: Whether a folder goes with all that it holds.

        Raises:
            CommandFailed: It was refused, or nobody answered.
        """
        query = {"recursive": str(recursive).lower()}
        async with self._asked("DELETE", path, params=query):
            pass

    async def _send(
        self, path: str, pieces: Iterable[bytes], size: int | None, mode: int | None
    ) -> Entry:
        headers = {} if size is None else {"Content-Length": str(size)}
        query = {} if mode is None else {"mode": f"{mode:o}"}
        async with self._asked("PUT", path, pieces, params=query, headers=headers) as response:
            return replies.entry(await _whole(response))

    async def _fetch(self, path: str, file: BinaryIO, begun: Callable[[int], None]) -> int:
        """Write a file's content; go on where a connection broke, while the file stays the same."""
        import httpx2

        whole: Content | None = None
        at, attempts = 0, 0
        with receiving(quiet=file.isatty()) as received:
            while True:
                try:
                    async with self._asked("GET", path, headers=_rest(whole, at)) as response:
                        told = replies.content(response.headers)
                        if told is None:
                            message = f"{path} is a folder"
                            raise CommandFailed(message)
                        if whole is None:
                            whole = told
                            begun(told.mode)
                            received.begin(told.size)
                        elif response.status_code != _PARTIAL or not told.is_rest_of(whole, at):
                            message = f"{path} changed while it was fetched: try again"
                            raise CommandFailed(message, passes=True)
                        async for piece in response.aiter_raw(_PIECE):
                            file.write(piece)
                            at += len(piece)
                            received.advance(len(piece))
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
        import httpx2

        patience = asyncio.timeout(_SECONDS)
        if pieces is not None:
            body = Body(_paced(pieces, patience))
            asked |= {"content": body, "extensions": {"trace": body.trace}}
        async with AsyncExitStack() as stack:
            try:
                async with patience:
                    asking = self._http.stream(method, f"/files/{_escaped(path)}", **asked)
                    response = await stack.enter_async_context(asking)
                    if response.status_code not in _OK:
                        said = await replies.beginning_of(response)
                        raise refusal(response.status_code, said)
            except TimeoutError:
                raise _late() from None
            except httpx2.RequestError as error:
                raise _unreachable(error) from None
            yield response


async def _whole(response: httpx2.Response) -> bytes:
    """Return the body of an answer that is no file.

    Raises:
        CommandFailed: It is too large, takes too long, or broke off.
    """
    import httpx2

    try:
        async with asyncio.timeout(_SECONDS):
            return await replies.body_of(response)
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


def _rest(whole: Content | None, at: int) -> dict[str, str]:
    """Return what asks for what is still missing of a file, if it is the same."""
    return {} if whole is None else {"Range": f"bytes={at}-", "If-Range": whole.tag}


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
    text = f"the connection to the intern failed ({str(error) or type(error).__name__}): try again"
    return CommandFailed(text, passes=True)


def _late() -> CommandFailed:
    return CommandFailed("the intern does not answer in time: try again", passes=True)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece

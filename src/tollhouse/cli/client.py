"""The one HTTP client of all control commands, over whichever way leads to the server.

    Remote   ──▶ TCP, with a key
    Folder   ──▶ <data>/control.sock, where somebody answers there
             ├─▶ with a key: the address of who holds the folder, as Remote
             └─▶ else this process locks the folder and runs the control plane itself

All of them speak to the same ASGI application, so a command behaves the same on each. The HTTP
library is imported where it is used: `tollhouse serve` and `--help` go without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from tollhouse import __version__
from tollhouse.cli.bodies import Body
from tollhouse.cli.failures import BrokenOff, CommandFailed
from tollhouse.cli.json_objects import fields
from tollhouse.cli.refusals import reason_of, refusal
from tollhouse.cli.target import Folder, Remote, origin
from tollhouse.kernel.start import StartError
from tollhouse.storage.data_folder import DataFolder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping
    from pathlib import Path

    import httpx2

    from tollhouse.kernel.secret import Secret
    from tollhouse.settings.sections import Settings

    Sent = str | int | list[str]

PAGE: Final = 100
"""How many keys the server shows at once."""
_SECONDS: Final = 60.0
_LOCAL_BASE_URL = "http://localhost/v1"
_OK = range(200, 300)
_NOTHING_LEFT: Final = 204
_PASSING: Final = frozenset((429, *range(500, 600)))
"""Statuses of what may work later."""
_OURS: Final = frozenset(
    ("data", "deleted", "object", "workspace_id", "provisioning", "suspended", "deleting", "origin")
)
"""Fields of which every reply of a Tollhouse server has one."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A reply that is read as it comes."""

    status: int
    content_type: str
    pieces: AsyncIterator[bytes]


class Server:
    """A server that answers control requests."""

    def __init__(self, http: httpx2.AsyncClient, place: str = "") -> None:
        """Take an open client whose base URL is the API's.

        Args:
            http: The client.
            place: The server's address, or its data folder.
        """
        self._http = http
        self.place = place

    async def get(self, path: str, **query: object) -> Any:  # noqa: ANN401 - JSON is anything
        """Return the reply to a GET; parameters that are None are left out."""
        return await self.send("GET", path, query=query)

    async def all_of(self, path: str, **query: object) -> list[dict[str, Any]]:
        """Return a whole list, page by page."""
        items: list[dict[str, Any]] = []
        while True:
            page = await self.get(path, offset=len(items), **query)
            items += page["data"]
            if _is_last(page, len(items)) or not page["data"]:
                return items

    async def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = _SECONDS,
    ) -> Any:  # noqa: ANN401 - JSON is anything
        """Send a request and return its reply; None where a deletion is answered with nothing.

        Args:
            method: The HTTP method.
            path: What is asked for.
            body: Sent as JSON.
            query: Parameters; those that are None are left out.
            headers: Further headers.
            seconds: How long the server may take.

        Raises:
            CommandFailed: It was refused, or nobody answered.
        """
        return await self._ask(
            method,
            path,
            json=None if body is None else dict(body),
            params=_given(query or {}),
            headers=dict(headers or {}),
            timeout=seconds,
        )

    async def upload(
        self,
        path: str,
        pieces: Iterable[bytes],
        *,
        size: int,
        headers: Mapping[str, str],
        seconds: float,
    ) -> Any:  # noqa: ANN401 - JSON is anything
        """Post a body that is too large to be held, and return the reply.

        Args:
            path: Where to.
            pieces: JSON.
            size: Bytes of all of it.
            headers: Further headers.
            seconds: How long the server may take once it has all.

        Raises:
            CommandFailed: It was refused, or nobody answered.
        """
        about = {"content-type": "application/json", "content-length": str(size)}
        body = Body(pieces)
        return await self._ask(
            "POST",
            path,
            content=body,
            headers={**about, **headers},
            timeout=seconds,
            extensions={"trace": body.trace},
        )

    @asynccontextmanager
    async def download(
        self, path: str, *, also: Collection[int] = ()
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open a reply that is too large to be held.

        Args:
            path: What is asked for.
            also: Statuses beside the 200s whose reply is wanted.

        Yields:
            The reply, piece by piece.

        Raises:
            BrokenOff: The reply ended before its end.
            CommandFailed: It was refused, or nobody answered.
        """
        async with self._opened("GET", path, also=also, advice=": try again") as response:
            yield response.aiter_bytes()

    @asynccontextmanager
    async def held(self, path: str, body: Mapping[str, object]) -> AsyncGenerator[Any]:
        """Ask for something that lasts until the block is left, or the server ends it.

        Yields:
            What it is.

        Raises:
            BrokenOff: The reply ended before its end.
            CommandFailed: It was refused, or nobody answered.
        """
        async with (
            self._opened("POST", path, json=dict(body), timeout=_SECONDS) as response,
            # The reply ends when what reads it is thrown away.
            aclosing(_text_lines(response)) as lines,
        ):
            yield json.loads(await anext(lines))["data"]

    @asynccontextmanager
    async def streamed(
        self,
        path: str,
        body: Mapping[str, object],
        *,
        begin_seconds: float,
        silent_seconds: float,
    ) -> AsyncGenerator[Streamed]:
        """Post something whose reply is read as it comes. To leave the block is to hang up.

        Args:
            path: Where to.
            body: Sent as JSON.
            begin_seconds: How long the server may take to begin its reply.
            silent_seconds: How long it may be silent in the middle of it.

        Yields:
            The reply.

        Raises:
            BrokenOff: The reply ended before its end, or nothing more came.
            CommandFailed: It was refused, or nobody answered.
        """
        import httpx2

        timeout = httpx2.Timeout(_SECONDS, read=begin_seconds)
        async with (
            self._opened("POST", path, json=dict(body), timeout=timeout) as response,
            aclosing(_pieces(response, silent_seconds)) as pieces,
        ):
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            yield Streamed(response.status_code, kind, pieces)

    @asynccontextmanager
    async def _opened(
        self,
        method: str,
        path: str,
        *,
        also: Collection[int] = (),
        advice: str = "",
        **asked: Any,  # noqa: ANN401 - as the HTTP library has it
    ) -> AsyncGenerator[httpx2.Response]:
        """Open a reply whose body is read as it comes; the advice is for one that breaks off."""
        import httpx2

        begun = False
        try:
            async with self._http.stream(method, path.removeprefix("/"), **asked) as response:
                if response.status_code not in _OK and response.status_code not in also:
                    await response.aread()
                    raise self._refused(response, path)
                begun = True
                yield response
        except httpx2.RequestError as error:
            if not begun:
                raise self._unreachable(error) from None
            text = f"the reply of the server at {self._http.base_url} broke off ({error}){advice}"
            raise BrokenOff(text, passes=True) from None

    async def _ask(self, method: str, path: str, **asked: Any) -> Any:  # noqa: ANN401 - JSON is anything
        import httpx2

        try:
            response = await self._http.request(method, path.removeprefix("/"), **asked)
        except httpx2.RequestError as error:
            raise self._unreachable(error) from None
        if response.status_code == _NOTHING_LEFT and method == "DELETE":
            return None
        reply = _json(response)
        if response.status_code not in _OK or not _is_ours(reply):
            raise self._refused(response, path)
        return reply

    def _refused(self, response: httpx2.Response, path: str) -> CommandFailed:
        status, reply = response.status_code, _json(response)
        return CommandFailed(
            refusal(status, reply, path=path),
            passes=status in _PASSING,
            status=status,
            reason=reason_of(reply),
            retry_after_seconds=_seconds(response.headers.get("retry-after", "")),
        )

    def _unreachable(self, error: httpx2.RequestError) -> CommandFailed:
        import httpx2

        late = isinstance(error, httpx2.TimeoutException)
        reason = "it did not answer in time" if late else str(error) or type(error).__name__
        text = (
            f"the server at {self._http.base_url} cannot be reached ({reason}): "
            "check the address and that the server runs"
        )
        return CommandFailed(text, passes=True)


@asynccontextmanager
async def connect(target: Remote | Folder) -> AsyncGenerator[Server]:
    """Open the way to a server.

    Raises:
        StartError: The settings or the data folder cannot be used.
    """
    if isinstance(target, Remote):
        async with _remote(target) as server:
            yield server
        return
    data_dir = data_dir_of(target)
    control_socket = DataFolder(data_dir).control_socket
    if target.api_key is not None:
        async with _at_address_of(data_dir, target.api_key) as server:
            yield server
        return
    if answers(control_socket):
        async with _over_socket(control_socket, str(data_dir)) as server:
            yield server
        return
    async with _in_process(load_settings(target)) as server:
        yield server


def data_dir_of(target: Folder) -> Path:
    """Return the data folder that a command means.

    Raises:
        StartError: The path leads nowhere.
    """
    from tollhouse.settings.loader import locate

    return locate(config=target.config, env=os.environ, data_dir=target.data_dir)


def load_settings(target: Folder, **overrides: object) -> Settings:
    """Return the settings that a command's flags and the environment mean.

    Raises:
        StartError: They cannot be used.
    """
    from tollhouse.settings.loader import load

    return load(
        config=target.config, env=os.environ, overrides={"data_dir": target.data_dir, **overrides}
    )


def answers(control_socket: Path) -> bool:
    """Tell whether a server listens on a socket.

    Raises:
        StartError: There is one that this user may not talk to.
    """
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.settimeout(5.0)
    with probe:
        try:
            probe.connect(str(control_socket))
        except PermissionError:
            message = (
                f"the data folder {control_socket.parent} belongs to another user: run this as "
                "that user, or talk to its server with --base-url and a management key"
            )
            raise StartError(message) from None
        except OSError:  # none there, nobody behind it, or a path that no server could listen on
            return False
    return True


@asynccontextmanager
async def _remote(target: Remote, *, near: bool = False) -> AsyncGenerator[Server]:
    """Open the way to an address; one that is near is reached past any proxy."""
    import httpx2

    headers = _headers()
    if target.api_key is not None:
        headers["authorization"] = f"Bearer {target.api_key.reveal()}"
    async with httpx2.AsyncClient(
        base_url=target.base_url, headers=headers, timeout=_SECONDS, trust_env=not near
    ) as http:
        yield Server(http, target.base_url)


@asynccontextmanager
async def _at_address_of(data_dir: Path, api_key: Secret) -> AsyncGenerator[Server]:
    """Open the way to the server of a data folder, as everybody does who has a key."""
    folder = DataFolder(data_dir)
    owner = folder.owner() if answers(folder.control_socket) else None
    if owner is None or owner.address is None:
        message = (
            f"no server runs on the data folder {data_dir}: start one with `tollhouse serve`, or "
            "name one with --base-url"
        )
        raise CommandFailed(message)
    address = Remote(f"{origin(owner.address)}/v1", api_key)
    async with _remote(address, near=True) as server:
        yield server


@asynccontextmanager
async def _over_socket(control_socket: Path, place: str) -> AsyncGenerator[Server]:
    import httpx2

    async with _local_client(httpx2.AsyncHTTPTransport(uds=str(control_socket))) as http:
        yield Server(http, place)


@asynccontextmanager
async def _in_process(settings: Settings) -> AsyncGenerator[Server]:
    import httpx2

    from tollhouse.apps.local import local_front

    async with (
        local_front(settings) as front,
        # The two libraries name ASGI's types differently.
        _local_client(httpx2.ASGITransport(app=cast("Any", front))) as http,
    ):
        yield Server(http, str(settings.data_dir))


def _local_client(transport: httpx2.AsyncBaseTransport) -> httpx2.AsyncClient:
    import httpx2

    # A proxy of the environment has nothing to do with this machine's own server.
    return httpx2.AsyncClient(
        transport=transport,
        base_url=_LOCAL_BASE_URL,
        headers=_headers(),
        timeout=_SECONDS,
        trust_env=False,
    )


async def _text_lines(response: httpx2.Response) -> AsyncGenerator[str]:
    async for line in response.aiter_lines():
        yield line


async def _pieces(response: httpx2.Response, silent_seconds: float) -> AsyncGenerator[bytes]:
    import httpx2

    pieces = response.aiter_bytes()
    while True:
        try:
            async with asyncio.timeout(silent_seconds):
                piece = await anext(pieces, None)
        except TimeoutError:
            message = f"nothing was heard of it for {silent_seconds:.0f} seconds"
            raise httpx2.ReadTimeout(message, request=response.request) from None
        if piece is None:
            return
        yield piece


def _seconds(header: str) -> float | None:
    return float(header) if header.isascii() and header.isdigit() else None


def _headers() -> dict[str, str]:
    return {"user-agent": f"tollhouse-cli/{__version__}"}


def _given(query: Mapping[str, object]) -> dict[str, Sent]:
    given = {name: value for name, value in query.items() if value is not None}
    return {
        name: str(value).lower() if isinstance(value, bool) else cast("Sent", value)
        for name, value in given.items()
    }


def _is_last(page: Mapping[str, Any], so_far: int) -> bool:
    """Tell whether a list ends with a page: it says so, or counts all, or is not full."""
    if "has_more" in page:
        return not page["has_more"]
    if page.get("total_count") is not None:
        return so_far >= page["total_count"]
    return len(page["data"]) < PAGE


def _json(response: httpx2.Response) -> Any:  # noqa: ANN401 - JSON is anything
    try:
        return response.json()
    except ValueError:
        return None


def _is_ours(reply: Any) -> bool:  # noqa: ANN401 - JSON is anything
    return not _OURS.isdisjoint(fields(reply))

"""The one HTTP client of all control commands, however the server is reached.

    RemoteServer  ──▶ TCP, with a key
    DataFolderServer   ──▶ <data>/control.sock, where a server listens there
                  ├─▶ with a key: the address of the folder's server, as RemoteServer
                  └─▶ else this process locks the folder and runs the control plane itself

All of them speak to the same ASGI application, so a command behaves the same on each. The HTTP
library is imported where it is used: `tollhouse serve` and `--help` go without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tollhouse import __version__
from tollhouse.cli.errors import CommandFailed, ReplyTruncated, error_reason, refusal_message
from tollhouse.cli.target import DataFolderServer, RemoteServer, origin
from tollhouse.cli.values import object_fields
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.secret import Secret
from tollhouse.storage.data_folder import DataFolder

if TYPE_CHECKING:
    import httpx2

    from tollhouse.settings.sections import Settings

KEYS_PER_PAGE: Final = 100
"""How many keys the server shows at once."""
_SECONDS: Final = 60.0
_LOCAL_BASE_URL: Final = "http://localhost/v1"
_OK: Final = range(200, 300)
_NO_CONTENT: Final = 204
_RETRYABLE: Final = frozenset((429, *range(500, 600)))
_KNOWN_FIELDS: Final = frozenset(
    (
        "data",
        "deleted",
        "object",
        "workspace_id",
        "provisioning",
        "suspended",
        "deleting",
        "origin",
        "session_id",
    )
)
"""Fields of which every reply of a Tollhouse server has one."""
_CONNECTED: Final = "connection.connect_tcp.complete"
_SECURED: Final = ".start_tls.complete"


class UploadBody:
    """A large body that is sent until the server answers.

    A server refuses a disabled key or a batch that is too large at once, and closes the connection
    of a client that goes on sending. The HTTP library reads a reply only after the whole body is
    sent, when it is lost. So each piece is preceded by a look whether a reply has arrived.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self._stream: Any = None

    async def trace(self, event: str, about: Mapping[str, Any]) -> None:
        """Learn which connection the body goes over.

        Source: https://www.encode.io/httpcore/extensions/#trace
        """
        if event == _CONNECTED:
            self._stream = about["return_value"]
        elif event.endswith(_SECURED):
            # What comes over TLS may be its own, such as session tickets.
            self._stream = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces; WriteError once the server has answered, so that the answer is read."""
        from httpcore2 import WriteError

        for piece in self._pieces:
            if self._stream is not None and self._stream.get_extra_info("is_readable"):
                raise WriteError
            yield piece


@dataclass(frozen=True, slots=True)
class StreamedReply:
    """A reply that is read as it comes."""

    status: int
    content_type: str
    pieces: AsyncIterator[bytes]


class Server:
    """A server that answers control requests, behind an open client whose base URL is its API.

    Every method raises CommandFailed where it was refused, or nobody answered; those that read a
    reply as it comes raise ReplyTruncated where it breaks off.
    """

    def __init__(self, http: httpx2.AsyncClient, place: str = "") -> None:
        self._http = http
        self.place = place
        """The server's address, or its data folder."""

    async def get(self, path: str, **query: object) -> Any:  # noqa: ANN401 - JSON is anything
        """Return the reply to a GET; parameters that are None are left out."""
        return await self.send("GET", path, query=query)

    async def list_all(self, path: str, **query: object) -> list[dict[str, Any]]:
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
        """Return the reply to a request, within `seconds`; None to a deletion that has no reply."""
        return await self._ask(
            method,
            path,
            json=None if body is None else dict(body),
            params=_query_parameters(query or {}),
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
        """Post JSON of `size` bytes, which is too large to be held, and return the reply.

        The server may take `seconds` once it has all.
        """
        about = {"content-type": "application/json", "content-length": str(size)}
        body = UploadBody(pieces)
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
        """Open a reply that is too large to be held, of a 2xx or one `also` wanted, in pieces."""
        async with self._opened("GET", path, also=also, advice=": try again") as response:
            yield response.aiter_bytes()

    @asynccontextmanager
    async def hold_open(self, path: str, body: Mapping[str, object]) -> AsyncGenerator[Any]:
        """Ask for something that lasts until the block is left, or the server ends it; yield it."""
        async with (
            self._opened("POST", path, json=dict(body), timeout=_SECONDS) as response,
            # The reply ends when what reads it is thrown away.
            aclosing(_text_lines(response)) as lines,
        ):
            yield json.loads(await anext(lines))["data"]

    @asynccontextmanager
    async def stream(
        self, path: str, body: Mapping[str, object], *, begin_seconds: float, silent_seconds: float
    ) -> AsyncGenerator[StreamedReply]:
        """Post something whose reply is read as it comes. To leave the block is to hang up.

        The server may take `begin_seconds` to begin its reply, and be silent for `silent_seconds`.
        """
        import httpx2

        timeout = httpx2.Timeout(_SECONDS, read=begin_seconds)
        async with (
            self._opened("POST", path, json=dict(body), timeout=timeout) as response,
            aclosing(_pieces(response, silent_seconds)) as pieces,
        ):
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            yield StreamedReply(response.status_code, kind, pieces)

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
                    raise _refused(response, path)
                begun = True
                yield response
        except httpx2.RequestError as error:
            if not begun:
                raise self._unreachable(error) from None
            text = f"the reply of the server at {self._http.base_url} broke off ({error}){advice}"
            raise ReplyTruncated(text, retryable=True) from None

    async def _ask(self, method: str, path: str, **asked: Any) -> Any:  # noqa: ANN401 - JSON is anything
        import httpx2

        try:
            response = await self._http.request(method, path.removeprefix("/"), **asked)
        except httpx2.RequestError as error:
            raise self._unreachable(error) from None
        if response.status_code == _NO_CONTENT and method == "DELETE":
            return None
        reply = _json(response)
        is_ours = not _KNOWN_FIELDS.isdisjoint(object_fields(reply))
        if response.status_code not in _OK or not is_ours:
            raise _refused(response, path)
        return reply

    def _unreachable(self, error: httpx2.RequestError) -> CommandFailed:
        import httpx2

        late = isinstance(error, httpx2.TimeoutException)
        reason = "it did not answer in time" if late else str(error) or type(error).__name__
        return CommandFailed(
            f"the server at {self._http.base_url} cannot be reached ({reason}): "
            "check the address and that the server runs",
            retryable=True,
        )


@asynccontextmanager
async def connect(target: RemoteServer | DataFolderServer) -> AsyncGenerator[Server]:
    """Open the way to a server; StartError if the settings or the data folder cannot be used."""
    import httpx2

    if isinstance(target, RemoteServer):
        async with _http(target.base_url, target.api_key, trust_env=True) as http:
            yield Server(http, target.base_url)
        return
    data_dir = data_dir_of(target.data_dir, target.config)
    control_socket = DataFolder(data_dir).control_socket
    if target.api_key is not None:
        # A client that has a key goes to the address, and past any proxy.
        base_url = _address_of(data_dir)
        async with _http(base_url, target.api_key) as http:
            yield Server(http, base_url)
    elif is_listening(control_socket):
        async with _http(transport=httpx2.AsyncHTTPTransport(uds=str(control_socket))) as http:
            yield Server(http, str(data_dir))
    else:
        from tollhouse.apps.local import local_gate

        settings = load_settings(target.data_dir, target.config)
        async with (
            local_gate(settings) as front,
            # The two libraries name ASGI's types differently.
            _http(transport=httpx2.ASGITransport(app=cast("Any", front))) as http,
        ):
            yield Server(http, str(settings.data_dir))


def data_dir_of(data_dir: Path | None, config: Path | None) -> Path:
    """Return the data folder that flags and the environment mean; StartError if there is none."""
    from tollhouse.settings.loader import locate

    return locate(config=config, env=os.environ, data_dir=data_dir)


def load_settings(data_dir: Path | None, config: Path | None, **overrides: object) -> Settings:
    """Return the settings that flags and the environment mean; StartError if one is wrong."""
    from tollhouse.settings.loader import load

    return load(config=config, env=os.environ, overrides={"data_dir": data_dir, **overrides})


def is_listening(control_socket: Path) -> bool:
    """Tell whether a server listens on a socket; StartError if this user may not talk to it."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.settimeout(5.0)
    with probe:
        try:
            probe.connect(str(control_socket))
        except PermissionError:
            raise StartError(
                f"the data folder {control_socket.parent} belongs to another user: run this as "
                "that user, or talk to its server with --base-url and a management key"
            ) from None
        except OSError:  # none there, nobody behind it, or a path that no server could listen on
            return False
    return True


def _address_of(data_dir: Path) -> str:
    folder = DataFolder(data_dir)
    owner = folder.owner() if is_listening(folder.control_socket) else None
    if owner is None or owner.address is None:
        raise CommandFailed(
            f"no server runs on the data folder {data_dir}: start one with `tollhouse serve`, or "
            "name one with --base-url"
        )
    return f"{origin(owner.address)}/v1"


def _http(
    base_url: str = _LOCAL_BASE_URL,
    key: Secret | None = None,
    *,
    transport: httpx2.AsyncBaseTransport | None = None,
    # A proxy of the environment has nothing to do with this machine's own server.
    trust_env: bool = False,
) -> AbstractAsyncContextManager[httpx2.AsyncClient]:
    import httpx2

    headers = {"user-agent": f"tollhouse-cli/{__version__}"}
    if key is not None:
        headers["authorization"] = f"Bearer {key.reveal()}"
    return httpx2.AsyncClient(
        transport=transport,
        base_url=base_url,
        headers=headers,
        timeout=_SECONDS,
        trust_env=trust_env,
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


def _refused(response: httpx2.Response, path: str) -> CommandFailed:
    status, reply = response.status_code, _json(response)
    after = response.headers.get("retry-after", "")
    return CommandFailed(
        refusal_message(status, reply, path=path),
        retryable=status in _RETRYABLE,
        status=status,
        reason=error_reason(reply),
        retry_after_seconds=float(after) if after.isascii() and after.isdigit() else None,
    )


def _query_parameters(query: Mapping[str, object]) -> dict[str, str | int | list[str]]:
    given = {name: value for name, value in query.items() if value is not None}
    return {
        name: str(value).lower() if isinstance(value, bool) else cast("str | int", value)
        for name, value in given.items()
    }


def _is_last(page: Mapping[str, Any], so_far: int) -> bool:
    """Tell whether a list ends with a page: it says so, or counts all, or is not full."""
    if "has_more" in page:
        return not page["has_more"]
    if page.get("total_count") is not None:
        return so_far >= page["total_count"]
    return len(page["data"]) < KEYS_PER_PAGE


def _json(response: httpx2.Response) -> Any:  # noqa: ANN401 - JSON is anything
    try:
        return response.json()
    except ValueError:
        return None

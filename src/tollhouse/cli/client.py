"""The one HTTP client of all control commands, over whichever way leads to the server.

    Remote   ──▶ TCP, with a key
    Folder   ──▶ <data>/control.sock, where somebody answers there
             └─▶ else this process locks the folder and runs the control plane itself

All three speak to the same ASGI application, so a command behaves the same on each. The HTTP
library is imported where it is used: `tollhouse serve` and `--help` go without it.
"""

from __future__ import annotations

import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from tollhouse import __version__
from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.refusals import refusal
from tollhouse.cli.target import Folder, Remote
from tollhouse.kernel.start import StartError
from tollhouse.storage.data_folder import DataFolder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    import httpx2

    from tollhouse.settings.sections import Settings

PAGE: Final = 100
"""How many keys the server shows at once."""
_SECONDS: Final = 60.0
_LOCAL_BASE_URL = "http://localhost/v1"
_OK = range(200, 300)


class Server:
    """A server that answers control requests."""

    def __init__(self, http: httpx2.AsyncClient, *, remote: bool) -> None:
        """Take an open client whose base URL is the API's.

        Args:
            http: The client.
            remote: Whether the server wants a key.
        """
        self._http = http
        self._remote = remote

    async def get(self, path: str, **query: object) -> Any:  # noqa: ANN401 - JSON is anything
        """Return the reply to a GET; parameters that are None are left out."""
        return await self.send("GET", path, query=query)

    async def all_of(self, path: str, **query: object) -> list[dict[str, Any]]:
        """Return a whole list, page by page."""
        items: list[dict[str, Any]] = []
        while True:
            page = await self.get(path, offset=len(items), **query)
            items += page["data"]
            # Keys come without a total: their list ends with a page that is not full.
            total = page.get("total_count")
            at_end = len(page["data"]) < PAGE if total is None else len(items) >= total
            if at_end or not page["data"]:
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
        """Send a request and return its reply.

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
        import httpx2

        try:
            response = await self._http.request(
                method,
                path.removeprefix("/"),
                json=None if body is None else dict(body),
                params=_given(query or {}),
                headers=dict(headers or {}),
                timeout=seconds,
            )
        except httpx2.RequestError as error:
            late = isinstance(error, httpx2.TimeoutException)
            reason = "it did not answer in time" if late else str(error) or type(error).__name__
            raise _unreachable(self._http.base_url, reason) from None
        reply = _json(response)
        if response.status_code not in _OK or not _is_ours(reply):
            raise CommandFailed(
                refusal(response.status_code, reply, path=path, remote=self._remote)
            )
        return reply


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
    settings = load_settings(target)
    control_socket = DataFolder(settings.data_dir).control_socket
    if answers(control_socket):
        async with _over_socket(control_socket) as server:
            yield server
        return
    async with _in_process(settings) as server:
        yield server


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
async def _remote(target: Remote) -> AsyncGenerator[Server]:
    import httpx2

    headers = _headers()
    if target.api_key is not None:
        headers["authorization"] = f"Bearer {target.api_key.reveal()}"
    async with httpx2.AsyncClient(
        base_url=target.base_url, headers=headers, timeout=_SECONDS
    ) as http:
        yield Server(http, remote=True)


@asynccontextmanager
async def _over_socket(control_socket: Path) -> AsyncGenerator[Server]:
    import httpx2

    async with _local_client(httpx2.AsyncHTTPTransport(uds=str(control_socket))) as http:
        yield Server(http, remote=False)


@asynccontextmanager
async def _in_process(settings: Settings) -> AsyncGenerator[Server]:
    import httpx2

    from tollhouse.apps.local import local_front

    async with (
        local_front(settings) as front,
        # The two libraries name ASGI's types differently.
        _local_client(httpx2.ASGITransport(app=cast("Any", front))) as http,
    ):
        yield Server(http, remote=False)


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


def _headers() -> dict[str, str]:
    return {"user-agent": f"tollhouse-cli/{__version__}"}


def _given(query: Mapping[str, object]) -> dict[str, str | int]:
    given = {name: value for name, value in query.items() if value is not None}
    return {
        name: str(value).lower() if isinstance(value, bool) else cast("str | int", value)
        for name, value in given.items()
    }


def _json(response: httpx2.Response) -> Any:  # noqa: ANN401 - JSON is anything
    try:
        return response.json()
    except ValueError:
        return None


def _is_ours(reply: Any) -> bool:  # noqa: ANN401 - JSON is anything
    return isinstance(reply, dict) and ("data" in reply or "deleted" in reply)


def _unreachable(base_url: httpx2.URL, reason: str) -> CommandFailed:
    return CommandFailed(
        f"the server at {base_url} cannot be reached ({reason}): "
        "check the address and that the server runs"
    )

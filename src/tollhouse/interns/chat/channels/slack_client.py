"""Slack's Web API and one connection of Socket Mode; the library, as far as it does what we need.

The library's own log is off: it repeats what people write. It connects nothing again by itself,
since it does so at once wherever Slack closes a connection: `pause_after` says when that is tried.
`HTTPS_PROXY` holds for calls, connections and files.

Source: https://docs.slack.dev/apis/events-api/using-socket-mode (disconnects),
/apis/web-api/rate-limits.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.web.async_client import AsyncWebClient

from tollhouse.kernel.concurrency import wait_for_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest

    from tollhouse.interns.chat.channels.slack_server import SlackServer

    OnRequest = Callable[[AsyncBaseSocketModeClient, SocketModeRequest], Awaitable[None]]

CALL_SECONDS: Final = 30
_MOST_WAITS: Final = 20
"""How often a call is sent again that came too soon."""
_LONGEST_PAUSE: Final = 60.0
FAILURES: Final = (SlackClientError, aiohttp.ClientError, OSError, TimeoutError, ValueError)
"""What calls of Slack fail by."""
_quiet = logging.getLogger("tollhouse.slack_sdk")
_quiet.disabled = True
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SlackApi:
    """Slack's Web API, with an app's token."""

    client: AsyncWebClient

    async def ask(self, method: str, **fields: object) -> Mapping[str, Any]:
        """Call a method; raises a `SlackClientError`, or another of `FAILURES`."""
        return cast(
            "Mapping[str, Any]", await cast("Any", self.client).api_call(method, json=fields)
        )

    async def tell(self, method: str, **fields: object) -> Mapping[str, Any]:
        """Call a method; nothing where it failed, which is logged."""
        try:
            return await self.ask(method, **fields)
        except FAILURES as error:
            _log.warning("slack_call_failed", method=method, reason=reason_of(error))
            return {}

    async def open_socket(self, app_token: str) -> str:
        """Return a URL for one connection of Socket Mode."""
        opened = await cast("Any", self.client).apps_connections_open(app_token=app_token)
        return str(opened["url"])

    async def user(self, user_id: str) -> Mapping[str, Any]:
        """Return what Slack says of a user; nothing where it says nothing, which is logged.

        Source: /reference/methods/users.info, which takes no JSON.
        """
        try:
            found = await cast("Any", self.client).users_info(user=user_id)
            return cast("Mapping[str, Any]", found["user"])
        except (*FAILURES, KeyError) as error:
            _log.warning("slack_call_failed", method="users.info", reason=reason_of(error))
            return {}


def reason_of(error: Exception) -> str:
    """Return Slack's word for what is wrong, or the kind of a failure, and no text of it."""
    word = error.response.get("error") if isinstance(error, SlackApiError) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return str(word or type(error).__name__)  # pyright: ignore[reportUnknownArgumentType]


class _Socket(SocketModeClient):
    """One connection, which says when it is over."""

    ended: asyncio.Event

    async def connect_to_new_endpoint(self, force: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - the library's signature
        """Take note that Slack wants another connection."""
        self.ended.set()


async def serve_socket(
    web: SlackApi, app_token: str, ping_seconds: float, on_request: OnRequest
) -> None:
    """Receive requests on one connection until it is over; raises one of `FAILURES`."""
    url = await web.open_socket(app_token)
    client = _Socket(
        app_token,
        logger=_quiet,
        web_client=web.client,
        proxy=web.client.proxy,
        ping_interval=ping_seconds,
        auto_reconnect_enabled=False,
    )
    client.ended = asyncio.Event()
    client.wss_uri = url
    client.socket_mode_request_listeners.append(on_request)

    async def closed(_: object) -> None:
        client.ended.set()

    client.on_close_listeners.append(closed)
    try:
        async with asyncio.timeout(CALL_SECONDS):
            await client.connect()
        _log.info("slack_connected")
        while await client.is_connected():
            if await wait_for_event(client.ended, ping_seconds):
                return
    finally:
        await client.close()


def pause_after(failures: int, first: float, name: str) -> float:
    """Return how long to wait until a connection is made again, after so many that did not last.

    Each time it is twice as long, up to a minute, and shortened by up to a half, by another part
    for each `name` and time, so that not all apps come at once where Slack was away.
    """
    whole = min(first * 2 ** min(failures, 16), _LONGEST_PAUSE)
    return whole * (1 - zlib.crc32(f"{name} {failures}".encode()) / 2**33)


@asynccontextmanager
async def web_client(server: SlackServer, token: str) -> AsyncGenerator[SlackApi]:
    """Yield a client of Slack's Web API that waits where Slack says so."""
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        retry = AsyncRateLimitErrorRetryHandler(max_retry_count=_MOST_WAITS)
        yield SlackApi(
            AsyncWebClient(
                token, server.url, session=session, logger=_quiet, retry_handlers=[retry]
            )
        )

"""Slack: Socket Mode and signed requests, threads as sessions, replies that grow by edits.

    event ──> seen before? ──> may they? ──> Conversations ──> SlackThread ──> chat.postMessage
                                                                          └──> chat.update

An event is acknowledged before anything is done with it, and one that comes again is dropped. What
Slack refuses is logged by its word for it, and never ends a run; a 429 is waited out for as long as
it says. The library's own log is off: it repeats what people write.

Source: https://docs.slack.dev/apis/events-api (retries, event ids) and its /using-socket-mode
(envelopes, disconnects), /authentication/verifying-requests-from-slack (signature v0),
/apis/web-api/rate-limits (one message a second, chat.update some fifty a minute).
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.signature import Clock as SignatureClock
from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from tollhouse.interns.chat.channels import (
    ChannelFailed,
    ChannelFile,
    ChannelPrompt,
    ChannelTokens,
    HttpEvent,
)
from tollhouse.interns.chat.channels import slack_format as fmt
from tollhouse.interns.chat.channels.conversations import LARGEST_FILE
from tollhouse.kernel.errors import Invalid, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Mapping

    from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest

    from tollhouse.interns.chat.channels.conversations import Conversations
    from tollhouse.interns.chat.channels.slack_server import SlackServer
    from tollhouse.interns.chat.events import QuestionEvent
    from tollhouse.kernel.clock import Clock

BOT, APP, SIGNING = "bot_token", "app_token", "signing_secret"
TOKENS: Final = (BOT, APP, SIGNING)
_CALL_SECONDS: Final = 30
_MOST_WAITS: Final = 20
"""How often a call is sent again that came too soon."""
_MOST_SEEN: Final = 2_000
"""Events that are remembered, so that one which comes again is known."""
_LONGEST_PAUSE: Final = 60.0
_IGNORED: Final = frozenset(("bot_id", "bot_profile"))
_SUBTYPES: Final = frozenset((None, "file_share", "thread_broadcast"))
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
            _log.warning("slack_call_failed", method=method, reason=_reason(error))
            return {}

    async def open_socket(self, app_token: str) -> str:
        """Return a URL for one connection of Socket Mode."""
        opened = await cast("Any", self.client).apps_connections_open(app_token=app_token)
        return str(opened["url"])


class SlackThread:
    """A thread in Slack, to which an intern replies."""

    def __init__(self, web: SlackApi, place: tuple[str, str], edit_seconds: float) -> None:
        """Reply in a channel, below the message that began the thread."""
        self._web = web
        self._channel, self._root = place
        self._edit_seconds = edit_seconds
        self._text = ""
        self._status = ""
        self._shown = ""
        self._message: str | None = None
        self._writing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    @property
    def session(self) -> str:
        """The session that this thread is."""
        return f"slack {self._channel} {self._root}"

    def write(self, text: str) -> None:
        """Add to the reply; it is shown with the next edit."""
        self._text += fmt.escaped(text)
        self._status = ""
        self._show_soon()

    def note(self, title: str) -> None:
        """Show what is done just now below the reply."""
        self._status = fmt.escaped(title)
        self._show_soon()

    async def finish(self) -> None:
        """Show the rest of the reply."""
        self._status = ""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._show()
        self._text = self._shown = ""
        self._message = self._writing = None

    async def say(self, text: str) -> None:
        """Say something of our own."""
        await self.post(f"_{fmt.escaped(text)}_")

    async def ask(self, question: QuestionEvent) -> None:
        """Ask with buttons, or with a form."""
        await self.post(fmt.question_text(question), blocks=fmt.question_blocks(question))

    async def offer_wake(self, text: str) -> None:
        """Offer a button that wakes the intern."""
        await self.post(fmt.escaped(text), blocks=fmt.wake_blocks(fmt.escaped(text)))

    async def post(self, text: str, **more: object) -> str | None:
        """Post a message into the thread; return its id."""
        where = {"channel": self._channel, "thread_ts": self._root}
        fields = {"text": text, "unfurl_links": False, "unfurl_media": False, **more}
        return (await self._web.tell("chat.postMessage", **where, **fields)).get("ts")

    def _show_soon(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._keep_showing())

    async def _keep_showing(self) -> None:
        while self._pending() != self._shown:
            # To be cancelled between a post and its id would post twice.
            await asyncio.shield(asyncio.ensure_future(self._show()))
            await asyncio.sleep(self._edit_seconds)

    def _pending(self) -> str:
        status = f"_{self._status}_" if self._status else ""
        return "\n\n".join(part for part in (self._text, status) if part)

    async def _show(self) -> None:
        async with self._lock:
            while True:
                shown, rest = fmt.first_message(self._text)
                text = shown if rest else self._pending()
                if text and text != self._shown:
                    await self._put(text)
                    self._shown = text
                if not rest:
                    return
                # More may have been written meanwhile.
                self._text, self._shown, self._message = self._text[len(shown) :], "", None

    async def _put(self, text: str) -> None:
        if self._message is None:
            self._message = await self.post(text)
            return
        message = {"channel": self._channel, "ts": self._message}
        await self._web.tell("chat.update", **message, text=text)


def _reason(error: Exception) -> str:
    """Return Slack's word for what is wrong, or the kind of a failure, and no text of it."""
    word = error.response.get("error") if isinstance(error, SlackApiError) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return str(word or type(error).__name__)  # pyright: ignore[reportUnknownArgumentType]


class SlackChannel:
    """An intern's app in Slack."""

    def __init__(
        self,
        conversations: Conversations,
        tokens: ChannelTokens,
        settings: Mapping[str, Any],
        server: SlackServer,
        clock: Clock,
    ) -> None:
        """Take the app's tokens, and who may talk to it."""
        self._conversations = conversations
        self._tokens = tokens
        self._allowed = frozenset(cast("list[str]", settings.get("allowed") or []))
        self._bot_user = str(settings.get("bot_user") or "")
        self._server = server
        self._clock = clock
        self._seen: dict[str, None] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._web: SlackApi | None = None

    @staticmethod
    async def check_tokens(tokens: ChannelTokens, server: SlackServer) -> Mapping[str, Any]:
        """Make sure that Slack knows an app's tokens; return what it says of the app.

        Raises `ChannelFailed`, with Slack's word for what is wrong.
        """
        bot = tokens.get(BOT)
        if bot is None or (tokens.get(APP) is None and tokens.get(SIGNING) is None):
            raise ChannelFailed(
                "Slack needs the bot's token (xoxb-), and the app's (xapp-) or its signing secret."
            )
        try:
            async with web_client(server, bot.reveal()) as web:
                who = await web.ask("auth.test")
                if (app := tokens.get(APP)) is not None:
                    await web.open_socket(app.reveal())
                return {"bot_user": str(who["user_id"]), "team": str(who["team_id"])}
        except FAILURES as error:
            raise ChannelFailed(f"Slack refuses the tokens ({_reason(error)}).") from None

    # Connecting

    async def run(self) -> None:
        """Serve until it is cancelled."""
        pause = self._server.pace.pause
        async with web_client(self._server, self._token(BOT)) as web:
            self._web = web
            try:
                while True:
                    try:
                        await self._serve(web)
                        pause = self._server.pace.pause
                    except FAILURES as error:
                        _log.warning("slack_connection_failed", reason=_reason(error))
                        await asyncio.sleep(pause)
                        pause = min(2 * pause, _LONGEST_PAUSE)
            finally:
                self._web = None
                for each in self._working:
                    each.cancel()
                await asyncio.gather(*self._working, return_exceptions=True)

    async def _serve(self, web: SlackApi) -> None:
        app_token = self._tokens.get(APP)
        if app_token is None:
            await asyncio.Event().wait()  # its events come over HTTP
            return
        url = await web.open_socket(app_token.reveal())
        ping = self._server.pace.ping
        client = SocketModeClient(
            app_token.reveal(), logger=_quiet, web_client=web.client, ping_interval=ping
        )
        client.wss_uri = url
        client.socket_mode_request_listeners.append(self._on_request)
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await client.connect()
            _log.info("slack_connected")
            lost = 0.0
            while lost < 6 * ping:  # it connects again by itself, where that helps
                await asyncio.sleep(ping)
                lost = 0.0 if await client.is_connected() else lost + ping
        finally:
            await client.close()

    async def _on_request(
        self, client: AsyncBaseSocketModeClient, request: SocketModeRequest
    ) -> None:
        await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))
        self._begin(request.type, cast("Mapping[str, Any]", request.payload))  # pyright: ignore[reportUnknownMemberType]

    async def receive(self, event: HttpEvent) -> bytes:
        """Take a signed request.

        Source: /apis/events-api (url_verification), /interactivity/handling-user-interaction (an
        interaction is a form with one field, `payload`).
        """
        secret = self._tokens.get(SIGNING)
        if secret is None or not _is_signed(secret.reveal(), event, self._clock):
            raise Unauthenticated("The request is not signed with the app's signing secret.")
        if self._web is None:
            raise Unavailable("It connects just now: send it again.")
        try:
            if event.headers.get("content-type", "").startswith(
                "application/x-www-form-urlencoded"
            ):
                payload = json.loads(parse_qs(event.body.decode())["payload"][0])
                self._begin("interactive", payload)
                return b""
            payload = json.loads(event.body)
            if payload.get("type") == "url_verification":
                return json.dumps({"challenge": str(payload["challenge"])}).encode()
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise Invalid("The request is none of Slack's.") from None
        self._begin("events_api", payload)
        return b""

    def _token(self, name: str) -> str:
        token = self._tokens.get(name)
        return "" if token is None else token.reveal()

    # What comes

    def _begin(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Do what an event asks for, beside its acknowledgement."""
        try:
            work = self._work(kind, payload)
        except (KeyError, TypeError, AttributeError, IndexError):
            _log.warning("slack_event_not_understood", kind=kind)
            return
        if work is not None:
            task = asyncio.create_task(_logged(work))
            self._working.add(task)
            task.add_done_callback(self._working.discard)

    def _work(self, kind: str, payload: Mapping[str, Any]) -> Coroutine[Any, Any, None] | None:
        if self._web is None:
            return None
        if kind == "interactive" and payload["type"] == "block_actions":
            return self._pressed(self._web, payload)
        if kind != "events_api" or self._is_again(str(payload["event_id"])):
            return None
        event = payload["event"]
        return self._prompted(self._web, event) if self._is_prompt(event) else None

    def _is_prompt(self, event: Mapping[str, Any]) -> bool:
        """Tell whether an event is a mention or a direct message, by a person."""
        is_direct = event["type"] == "message" and event.get("channel_type") == "im"
        is_plain = event.get("subtype") in _SUBTYPES and _IGNORED.isdisjoint(event)
        is_persons = event.get("user") not in {None, self._bot_user}
        return (is_direct or event["type"] == "app_mention") and is_plain and is_persons

    def _is_again(self, event_id: str) -> bool:
        """Tell whether an event was sent before: Slack repeats what it thinks was not taken."""
        if event_id in self._seen:
            return True
        self._seen[event_id] = None
        if len(self._seen) > _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        return False

    async def _prompted(self, web: SlackApi, event: Mapping[str, Any]) -> None:
        channel, user = str(event["channel"]), str(event["user"])
        root = str(event.get("thread_ts") or event["ts"])
        if not self._may(user, channel):
            await self._refuse(web, channel, user)
            return
        text = fmt.unescaped(
            str(event.get("text") or "").replace(f"<@{self._bot_user}>", "")
        ).strip()
        sent = cast("list[Mapping[str, Any]]", event.get("files") or [])
        files = [self._file(web, each) for each in sent]
        if text or files:
            thread = self._thread(web, channel, root)
            await self._conversations.prompt(thread, ChannelPrompt(text, files))

    async def _pressed(self, web: SlackApi, payload: Mapping[str, Any]) -> None:
        channel, user = str(payload["channel"]["id"]), str(payload["user"]["id"])
        message, action = payload["message"], payload["actions"][0]
        ts = str(message["ts"])
        thread = self._thread(web, channel, str(message.get("thread_ts") or ts))
        if not self._may(user, channel):
            await self._refuse(web, channel, user)
            return
        replace = partial(web.tell, "chat.update", channel=channel, ts=ts, blocks=[])
        whisper = partial(web.tell, "chat.postEphemeral", channel=channel, user=user)
        if action["action_id"] == fmt.WAKE:
            await replace(text=f"<@{user}> wakes it.")
            await self._conversations.wake(thread)
            return
        if not str(action["action_id"]).startswith(fmt.ANSWER):
            return
        try:
            answer = fmt.pressed(action, payload.get("state", {}).get("values", {}))
        except fmt.FieldInvalid as error:
            await whisper(text=fmt.escaped(str(error)))
            return
        asked = str(message.get("text") or "")

        async def taken() -> None:
            await replace(text=f"{asked}\n\n<@{user}>: {answer.told}")

        why = await self._conversations.answer(thread, answer[:2], taken)
        if why is not None:
            await whisper(text=fmt.escaped(why))

    def _may(self, user: str, channel: str) -> bool:
        return user in self._allowed or channel in self._allowed

    async def _refuse(self, web: SlackApi, channel: str, user: str) -> None:
        text = "You may not talk to me here: ask whoever runs me to let you."
        await web.tell("chat.postEphemeral", channel=channel, user=user, text=text)

    def _thread(self, web: SlackApi, channel: str, root: str) -> SlackThread:
        return SlackThread(web, (channel, root), self._server.pace.edit)

    def _file(self, web: SlackApi, file: Mapping[str, Any]) -> ChannelFile:
        url, size = str(file.get("url_private_download") or ""), int(file.get("size") or 0)
        return ChannelFile(str(file.get("name") or "file"), size, partial(self._download, web, url))

    async def _download(self, web: SlackApi, url: str) -> bytes:
        """Fetch a file; the token goes nowhere but to Slack."""
        session = web.client.session
        if not _is_slacks(url, self._server.url) or session is None:
            raise ChannelFailed("only files that are stored in Slack can be fetched")
        headers = {"Authorization": f"Bearer {self._token(BOT)}"}
        content = bytearray()
        try:
            async with session.get(url, headers=headers, allow_redirects=False) as reply:
                if reply.status != HTTPStatus.OK:
                    raise ChannelFailed("Slack does not give it out")
                async for piece in reply.content.iter_chunked(65_536):
                    content += piece
                    if len(content) > LARGEST_FILE:
                        raise ChannelFailed(f"a file has at most {LARGEST_FILE >> 20} MiB")
        except (aiohttp.ClientError, TimeoutError):
            raise ChannelFailed("it could not be fetched from Slack") from None
        return bytes(content)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 - the edge of an event; its text may be people's
        _log.error("slack_event_failed", reason=type(error).__name__)


def _is_slacks(url: str, api_url: str) -> bool:
    """Tell whether a file is on Slack's own servers, or on those that stand for them."""
    found, api = urlsplit(url), urlsplit(api_url)
    if (found.scheme, found.netloc) == (api.scheme, api.netloc):
        return True
    domain = (api.hostname or "").removeprefix("www.")
    return found.scheme == "https" and (found.hostname or "").endswith(f".{domain}")


def _is_signed(secret: str, event: HttpEvent, clock: Clock) -> bool:
    """Tell whether a request has Slack's signature, version 0, of the last five minutes."""

    class Now(SignatureClock):
        def now(self) -> float:
            return clock.now().timestamp()

    with suppress(ValueError, TypeError):  # a timestamp that is none, a signature not in ASCII
        return SignatureVerifier(secret, Now()).is_valid_request(event.body, dict(event.headers))
    return False


@asynccontextmanager
async def web_client(server: SlackServer, token: str) -> AsyncGenerator[SlackApi]:
    """Yield a client of Slack's Web API that waits where Slack says so."""
    timeout = aiohttp.ClientTimeout(total=_CALL_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        retry = AsyncRateLimitErrorRetryHandler(max_retry_count=_MOST_WAITS)
        yield SlackApi(
            AsyncWebClient(
                token, server.url, session=session, logger=_quiet, retry_handlers=[retry]
            )
        )

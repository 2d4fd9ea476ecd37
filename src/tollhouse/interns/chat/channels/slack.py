"""Slack: Socket Mode and signed requests, threads as sessions, replies that grow by edits.

    event ──> this workspace's? ──> new? ──> may they? ──> Conversations ──> SlackThread
                                                                              └──> chat.postMessage,
                                                                                   chat.update

An event is acknowledged as soon as the database remembers it, before anything is done with it: one
that comes again, or a button's press that somebody repeats, is dropped. What Slack refuses is
logged by its word for it, and never ends a run; a 429 is waited out for as long as it says.

Source: https://docs.slack.dev/apis/events-api (retries, event ids, authorizations) and its
/using-socket-mode (envelopes), /authentication/verifying-requests-from-slack (signature v0),
/apis/slack-connect (people of other workspaces), /reference/objects/user-object,
/apis/web-api/rate-limits (one message a second, chat.update some fifty a minute).
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import aiohttp
import structlog
from slack_sdk.signature import Clock as SignatureClock
from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode.response import SocketModeResponse

from tollhouse.interns.chat.channels import (
    ChannelFailed,
    ChannelFile,
    ChannelPrompt,
    ChannelTokens,
    HttpEvent,
)
from tollhouse.interns.chat.channels import slack_format as fmt
from tollhouse.interns.chat.channels.conversations import LARGEST_FILE
from tollhouse.interns.chat.channels.slack_client import (
    FAILURES,
    SlackApi,
    pause_after,
    reason_of,
    serve_socket,
    web_client,
)
from tollhouse.kernel.errors import Invalid, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest

    from tollhouse.interns.chat.channels.conversations import Conversations
    from tollhouse.interns.chat.channels.slack_server import SlackServer
    from tollhouse.interns.chat.events import QuestionEvent
    from tollhouse.kernel.clock import Clock

BOT, APP, SIGNING = "bot_token", "app_token", "signing_secret"
TOKENS: Final = (BOT, APP, SIGNING)
_MOST_AT_ONCE: Final = 32
"""What one app has in hand at a time; Slack sends again later what is not taken."""
_STEADY_PINGS: Final = 12
"""After so many pings a connection was a good one."""
_IGNORED: Final = frozenset(("bot_id", "bot_profile"))
_SLACKBOT: Final = "USLACKBOT"
_SUBTYPES: Final = frozenset((None, "file_share", "thread_broadcast"))
_log = structlog.get_logger(__name__)


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
        self._team = str(settings.get("team") or "")
        self._teams = frozenset((self._team, settings.get("enterprise") or self._team))
        self._server = server
        self._clock = clock
        self._working: set[asyncio.Task[None]] = set()
        self._claiming = 0
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
                about = {"bot_user": str(who["user_id"]), "team": str(who["team_id"])}
                return {**about, "enterprise": who.get("enterprise_id")}
        except FAILURES as error:
            raise ChannelFailed(f"Slack refuses the tokens ({reason_of(error)}).") from None

    # Connecting

    async def run(self) -> None:
        """Serve until it is cancelled."""
        pace, loop, failures = self._server.pace, asyncio.get_running_loop(), 0
        async with web_client(self._server, self._token(BOT)) as web:
            self._web = web
            try:
                while True:
                    began = loop.time()
                    try:
                        await self._serve(web)
                    except FAILURES as error:
                        _log.warning("slack_connection_failed", reason=reason_of(error))
                    if loop.time() - began >= _STEADY_PINGS * pace.ping:
                        failures = 0
                    await asyncio.sleep(pause_after(failures, pace.pause, self._bot_user))
                    failures += 1
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
        await serve_socket(web, app_token.reveal(), self._server.pace.ping, self._on_request)

    async def _on_request(
        self, client: AsyncBaseSocketModeClient, request: SocketModeRequest
    ) -> None:
        try:
            await self._begin(request.type, cast("Mapping[str, Any]", request.payload))  # pyright: ignore[reportUnknownMemberType]
        except Exception as error:  # noqa: BLE001 - the edge of an event, which Slack sends again
            _log.warning("slack_event_not_taken", reason=type(error).__name__)
            return
        await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))

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
                kind = "interactive"
                payload = json.loads(parse_qs(event.body.decode())["payload"][0])
            else:
                kind, payload = "events_api", json.loads(event.body)
            if payload.get("type") == "url_verification":
                return json.dumps({"challenge": str(payload["challenge"])}).encode()
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise Invalid("The request is none of Slack's.") from None
        await self._begin(kind, payload)
        return b""

    def _token(self, name: str) -> str:
        token = self._tokens.get(name)
        return "" if token is None else token.reveal()

    # What comes

    async def _begin(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Do what an event asks for, once it is remembered, beside its acknowledgement.

        Raises `Unavailable` where it cannot be taken now.
        """
        try:
            found = self._work(kind, payload)
        except (KeyError, TypeError, AttributeError, IndexError):
            _log.warning("slack_event_not_understood", kind=kind)
            return
        if found is None:
            return
        if len(self._working) + self._claiming >= _MOST_AT_ONCE:
            raise Unavailable("It has too much to do now: send it again.")
        name, work = found
        self._claiming += 1
        try:
            is_new = await self._conversations.is_new(name)
        finally:
            self._claiming -= 1
        if is_new:
            task = asyncio.create_task(_logged(work))
            self._working.add(task)
            task.add_done_callback(self._working.discard)

    def _work(
        self, kind: str, payload: Mapping[str, Any]
    ) -> tuple[str, Callable[[], Coroutine[Any, Any, None]]] | None:
        """Return what an event is remembered by, and what it asks for; None: nothing."""
        web = self._web
        if web is None or kind not in {"events_api", "interactive"}:
            return None
        if not self._is_of_workspace(payload):
            _log.warning("slack_event_foreign", kind=kind)
            return None
        if kind == "interactive":
            is_press = payload["type"] == "block_actions"
            name, work = f"press {payload['trigger_id']}", partial(self._pressed, web, payload)
            return (name, work) if is_press else None
        name, event = str(payload["event_id"]), payload["event"]
        return (name, partial(self._prompted, web, event)) if self._is_prompt(event) else None

    def _is_of_workspace(self, payload: Mapping[str, Any]) -> bool:
        """Tell whether an event is for the app as it is installed in its workspace.

        In a shared channel `team_id` may be the sender's, and `authorizations` has the app's.
        """
        granted = cast("list[Mapping[str, Any]]", payload.get("authorizations") or [])
        interaction = cast("Mapping[str, Any]", payload.get("team") or {})
        sent = [payload.get("team_id") or interaction.get("id")]
        return self._team in ([each.get("team_id") for each in granted] or sent)

    def _is_prompt(self, event: Mapping[str, Any]) -> bool:
        """Tell whether an event is a mention or a direct message, by a person."""
        is_direct = event["type"] == "message" and event.get("channel_type") == "im"
        is_plain = event.get("subtype") in _SUBTYPES and _IGNORED.isdisjoint(event)
        is_persons = event.get("user") not in {None, self._bot_user, _SLACKBOT}
        return (is_direct or event["type"] == "app_mention") and is_plain and is_persons

    async def _prompted(self, web: SlackApi, event: Mapping[str, Any]) -> None:
        channel, user = str(event["channel"]), str(event["user"])
        root = str(event.get("thread_ts") or event["ts"])
        if not await self._may(web, user, channel, event.get("user_team") or event.get("team")):
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
        if not await self._may(web, user, channel, payload["user"].get("team_id")):
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

    async def _may(self, web: SlackApi, user: str, channel: str, team: str | None) -> bool:
        """Tell whether somebody may talk here: by its own id, or as a member in a channel."""
        if team is not None and team not in self._teams:
            return False
        if user in self._allowed or channel not in self._allowed:
            return user in self._allowed
        return fmt.is_member(await web.user(user), self._team)

    async def _refuse(self, web: SlackApi, channel: str, user: str) -> None:
        text = "You may not talk to me here: ask whoever runs me to let you."
        await web.tell("chat.postEphemeral", channel=channel, user=user, text=text)

    def _thread(self, web: SlackApi, channel: str, root: str) -> SlackThread:
        return SlackThread(web, (channel, root), self._server.pace.edit)

    def _file(self, web: SlackApi, file: Mapping[str, Any]) -> ChannelFile:
        url, size = str(file.get("url_private_download") or ""), int(file.get("size") or 0)
        name, file_id = str(file.get("name") or "file"), str(file.get("id") or "")
        return ChannelFile(file_id, name, size, partial(self._download, web, url))

    async def _download(self, web: SlackApi, url: str) -> bytes:
        """Fetch a file; the token goes nowhere but to Slack."""
        session = web.client.session
        if not _is_slacks(url, self._server.url) or session is None:
            raise ChannelFailed("only files that are stored in Slack can be fetched")
        headers = {"Authorization": f"Bearer {self._token(BOT)}"}
        content = bytearray()
        try:
            async with session.get(
                url, headers=headers, allow_redirects=False, proxy=web.client.proxy
            ) as reply:
                if reply.status != HTTPStatus.OK:
                    raise ChannelFailed("Slack does not give it out")
                async for piece in reply.content.iter_chunked(65_536):
                    content += piece
                    if len(content) > LARGEST_FILE:
                        raise ChannelFailed(f"a file has at most {LARGEST_FILE >> 20} MiB")
        except (aiohttp.ClientError, TimeoutError):
            raise ChannelFailed("it could not be fetched from Slack") from None
        return bytes(content)


async def _logged(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await work()
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

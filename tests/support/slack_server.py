"""A stand-in for Slack on loopback: its Web API, Socket Mode, files, and signed requests.

    slack = SlackStandIn(); await slack.start()
    slack.push("events_api", event)      an envelope to every app that is connected
    slack.calls                          what was asked of the Web API, in order
    slack.messages                       what each message says now, by its ts

Source: https://docs.slack.dev/apis/events-api/using-socket-mode, /apis/web-api/rate-limits.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

BOT_TOKEN = "xoxb-1-standin-bot-token"
APP_TOKEN = "xapp-1-standin-app-token"
SIGNING_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
BOT_USER, USER, CHANNEL, DIRECT = "U0BOT", "U0ADA", "C0WORK", "D0ADA"
TEAM, ENTERPRISE = "T0TEAM", "E0ORG"


class SlackStandIn:
    """Slack, as far as an intern's app sees it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.messages: dict[str, dict[str, Any]] = {}
        self.acknowledged: list[str] = []
        self.refuse: dict[str, list[tuple[int, dict[str, Any], dict[str, str]]]] = {}
        """Answers that a method gives before it works: status, body, headers."""
        self.files: dict[str, bytes] = {}
        self.users: dict[str, dict[str, Any]] = {}
        self.opened = 0
        """How often Socket Mode was asked for."""
        self._sockets: set[web.WebSocketResponse] = set()
        self._numbers = count(1)
        self._changed = asyncio.Condition()
        app = web.Application()
        app.router.add_route("*", "/api/{method}", self._call)
        app.router.add_get("/socket", self._socket)
        app.router.add_get("/files/{name}", self._file)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        self.origin = ""

    async def start(self) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.origin = f"http://{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    @property
    def api_url(self) -> str:
        return f"{self.origin}/api/"

    @property
    def texts(self) -> list[str]:
        return [each["text"] for each in self.messages.values()]

    def of(self, method: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.calls if name == method]

    # What Slack sends

    async def push(self, kind: str, payload: dict[str, Any], **more: Any) -> str:
        """Send an envelope once an app is connected; return its id."""
        envelope = f"envelope-{next(self._numbers)}"
        body = {"type": kind, "envelope_id": envelope, "payload": payload, **more}
        await self.send({**body, "accepts_response_payload": kind == "interactive"})
        return envelope

    async def send(self, message: dict[str, Any]) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(lambda: self._sockets)
        for each in list(self._sockets):
            await each.send_str(json.dumps(message))

    async def cut(self) -> None:
        """End every connection without a word."""
        for each in list(self._sockets):
            assert each._req is not None  # noqa: SLF001 - aiohttp hides it
            assert each._req.transport is not None  # noqa: SLF001 - the same
            each._req.transport.abort()  # noqa: SLF001 - the same

    async def until_connected(self, times: int) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self.opened >= times and self._sockets)

    # What it is asked

    async def _call(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        is_json = request.content_type == "application/json"
        fields = dict(await request.json() if is_json else await request.post() or request.query)
        self.calls.append((method, fields))
        for status, body, headers in self._refusals(method):
            return web.json_response(body, status=status, headers=headers)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if wanted not in {token, fields.get("token")}:
            return web.json_response({"ok": False, "error": "invalid_auth"})
        return web.json_response({"ok": True, **self._answer(method, fields)})

    def _refusals(self, method: str) -> list[tuple[int, dict[str, Any], dict[str, str]]]:
        planned = self.refuse.get(method)
        return [planned.pop(0)] if planned else []

    def _answer(self, method: str, fields: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "auth.test":
                return {"user_id": BOT_USER, "team_id": TEAM, "enterprise_id": ENTERPRISE}
            case "users.info":
                return {"user": {"id": fields["user"], **self.users.get(fields["user"], {})}}
            case "apps.connections.open":
                self.opened += 1
                return {"url": f"{self.origin.replace('http', 'ws', 1)}/socket"}
            case "chat.postMessage":
                ts = f"17{next(self._numbers):08}.000000"
                self.messages[ts] = fields
                return {"ts": ts, "channel": fields["channel"]}
            case "chat.update":
                self.messages[fields["ts"]] |= fields
                return {"ts": fields["ts"]}
            case _:
                return {}

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(json.dumps({"type": "hello", "num_connections": 1}))
        async with self._changed:
            self._sockets.add(socket)
            self._changed.notify_all()
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    self.acknowledged.append(json.loads(message.data)["envelope_id"])
        finally:
            self._sockets.discard(socket)
        return socket

    async def _file(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {BOT_TOKEN}":
            return web.Response(status=403)
        return web.Response(body=self.files[request.match_info["name"]])


@contextmanager
def serve_slack() -> Generator[tuple[SlackStandIn, Callable[[Coroutine[Any, Any, Any]], Any]]]:
    """Run one in a thread; yield it, and what runs a coroutine of its in there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def do(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    slack = SlackStandIn()
    do(slack.start())
    try:
        yield slack, do
    finally:
        do(slack.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


_ids: defaultdict[str, count[int]] = defaultdict(lambda: count(1))


def event(kind: str, text: str, **fields: Any) -> dict[str, Any]:
    """Return the payload of an event: a mention, or a direct message."""
    number = next(_ids["event"])
    where = {"channel": DIRECT, "channel_type": "im"} if kind == "message" else {"channel": CHANNEL}
    ts = f"16{number:08}.000100"
    about = {"type": kind, "user": USER, "text": text, "ts": ts, **where, **fields}
    outer = {"type": "event_callback", "event_id": f"Ev{number}", "team_id": TEAM}
    return {**outer, "event": about}


def press(
    message: tuple[str, dict[str, Any]], label: str, *, user: str = USER, **values: Any
) -> dict[str, Any]:
    """Return the payload of a button of a message that somebody presses, and a form's values."""
    ts, sent = message
    buttons = [each for block in sent["blocks"] for each in block.get("elements", [])]
    (button,) = (each for each in buttons if each["text"]["text"] == label)
    return {
        "type": "block_actions",
        "trigger_id": f"{next(_ids['press'])}.0.abc",
        "team": {"id": TEAM},
        "user": {"id": user, "team_id": TEAM},
        "channel": {"id": sent["channel"]},
        "message": {"ts": ts, "thread_ts": sent["thread_ts"], "text": sent["text"]},
        "actions": [{name: button[name] for name in ("action_id", "value")}],
        "state": {"values": values},
    }

"""A fake of the gateway's chat with interns: it streams what a test scripts and runs no agent.

with run_fake_chat_gateway() as gateway:
    gateway.script(stream("Hello."), refusal(409, "busy", retry_after=1))
    ... a client asks twice ...
    gateway.requests[0]["messages"]

Each request for a chat gets the next reply of those that are to be played. One intern is there,
`ada`. What clients make of the real gateway is tested where one runs.
"""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tollhouse.kernel.ids import RandomIds

KEY = "sk-th-v1-a-key-of-the-stand-in"
SECONDS = 30
ADA = {"id": "283d7485-3786-4ce7-a204-22956e9a99c5", "name": "ada", "status": "running"}
USAGE = {
    "prompt_tokens": 1200,
    "completion_tokens": 34,
    "total_tokens": 1234,
    "cost": 0.00125,
    "prompt_tokens_details": {"cached_tokens": 1000},
}
KEEP_ALIVE = b": keepalive\n\n"
DONE = b"data: [DONE]\n\n"


class Disconnect:
    """Closes the connection at this point of a reply."""


class Hang:
    """Sends nothing more until the client hangs up."""


@dataclass(frozen=True)
class Reply:
    """The reply to one request."""

    status: int
    headers: dict[str, str]
    pieces: Sequence[type[Disconnect | Hang] | bytes]


@dataclass
class ChunkBuilder:
    """Makes the chunks of one reply."""

    id: str = field(default_factory=lambda: f"chatcmpl-{RandomIds().uuid()}")

    def chunk(self, choices: list[dict[str, Any]], **further: object) -> bytes:
        body = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": 1_764_000_000,
            "model": "openrouter/intern",
            "choices": choices,
            **further,
        }
        return b"data: " + json.dumps(body).encode() + b"\n\n"

    def delta(self, finish: str | None = None, **delta: object) -> bytes:
        return self.chunk([self.choice(finish, **delta)])

    @staticmethod
    def choice(finish: str | None, **delta: object) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "finish_reason": finish}


def reasoning(text: str) -> dict[str, str]:
    """Return a chunk of reasoning."""
    return {"reasoning": text}


def question(call_id: str, **arguments: object) -> dict[str, Any]:
    """Return the chunk with the intern's question."""
    function = {"name": "openrouter.provide_input", "arguments": json.dumps(arguments)}
    return {"index": 0, "id": call_id, "type": "function", "function": function}


def permission(
    call_id: str = "call-1",
    operation: str | None = "run: ls",
    options: Sequence[str] = ("allow_once", "allow_always", "reject_once", "reject_always"),
) -> dict[str, Any]:
    return question(call_id, kind="permission", operation=operation, options=options)


def form(
    call_id: str = "call-1", *fields: dict[str, Any], message: str = "Which?"
) -> dict[str, Any]:
    """Return a form; its fields are optional unless they say otherwise."""
    with_defaults = [{"required": False, **each} for each in fields]
    return question(call_id, kind="elicitation", message=message, fields=with_defaults)


def stream(
    *pieces: type[Disconnect | Hang] | str | dict[str, Any] | bytes,
    ask: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
    usage: dict[str, Any] | None = USAGE,
    session_id: str | None = "session-of-the-server",
) -> Reply:
    """A stream: texts become content chunks; bytes and the like are sent unchanged."""
    make = ChunkBuilder()
    out: list[type[Disconnect | Hang] | bytes] = [make.delta(role="assistant", content="")]
    for piece in pieces:
        match piece:
            case str():
                out.append(make.delta(content=piece))
            case dict():
                out.append(make.delta(**piece))
            case _:
                out.append(piece)
    finish = "tool_calls" if ask else "error" if error else "stop"
    if ask:
        out.append(make.delta(tool_calls=[ask]))
    out += [
        make.chunk([make.choice(finish)], **({"error": error} if error else {})),
        make.chunk([], session_id=session_id, usage=None if ask else usage),
        DONE,
    ]
    return Reply(200, {"Content-Type": "text/event-stream"}, out)


def error_body(code: int, reason: str, message: str, *, retryable: bool = False) -> dict[str, Any]:
    """Return the error of a run or of a refused request."""
    return {
        "code": code,
        "message": message,
        "metadata": {"reason": reason, "retryable": retryable},
    }


def refusal(
    status: int, reason: str, message: str = "No.", *, retry_after: int | None = None
) -> Reply:
    body = json.dumps({"error": error_body(status, reason, message)}).encode()
    headers = {"Content-Type": "application/json"}
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return Reply(status, headers, [body])


def steering_accepted(session_id: str = "session-of-the-server") -> Reply:
    body = json.dumps({"session_id": session_id, "status": "steered"}).encode()
    return Reply(202, {"Content-Type": "application/json"}, [body])


def raw(*pieces: bytes | type[Disconnect], content_type: str = "text/event-stream") -> Reply:
    return Reply(200, {"Content-Type": content_type}, pieces)


class FakeChatGateway:
    """The server, which runs in a thread."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        """Bodies of all chats."""
        self.hung_up = threading.Semaphore(0)
        """Released for each client that hangs up in the middle of a stream."""
        self._replies: list[Reply] = []
        self._port: Future[int] = Future()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port.result(SECONDS)}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """The environment with which a command reaches the server."""
        return {"TOLLHOUSE_BASE_URL": self.url, "TOLLHOUSE_API_KEY": KEY}

    def script(self, *replies: Reply) -> None:
        """Plan the replies to the next requests."""
        self._replies += replies

    def wait_for_hang_up(self) -> None:
        """Wait until one more client has hung up."""
        assert self.hung_up.acquire(timeout=SECONDS), "nobody hung up"

    @property
    def received_answers(self) -> list[str]:
        """The answers to the questions, in order."""
        last = [each["messages"][-1] for each in self.requests]
        return [each["content"] for each in last if each["role"] == "tool"]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(SECONDS)
        self._loop.close()

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/interns", self._list)
        app.router.add_post(f"/v1/interns/{ADA['id']}/chat/completions", self._chat)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._port.set_result(runner.addresses[0][1])
        await self._ended.wait()
        await runner.cleanup()

    async def _list(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            error = {"code": 401, "message": "Invalid API key."}
            return web.json_response({"error": error}, status=401)
        return web.json_response({"data": [ADA], "has_more": False})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        reply = self._replies.pop(0)
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        try:
            await response.prepare(request)
            for piece in reply.pieces:
                if piece is Disconnect:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                if piece is Hang:
                    await asyncio.Event().wait()
                elif isinstance(piece, bytes):
                    await response.write(piece)
        except (asyncio.CancelledError, ConnectionError):
            self.hung_up.release()
            raise
        return response


@contextmanager
def run_fake_chat_gateway() -> Iterator[FakeChatGateway]:
    stand_in = FakeChatGateway()
    stand_in.start()
    try:
        yield stand_in
    finally:
        stand_in.stop()

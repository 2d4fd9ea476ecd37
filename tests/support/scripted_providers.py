"""Providers that answer with given bytes, all on one port: the first part of a path says which.

with ScriptedProviders() as providers:
    providers.say("chat", stream({"choices": [...]}), reply({"error": "busy"}, 503))
    ...                               the first request gets the first, the last one repeats
    providers.asked("chat")           bodies of the requests
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Answer = bytes | Callable[[Any], bytes]
    """What is sent, or a function that makes it from the body of the request."""


def reply(
    body: object, status: int = 200, headers: Mapping[str, str] | None = None, *, raw: bool = False
) -> bytes:
    """Return a whole response; a body of bytes is sent as it is."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "text/event-stream" if raw else "application/json"
    fields = {"content-type": kind, "content-length": str(len(data)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + data


def stream(*events: object, done: bool = True) -> bytes:
    """Return a response of events; those with a `type` have it as their name.

    A text is sent as it is, so that it can be what no encoder writes.
    """
    said = ""
    for each in events:
        if isinstance(each, dict) and "type" in each:
            said += f"event: {each['type']}\n"
        said += f"data: {each if isinstance(each, str) else json.dumps(each)}\n\n"
    return reply((said + "data: [DONE]\n\n" * done).encode(), raw=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        provider = self.path.split("/")[1]
        self.server.seen.append((provider, json.loads(body)))
        key = self.headers["x-api-key"] or self.headers["authorization"] or ""
        self.server.shown.append((provider, key.removeprefix("Bearer ")))
        script = self.server.scripts[provider]
        answer = script.pop(0) if len(script) > 1 else script[0]
        self.wfile.write(answer if isinstance(answer, bytes) else answer(self.server.seen[-1][1]))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scripts: dict[str, list[Answer]] = {}
        self.seen: list[tuple[str, Any]] = []
        self.shown: list[tuple[str, str]] = []


class ScriptedProviders:
    """The port, the scripts and what was asked."""

    def __init__(self) -> None:
        self._server = _Server()
        self.silent = socket.create_server(("127.0.0.1", 0))
        """Takes connections, and never says anything on them."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def say(self, provider: str, *replies: Answer) -> None:
        """Set what a provider answers from now on, and forget what it was asked."""
        self._server.scripts[provider] = list(replies)
        for seen in (self._server.seen, self._server.shown):
            seen[:] = [each for each in seen if each[0] != provider]

    def asked(self, provider: str) -> list[Any]:
        """Return the bodies of the requests to a provider."""
        return [body for name, body in self._server.seen if name == provider]

    def shown(self, *providers: str) -> list[tuple[str, str]]:
        """Return some providers and the keys that they were shown, in the order of asking."""
        return [each for each in self._server.shown if each[0] in providers]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.silent.close()
        self._thread.join()

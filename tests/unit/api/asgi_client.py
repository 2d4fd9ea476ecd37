"""Calls an ASGI application in the test's own loop, as a server does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.seams.api import ON_GONE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    App = Callable[..., Awaitable[None]]


@dataclass
class Answer:
    """The response so far."""

    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def status(self) -> int:
        status: int = self.messages[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    @property
    def whole(self) -> bool:
        return len(self.messages) > 1 and not self.messages[-1].get("more_body", False)

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """A client's connection for one request."""

    answer: Answer = field(default_factory=Answer)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    body: bytes | None = b""
    scope: dict[str, Any] = field(default_factory=dict)

    def leave(self) -> None:
        """Disconnect, as the server reports it to the route."""
        self.left.set()
        if (gone := self.scope.get(ON_GONE)) is not None:
            gone()

    async def receive(self) -> dict[str, Any]:
        if self.body is not None:
            body, self.body = self.body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self.answer.messages.append(message)


def scope(
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    peer: str | None = "203.0.113.9",
) -> dict[str, Any]:
    """Return the scope of a request."""
    fields = {"host": "gw.example", **(headers or {})}
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "scheme": "http",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in fields.items()],
        "client": None if peer is None else (peer, 1234),
        "query_string": b"",
    }


async def call(
    app: App,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    *,
    body: bytes = b"",
    peer: str | None = "203.0.113.9",
) -> Answer:
    """Send a request and return its answer."""
    client = Client(body=body)
    await app(scope(method, path, headers, peer), client.receive, client.send)
    return client.answer

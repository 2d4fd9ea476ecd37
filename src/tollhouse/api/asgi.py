"""The words of ASGI that the gate and the hot routes use.

Source: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ON_GONE = "tollhouse.on_gone"
"""The key of the scope under which a route leaves what is called once the client hangs up.

ASGI's own way is a task that waits in `receive`, and costs a tenth of a relayed request.
"""

JSON = (b"content-type", b"application/json")


async def respond(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    """Send a whole response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})

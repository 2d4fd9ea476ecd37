"""Records every chat that a gateway streams, so that all of them are checked.

    gateway ──> tee ──> client
                 └──> ChatTee.streams

    tee = ChatTee(app)                                 around a gateway in this process
    python tests/support/chat_tee.py FILE serve ...   `tollhouse serve`, its chats to FILE

Recorded is what the gateway has sent; the client may have left before it arrived.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tollhouse.api.request_gate import RequestGate
from tollhouse.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.api.asgi import App, Message, Receive, Scope, Send

_CHAT: Final = re.compile(r"/v1/interns/[^/]+/chat/completions")


class RecordedStream(NamedTuple):
    """A recorded stream."""

    data: bytes
    ended: bool
    """Whether the gateway has ended it."""
    client_left: bool
    """Whether the client left before that, or did not read."""

    def as_line(self) -> str:
        return json.dumps([self.data.decode("latin-1"), self.ended, self.client_left]) + "\n"

    @classmethod
    def from_line(cls, line: str) -> RecordedStream:
        data, ended, left = json.loads(line)
        return cls(data.encode("latin-1"), ended, left)


class ChatTee:
    """An ASGI application that wraps the gateway and records its chats."""

    def __init__(self, app: App, keep: Callable[[RecordedStream], object] | None = None) -> None:
        """Wrap the gateway; streams go to `keep`, or else to `streams`."""
        self._app = app
        self.streams: list[RecordedStream] = []
        self._keep = keep or self.streams.append

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and _CHAT.fullmatch(scope["path"]):
            await _RecordedChat(receive, send).run(self._app, scope, self._keep)
        else:
            await self._app(scope, receive, send)


class _RecordedChat:
    """Records one chat request."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._streams = False
        self._data = b""
        self._ended = False
        self._left = False

    async def run(self, app: App, scope: Scope, keep: Callable[[RecordedStream], object]) -> None:
        try:
            await app(scope, self._take, self._give)
        except BaseException:
            self._left = True  # the server ends, and all that it streams
            raise
        finally:
            if self._streams:
                keep(RecordedStream(self._data, self._ended, self._left))

    async def _take(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self._ended:
            self._left = True
        return message

    async def _give(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kinds: list[Any] = [
                value for name, value in message["headers"] if name == b"content-type"
            ]
            self._streams = bool(kinds) and kinds[0].startswith(b"text/event-stream")
        else:
            self._data += message.get("body", b"")
            self._ended = not message.get("more_body", False)
        try:
            await self._send(message)
        except BaseException:
            self._left = True  # nobody reads
            raise


def _serve(file: Path) -> None:
    """Run the program, and append a line to a file for each stream."""
    answer = RequestGate.__call__

    def keep(recorded: RecordedStream) -> None:
        with file.open("a") as lines:
            lines.write(recorded.as_line())

    async def record(front: RequestGate, scope: Scope, receive: Receive, send: Send) -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await answer(front, scope, receive, send)

        await ChatTee(app, keep)(scope, receive, send)

    RequestGate.__call__ = record
    sys.exit(main())


if __name__ == "__main__":
    _, chosen, *arguments = sys.argv
    sys.argv = ["tollhouse", *arguments]
    _serve(Path(chosen))

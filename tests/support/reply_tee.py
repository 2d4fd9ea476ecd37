"""Records the inference replies of the tests' gateways, to be parsed by the official libraries.

    gateway ──> tee ──> client
                 └──> FOLDER/<process>, a line for each reply unlike the ones before

    install()                                      in this process
    python tests/support/reply_tee.py serve --json ...     `tollhouse serve`

The environment names the folder; without it nothing is recorded. At the end of a run
`reply_validation` has the replies parsed by the libraries of their formats.
"""

from __future__ import annotations

import json
import os
import re
import sys
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tollhouse.api.exchange import Exchange
from tollhouse.api.hot_routes import Inference
from tollhouse.api.request_rules import api_path
from tollhouse.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.api.asgi import Message, Receive, Scope, Send

FOLDER: Final = "TOLLHOUSE_TEST_REPLIES"
_MOST_BYTES: Final = 8 << 20
"""The largest reply that is recorded: OpenAI's types take a minute to parse one of 20 MB."""
_CHANGING: Final = re.compile(rb"[0-9]+|gen-[\w-]+")
"""What differs between equal replies: counts, times and ids."""


class ReplyFile:
    """The file with one process's replies."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / str(os.getpid())
        self._known: set[int] = set()

    def keep(self, path: str, data: bytes, *, streams: bool) -> None:
        if len(data) > _MOST_BYTES:
            return
        alike = hash((path, _CHANGING.sub(b"0", data)))
        if alike in self._known:
            return
        self._known.add(alike)
        line = json.dumps({"path": path, "streams": streams, "body": data.decode()})
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(line + "\n")


def install() -> None:
    """Record the replies of this process's gateways, where the environment names a folder."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    replies = ReplyFile(Path(folder))
    answer = Inference.__call__

    async def record(
        route: Inference, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        given: list[bytes] = []
        kinds: list[bytes] = []

        async def give(message: Message) -> None:
            if message["type"] == "http.response.start":
                kinds.extend(value for name, value in message["headers"] if name == b"content-type")
            else:
                given.append(message.get("body", b""))
            await send(message)

        try:
            await answer(route, scope, headers, receive, give)
        finally:
            if data := b"".join(given):
                path = api_path(scope["path"]) or ""
                replies.keep(
                    path.removeprefix("/"), data, streams=kinds[0].startswith(b"text/event-stream")
                )

    Inference.__call__ = record
    _record_exchanges(replies)


def _record_exchanges(replies: ReplyFile) -> None:
    """Record the replies that go straight to a connection."""
    streams: dict[Exchange, list[bytes]] = {}
    respond, write, finish = Exchange.respond, Exchange.write, Exchange.finish

    def keep(exchange: Exchange, body: bytes, *, is_stream: bool) -> None:
        path = api_path(exchange.path) or ""
        replies.keep(path.removeprefix("/"), body, streams=is_stream)

    def record(exchange: Exchange, status: int, headers: Any, body: bytes) -> None:
        if exchange.accepted is not None and status == HTTPStatus.OK:
            keep(exchange, body, is_stream=False)
        respond(exchange, status, headers, body)

    def record_piece(exchange: Exchange, data: bytes) -> bool:
        if exchange.accepted is not None:
            streams.setdefault(exchange, []).append(data)
        return write(exchange, data)

    def record_end(exchange: Exchange, data: bytes = b"") -> None:
        if exchange.accepted is not None:
            keep(exchange, b"".join([*streams.pop(exchange, ()), data]), is_stream=True)
        finish(exchange, data)

    Exchange.respond = record
    Exchange.write = record_piece
    Exchange.finish = record_end


if __name__ == "__main__":
    install()
    sys.argv[0] = "tollhouse"
    sys.exit(main())

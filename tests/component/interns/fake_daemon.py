"""A fake daemon whose responses to prompts are scripts, valid and invalid ones.

    daemon.answers = [[*stream(("text", {"text": "Hello"}), ENDED)]]

An answer is a list of steps: bytes are written, a number is a pause in seconds, DISCONNECT ends the
connection, HOLD waits until the other side has left. What is asked is kept in `asked`.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Any, Final
from urllib.parse import unquote

DISCONNECT: Final = "cut"
HOLD: Final = "hold"
Step = bytes | float | str
RUN: Final = {"run": "run-1"}
STREAM: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
STARTED: Final = ("run.started", {"input": "x", "approval_mode": "self-drive", "model": "a/b"})
USAGE: Final = {"input_tokens": 3, "cached_tokens": 1, "output_tokens": 2, "cost": "0.000005"}
ENDED: Final = ("run.ended", {"outcome": "completed", "usage": USAGE})
PERMISSION: Final = (
    "question",
    {
        "interaction": "ask-1",
        "expires_at": "2026-01-31T12:05:00.000Z",
        "permission": {
            "kind": "permission",
            "operation": "rm -r build",
            "options": ["allow_once", "allow_always", "reject_once", "reject_always"],
        },
    },
)
ANSWERED: Final = ("answered", {"interaction": "ask-1", "outcome": "allow_once", "model": "c/d"})
"""The answer to a question, after which the run continues with another model."""
ELICITATION: Final = (
    "question",
    {
        "interaction": "ask-2",
        "expires_at": "2026-01-31T12:05:00.000Z",
        "elicitation": {
            "kind": "elicitation",
            "message": "Which city?",
            "fields": [
                {"name": "city", "type": "string", "required": True, "options": ["Bern", "Oslo"]}
            ],
        },
    },
)


@dataclass(frozen=True)
class ReceivedRequest:
    """A request that the daemon received."""

    path: str
    session: str
    body: dict[str, Any]
    head: bytes


def event(kind: str, data: dict[str, Any], number: int) -> bytes:
    text = json.dumps({**RUN, **data})
    return f"id: {number}\nevent: {kind}\ndata: {text}\n\n".encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(*events: tuple[str, dict[str, Any]], first: int = 1) -> list[Step]:
    sent = [chunk(event(kind, data, first + place)) for place, (kind, data) in enumerate(events)]
    return [STREAM, *sent, chunk(b"")]


def json_response(status: int, body: Any, *headers: str) -> list[Step]:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = (
        f"HTTP/1.1 {status} Something",
        "Content-Type: application/json",
        f"Content-Length: {len(sent)}",
        "Connection: close",
        *headers,
    )
    return ["".join(f"{line}\r\n" for line in (*lines, "")).encode() + sent]


def error_response(status: int, reason: str | None, **more: Any) -> list[Step]:
    error = {"code": status, "message": "No.", **({"reason": reason} if reason else {}), **more}
    return json_response(status, {"error": error})


STEERED: Final = json_response(202, {"status": "steered", "run": "run-1"})


class FakeDaemon:
    """Plays the scripted responses in turn, and repeats the last one."""

    def __init__(self) -> None:
        self.answers: list[Sequence[Step]] = [stream(STARTED, ("text", {"text": "Hi"}), ENDED)]
        self.asked: list[ReceivedRequest] = []
        self.uploads: dict[str, bytes] = {}
        """Files that were written, by their paths."""
        self.token_hashes: list[tuple[str, str]] = []
        """The expected and the received hash of each request's token."""
        self.left = asyncio.Event()
        """Set once the client has left while a response was held."""
        self.on_asked: Callable[[], None] = lambda: None
        self._numbers = count()

    async def answer(
        self,
        head: bytes,
        token_hash: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Read the rest of a request, and play the next response."""
        lines = head.decode().split("\r\n")
        fields = {
            name.lower(): value for name, _, value in (each.partition(": ") for each in lines)
        }
        body = await reader.readexactly(int(fields["content-length"]))
        method, path, _ = lines[0].split(" ")
        if method == "PUT":
            self.uploads[path] = body
            writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
            return
        _, _, session, _ = path.split("/")
        self.asked.append(ReceivedRequest(path, unquote(session), json.loads(body), head))
        sent = fields["authorization"].removeprefix("Bearer ")
        self.token_hashes.append((token_hash, sha256(sent.encode()).hexdigest()))
        self.on_asked()
        steps = self.answers[min(next(self._numbers), len(self.answers) - 1)]
        await self._play(steps, reader, writer)

    def script(self, *answers: Sequence[Step]) -> None:
        self.answers = list(answers)
        self._numbers = count()

    async def _play(
        self, steps: Sequence[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for step in steps:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif step == DISCONNECT:
                writer.transport.abort()
            else:
                await reader.read()  # its end
                self.left.set()

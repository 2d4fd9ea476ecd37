"""A client that returns the exact bytes of a response, and whether it was complete."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

MOST_SECONDS = 60.0


@dataclass
class Answer:
    """The received part of one response."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False
    """Whether the body ended as its framing promised."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        """The data of a stream's events."""
        text = self.body.decode()
        return [part.removeprefix("data: ") for part in text.split("\n\n") if part]

    @property
    def generation_id(self) -> str:
        return self.headers["x-generation-id"]


def chat(model: str, *, stream: bool, text: str = "one two three four five") -> bytes:
    """Return the body of a chat request."""
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": model, "stream": stream, "messages": messages}).encode()


async def post_chat(base_url: str, key: str, body: bytes, *, read_events: int = -1) -> Answer:
    """Send a chat request on a connection of its own.

    Args:
        base_url: The gateway's address, ending in `/v1`.
        key: The API key.
        body: The request's body.
        read_events: Hang up after so many pieces of the body; negative reads to the end.

    Returns:
        What arrived; a connection that breaks leaves it as it was.
    """
    url = urlsplit(base_url)
    answer = Answer()
    async with asyncio.timeout(MOST_SECONDS):
        try:
            reader, writer = await asyncio.open_connection(url.hostname, url.port)
        except OSError:
            return answer
        try:
            head = (
                f"POST {url.path}/chat/completions HTTP/1.1\r\nhost: {url.netloc}\r\n"
                f"authorization: Bearer {key}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await _read(reader, answer, read_events)
        except (OSError, asyncio.IncompleteReadError):
            answer.whole = False
        finally:
            writer.transport.abort()
    return answer


async def _read(reader: asyncio.StreamReader, answer: Answer, read_events: int) -> None:
    status_line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    answer.status = int(status_line.split()[1])
    for line in filter(None, fields):
        name, _, value = line.partition(":")
        answer.headers[name.lower()] = value.strip()
    if "content-length" in answer.headers:
        answer.body = await reader.readexactly(int(answer.headers["content-length"]))
        answer.whole = True
        return
    while read_events:
        size = int(await reader.readuntil(b"\r\n"), 16)
        piece = await reader.readexactly(size + 2)
        if not size:
            answer.whole = True
            return
        answer.body += piece[:-2]
        read_events -= 1

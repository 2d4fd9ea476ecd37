"""The OpenAI stub on the running loop, and a client on plain sockets."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.providers.openai_upstream import OpenAIUpstream, start_openai_upstream


@dataclass
class Answer:
    """A response, as received."""

    status: int
    headers: dict[str, str]
    body: bytes
    """The body without chunk framing."""
    ended: bool
    """Whether the framing ended, so that the body is complete."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The decoded events, `[DONE]` unchanged; comments are left out."""
        lines = self.body.decode().replace("\r\n", "\n").split("\n")
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [item if item == "[DONE]" else json.loads(item) for item in data]

    @property
    def text(self) -> str:
        """The streamed content."""
        deltas = [choice["delta"] for e in self.events if e != "[DONE]" for choice in e["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, model: str, text: str = "one two three", **fields: object) -> None:
        messages = [{"role": "user", "content": text}]
        self.send_body({"model": model, "messages": messages} | fields)

    def send_body(self, body: object) -> None:
        self.send_to("/v1/chat/completions", body, {})

    def send_to(self, path: str, body: object, headers: dict[str, str]) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = {"Host": "x", "Content-Length": str(len(data)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.writer.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + data)

    def get(self, path: str, method: str = "GET") -> None:
        self.writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    async def answer(self) -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.rstrip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in pairs}
        read = self._chunks if "transfer-encoding" in headers else self._counted
        body, ended = await read(headers)
        return Answer(int(first.split(" ")[1]), headers, body, ended)

    async def _counted(self, headers: dict[str, str]) -> tuple[bytes, bool]:
        try:
            return await self.reader.readexactly(int(headers["content-length"])), True
        except asyncio.IncompleteReadError as error:
            return error.partial, False

    async def _chunks(self, _headers: dict[str, str]) -> tuple[bytes, bool]:
        body = b""
        try:
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readexactly(2)
        except asyncio.IncompleteReadError as error:
            return body + error.partial, False
        return body, True

    async def ask(self, model: str, text: str = "one two three", **fields: object) -> Answer:
        self.send(model, text, **fields)
        return await self.answer()

    async def stream(self, model: str, text: str = "one two three", **fields: object) -> Answer:
        return await self.ask(model, text, **{"stream": True, **fields})

    async def read_to_end(self) -> None:
        while await self.reader.read(1000):
            pass

    async def is_at_end(self) -> bool:
        return await self.reader.read(1) == b""


@pytest.fixture
async def openai() -> AsyncIterator[OpenAIUpstream]:
    async with start_openai_upstream() as upstream:
        yield upstream


@pytest.fixture
async def caller(openai: OpenAIUpstream) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", openai.port)
    yield Caller(reader, writer)
    writer.close()


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.001)

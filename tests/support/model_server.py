"""A fake model on loopback that plays scripted turns.

    model.turns = [says("Hello.", call("shell", command="true")), says("Done.")]

Each request takes the next turn. What was asked is in `requests`.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from tests.component.sandbox.daemon.daemon_process import SECONDS

MODEL = "simulated/agent"
COST = 5e-06


class ModelResponse:
    """A response that is being written."""

    def __init__(self, number: int, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self._writer = writer
        self._calls = 0

    async def begin(self, status: int = 200, kind: str = "text/event-stream") -> None:
        head = f"HTTP/1.1 {status} Status\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
        await self.write(head.encode())

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def chunk(self, delta: dict[str, Any], finish: str | None = None) -> None:
        await self._send([{"index": 0, "delta": delta, "finish_reason": finish}])

    async def tool_call(self, name: str, arguments: object, identity: str | None = None) -> None:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": name, "arguments": text}
        identity = identity or f"call_{self.number}_{self._calls}"
        part = {"index": self._calls, "id": identity, "type": "function", "function": function}
        self._calls += 1
        await self.chunk({"tool_calls": [part]})

    def disconnect(self) -> None:
        self._writer.transport.abort()

    async def finish(self) -> None:
        await self.chunk({}, "tool_calls" if self._calls else "stop")
        await self._send([], usage=USAGE)
        await self.write(b"data: [DONE]\n\n")

    async def _send(self, choices: list[Any], **more: object) -> None:
        told = {"id": "gen", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        data = json.dumps({**told, "choices": choices, **more})
        await self.write(f"data: {data}\n\n".encode())


USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 3,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 4},
    "cost": COST,
    "is_byok": False,
    "cost_details": {"upstream_inference_cost": COST},
}
Turn: TypeAlias = Callable[[ModelResponse], Awaitable[None]]


class FakeModel:
    """A model server with scripted turns."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.always: Turn | None = None
        """The turn to play when none is left."""
        self.requests: list[dict[str, Any]] = []
        self.secrets: list[dict[str, Any]] | None = None
        """The gateway's list of secrets; None to refuse it."""
        self.left = 0
        """Clients that left during a response."""
        self.url = ""

    def reset(self) -> None:
        """Reset the state for another test."""
        self.turns, self.always, self.requests, self.left = [], None, [], 0
        self.secrets = None

    def messages(self, request: int = -1) -> list[dict[str, Any]]:
        """Return the messages to the model, without its instructions."""
        told = self.requests[request]["messages"]
        return [message for message in told if message["role"] != "system"]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET "):
                await self._tell_secrets(ModelResponse(0, writer))
                return
            (size,) = (
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            )
            self.requests.append(json.loads(await reader.readexactly(size)))
            turn = self.turns.pop(0) if self.turns else self.always
            assert turn is not None, "the model was asked once more than the test says"
            saying = asyncio.ensure_future(turn(ModelResponse(len(self.requests), writer)))
            leaving = asyncio.ensure_future(reader.read())
            await asyncio.wait({saying, leaving}, return_when=asyncio.FIRST_COMPLETED)
            self.left += not saying.done()
            saying.cancel()
            leaving.cancel()
            await asyncio.gather(saying, leaving, return_exceptions=True)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left += 1
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _tell_secrets(self, answer: ModelResponse) -> None:
        if self.secrets is None:
            await answer.begin(404, kind="application/json")
        else:
            await answer.begin(kind="application/json")
            await answer.write(json.dumps({"data": self.secrets, "has_more": False}).encode())


@contextmanager
def run_model() -> Iterator[FakeModel]:
    """Run the server in a thread, so that several tests can share it."""
    model = FakeModel()
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(model.serve, "127.0.0.1", 0, limit=2**26))
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def end() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    try:
        yield model
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def says(*parts: str | tuple[str, object]) -> Turn:
    """Return a turn with texts and tool calls."""

    async def turn(answer: ModelResponse) -> None:
        await answer.begin()
        await answer.chunk({"role": "assistant", "content": ""})
        for part in parts:
            if isinstance(part, str):
                await answer.chunk({"content": part})
            else:
                await answer.tool_call(*part)
        await answer.finish()

    return turn


def once(may_answer: threading.Event, turn: Turn) -> Turn:
    """Return a turn that waits until the test allows it."""

    async def later(answer: ModelResponse) -> None:
        async with asyncio.timeout(SECONDS):
            while not may_answer.is_set():
                await asyncio.sleep(0.005)
        await turn(answer)

    return later


def call(tool: str, /, **arguments: object) -> tuple[str, object]:
    return tool, arguments


def refuses(status: int, message: str, **headers: str) -> Turn:
    """Return a turn that fails with an error of the gateway."""

    async def turn(answer: ModelResponse) -> None:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        await answer.begin(status, f"application/json\r\n{lines}X-More: no")
        error = {"code": status, "message": message, "metadata": {"limit_source": "test"}}
        await answer.write(json.dumps({"error": error}).encode())

    return turn


def sends(data: bytes, kind: str = "text/event-stream") -> Turn:
    """Return a turn that sends given bytes."""

    async def turn(answer: ModelResponse) -> None:
        await answer.begin(kind=kind)
        await answer.write(data)

    return turn


def hangs(*texts: str) -> Turn:
    """Return a turn that says something and then hangs."""

    async def turn(answer: ModelResponse) -> None:
        await answer.begin()
        for text in texts:
            await answer.chunk({"content": text})
        await asyncio.Event().wait()

    return turn

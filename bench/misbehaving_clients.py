"""Misbehaving clients: they hang up, send unknown keys, or request unknown models.

    python -m bench.misbehaving_clients --port N --model M --key K --prefix "" --seconds 60 --rate 5

It prints `{"rude": N}`, how often it did, and fails where the gateway answers otherwise than it
should.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from itertools import cycle
from typing import TYPE_CHECKING, Final

from bench.formats.chat import PATH, request_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_READ = 65_536


def _request(port: int, key: str, body: bytes) -> bytes:
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class MisbehavingClients:
    """Misbehaves in turn, each time on a connection of its own."""

    def __init__(self, port: int, model: str, key: str) -> None:
        self._port = port
        self._model = model
        self._key = key
        self.actions: Final[tuple[Callable[[], Awaitable[None]], ...]] = (
            self.hang_up_in_mid_stream,
            self.hang_up_at_once,
            self.hang_up_in_mid_request,
            self.come_without_a_key,
            self.ask_for_what_is_not_there,
        )

    async def hang_up_in_mid_stream(self) -> None:
        """Reset the connection once the stream has begun."""
        await self._exchange(self._polite(), b" 200 ")

    async def hang_up_at_once(self) -> None:
        """Reset the connection once the request has left."""
        await self._exchange(self._polite(), None)

    async def hang_up_in_mid_request(self) -> None:
        """Reset the connection before the request has left whole."""
        await self._exchange(self._polite()[:-100], None)

    async def come_without_a_key(self) -> None:
        """Send a key that nobody has."""
        body = request_body(self._model, stream=True)
        await self._exchange(_request(self._port, "sk-th-v1-none", body), b" 401 ")

    async def ask_for_what_is_not_there(self) -> None:
        """Ask for a model that nobody has."""
        body = request_body("bench/nothing", stream=True)
        await self._exchange(_request(self._port, self._key, body), b" 404 ")

    def _polite(self) -> bytes:
        return _request(self._port, self._key, request_body(self._model, stream=True))

    async def _exchange(self, request: bytes, wanted: bytes | None) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request)
            await writer.drain()
            if wanted is not None:
                line = (await reader.read(_READ)).split(b"\r\n", 1)[0]
                if wanted not in line:
                    message = f"wanted{wanted.decode()}and got {line[:40]!r}"
                    raise RuntimeError(message)
        finally:
            writer.transport.abort()


async def _run(options: argparse.Namespace) -> int:
    rude = MisbehavingClients(options.port, options.model, options.key)
    total = int(options.rate * options.seconds)
    for _, act in zip(range(total), cycle(rude.actions), strict=False):
        await act()
        await asyncio.sleep(1 / options.rate)
    return total


def main() -> None:
    """Send misbehaving requests for a while."""
    parser = argparse.ArgumentParser(prog="python -m bench.misbehaving_clients")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--rate", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    print(json.dumps({"rude": asyncio.run(_run(parser.parse_args()))}), flush=True)


if __name__ == "__main__":
    main()

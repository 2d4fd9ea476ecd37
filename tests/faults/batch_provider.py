"""A provider in a process of its own that counts how often each item of a batch comes.

It can kill who asks it, which a test cannot do at so exact a moment: when the n-th request from now
on has come, or when a certain item has. What it has not answered at that moment it writes down.

    python tests/faults/batch_provider.py
    {"port": 41223}

The first word of a chat's last message is the item's name. `x-worker` says which gateway asks.

    GET  /_seen      what came, what is open, and what was open at each kill
    POST /_set       {"seconds": 0.02}  how long an answer takes
                     {"slow": {"item-1": 3}}  how long that of an item takes
                     {"held": true}  nobody is answered until it is false again
                     {"poison": {"item-1": 4711}}  whose request kills which process
    POST /_kill      {"pid": 4711, "after": 10, "seconds": 0.01, "worker": "one"}  once ten requests
                     of that worker have come, and so long after the tenth; with {"hold": true}
                     nobody else is answered from then on
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from aiohttp import web

COST_NANO = 20_000
"""What a reply costs at a millionth of a credit for a token of input, and two for one of output."""
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
MODEL = "cutter/item"
CONFIG = """
providers:
  - slug: cutter
    name: Cutter
    kind: openai_compatible
    base_url: {origin}/v1
    headers: {{x-worker: {worker}}}
models:
  - id: {model}
    context_length: 100000
    endpoints:
      - {{provider: cutter, model: item, pricing: {{prompt: "0.000001", completion: "0.000002"}}}}
"""


class Provider:
    """The provider's server."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.open: Counter[str] = Counter()
        self.workers: Counter[str] = Counter()
        self.kills: list[dict[str, Any]] = []
        self.seconds = 0.02
        self.slow: dict[str, float] = {}
        self.poison: dict[str, int] = {}
        self._armed: dict[str, Any] | None = None
        self._answering = asyncio.Event()
        self._answering.set()

    async def chat(self, request: web.Request) -> web.Response:
        asked = await request.json()
        item = asked["messages"][-1]["content"].split(maxsplit=1)[0]
        worker = request.headers["x-worker"]
        self.calls[item] += 1
        self.workers[worker] += 1
        self.open[f"{worker} {item}"] += 1
        try:
            self._look_for_a_kill(item, worker)
            await asyncio.sleep(self.slow.get(item, self.seconds))
            await self._answering.wait()
        finally:
            self.open[f"{worker} {item}"] -= 1
        said = {"role": "assistant", "content": f"{item} is done"}
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "item"}
        return web.json_response({**reply, "choices": [choice], "usage": USAGE})

    async def seen(self, _request: web.Request) -> web.Response:
        seen = {"calls": self.calls, "workers": self.workers, "kills": self.kills}
        return web.json_response({**seen, "open": self._open()})

    async def set(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        self.seconds = wanted.get("seconds", self.seconds)
        self.slow = wanted.get("slow", self.slow)
        self.poison = wanted.get("poison", self.poison)
        if "held" in wanted:
            (self._answering.clear if wanted["held"] else self._answering.set)()
        return web.Response()

    async def arm(self, request: web.Request) -> web.Response:
        self._armed = await request.json()
        return web.Response()

    def _look_for_a_kill(self, item: str, worker: str) -> None:
        if item in self.poison:
            self._kill(self.poison[item], worker)
        armed = self._armed
        if armed is None or worker != armed["worker"]:
            return
        armed["after"] -= 1
        if armed["after"] <= 0:
            self._armed = None
            loop = asyncio.get_running_loop()
            loop.call_later(armed["seconds"], self._kill, armed["pid"], worker, armed["hold"])

    def _kill(self, pid: int, worker: str, hold: bool = False) -> None:  # noqa: FBT001, FBT002
        if hold:
            self._answering.clear()
        mine = [name for name in self._open() if name.startswith(f"{worker} ")]
        self.kills.append({"worker": worker, "open": len(mine)})
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _open(self) -> list[str]:
        return [name for name, count in self.open.items() if count]


async def serve() -> None:
    provider, app = Provider(), web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", provider.chat)
    app.router.add_get("/_seen", provider.seen)
    app.router.add_post("/_set", provider.set)
    app.router.add_post("/_kill", provider.arm)
    # Who was killed waits for nothing any more: what it asked for is not open then.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(json.dumps({"port": runner.addresses[0][1]}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


class BatchProvider:
    """The process, controlled by a test."""

    def __init__(self, port: int) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self._http = httpx2.Client(base_url=self.origin, timeout=30)

    def seen(self) -> dict[str, Any]:
        return self._http.get("/_seen").raise_for_status().json()

    @property
    def calls(self) -> dict[str, int]:
        """How often each item was received."""
        return self.seen()["calls"]

    def set(self, **wanted: Any) -> None:
        self._http.post("/_set", json=wanted).raise_for_status()

    def kill(
        self, pid: int, after: int, seconds: float = 0, worker: str = "one", *, hold: bool = False
    ) -> None:
        """Kill a process once so many more requests have come from it.

        Args:
            pid: The process.
            after: How many requests.
            seconds: How long after the last of them.
            worker: What the process calls itself.
            hold: Whether nobody else is answered from then on.
        """
        wanted = {"pid": pid, "after": after, "seconds": seconds, "worker": worker, "hold": hold}
        self._http.post("/_kill", json=wanted).raise_for_status()

    def config(self, worker: str = "one") -> str:
        """Return a gateway's configuration with this provider."""
        return CONFIG.format(origin=self.origin, worker=worker, model=MODEL)

    def close(self) -> None:
        self._http.close()


@contextmanager
def start_provider() -> Generator[BatchProvider]:
    """Run a provider until the end of the block."""
    command = [sys.executable, "-P", str(Path(__file__))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            provider = BatchProvider(json.loads(process.stdout.readline())["port"])
            yield provider
            provider.close()
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve())

"""SIGHUP, twice, under 50 requests a second: nothing fails or is cut, all is charged.

The requests come whatever becomes of those before; a third of them are streams of 50 pieces.
"""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.faults.ledger import Ledger, assert_consistent, verify
from tests.faults.raw_client import Answer
from tests.faults.stream_assertions import assert_legal
from tests.support.server_process import TOLLHOUSE, ServerProcess, start_server
from tests.support.upstream_process import UpstreamProcess
from tests.support.waiting import WAIT_SECONDS, until

RATE: Final = 50.0
"""Requests a second."""
RESTARTS: Final = 2
PAUSES: Final = (20, 40, 60)
"""Milliseconds between the pieces of a stream."""
PIECES: Final = 50
KINDS: Final = ("stream", "whole", "key", "stream", "whole", "whole")
MODELS: Final = {
    "cutter/echo": "echo",
    **{f"cutter/{each}": f"slow-chunks:{each}" for each in PAUSES},
}
NANO: Final = 10**9
_BOOKS: Final = "SELECT count(*), sum(cost_nano) FROM generations"

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


class Traffic:
    """Requests at a steady rate, on connections that are kept, and as many on new ones."""

    def __init__(self, server: ServerProcess) -> None:
        self.asked = 0
        self.failed: list[str] = []
        self.served: list[Answer] = []
        """What models have answered."""
        self.charged = 0
        """What the replies say that they cost, in nano-credits."""
        self._server = server

    @asynccontextmanager
    async def flowing(self) -> AsyncGenerator[None]:
        """Send requests during the block, and wait for their answers at its end."""
        over = asyncio.Event()
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    aiohttp.ClientSession(
                        headers=self._server.authorization,
                        connector=aiohttp.TCPConnector(limit=0, force_close=is_new),
                    )
                )
                for is_new in (False, True)
            ]
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send(clients, group, over))
                try:
                    yield
                finally:
                    over.set()

    async def _send(
        self, clients: list[aiohttp.ClientSession], group: asyncio.TaskGroup, over: asyncio.Event
    ) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        while not over.is_set():
            await asyncio.sleep(began + self.asked / RATE - now())
            turn, place = divmod(self.asked, len(KINDS))
            group.create_task(self._ask(clients[turn % 2], KINDS[place], self.asked))
            self.asked += 1

    async def _ask(self, client: aiohttp.ClientSession, kind: str, number: int) -> None:
        try:
            await self._answered(client, kind, PAUSES[number % len(PAUSES)])
        except (OSError, aiohttp.ClientError, AssertionError) as error:
            self.failed.append(f"{number} {kind}: {error!r}")

    async def _answered(self, client: aiohttp.ClientSession, kind: str, pause: int) -> None:
        """Send a request, check its answer to the last byte, and keep what it cost."""
        if kind == "key":
            async with client.get(f"{self._server.base_url}/key") as got:
                assert got.status == 200, await got.text()
                assert (await got.json())["data"]["label"]
            return
        body: dict[str, Any] = {
            "model": f"cutter/{pause if kind == 'stream' else 'echo'}",
            "messages": [{"role": "user", "content": "one two three four five"}],
            "stream": kind == "stream",
        }
        async with client.post(f"{self._server.base_url}/chat/completions", json=body) as got:
            headers = {name.lower(): value for name, value in got.headers.items()}
            answer = Answer(got.status, headers, await got.read(), whole=True)
        if kind == "stream":
            assert_legal(answer)
            events = [json.loads(each, parse_float=Decimal) for each in answer.events[:-1]]
            assert sum('"content"' in each for each in answer.events) >= PIECES
            last = events[-1]
        else:
            assert answer.status == 200, answer.body
            last = json.loads(answer.body, parse_float=Decimal)
        self.charged += int(last["usage"]["cost"] * NANO)
        self.served.append(answer)


async def restart(server: ServerProcess) -> None:
    """Replace every process, and return once that is done."""

    def replaced() -> int:
        return server.stderr_text().count('"event": "processes_replaced"')

    before = replaced()
    server.process.send_signal(signal.SIGHUP)
    await until(lambda: replaced() > before)


async def test_a_restart_under_a_steady_load_fails_nothing_and_charges_everything(
    upstream: UpstreamProcess, tmp_path: Path, ledger: Ledger
) -> None:
    server = start_server(
        tmp_path,
        config=upstream.config(MODELS),
        env=ledger.env,
        args=("--workers", "2"),
        program=(str(TOLLHOUSE),),
    )
    with server:
        traffic = Traffic(server)
        async with traffic.flowing():
            for _ in range(RESTARTS):
                asked = traffic.asked
                await until(lambda asked=asked: traffic.asked > asked + 2 * RATE)
                await restart(server)
            asked = traffic.asked
            await until(lambda: traffic.asked > asked + 2 * RATE)
        assert traffic.failed == []
        assert len(traffic.served) > traffic.asked / 2
        booked = 0
        async with asyncio.timeout(WAIT_SECONDS):
            while booked < len(traffic.served):
                await asyncio.sleep(0.1)
                [(booked, cost)] = await ledger.rows(_BOOKS)
        assert (booked, cost) == (len(traffic.served), traffic.charged)
        assert verify(server) == {"clean": True, "differences": []}
    await assert_consistent(ledger, traffic.served)

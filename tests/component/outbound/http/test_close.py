"""`close()` ends everything at once, and the client is not used again."""

import asyncio
import subprocess
import sys

import pytest

from tests.component.outbound.http.exchange import Exchange, at_once, plain_only
from tests.component.outbound.http.points import Begun
from tests.support.providers.byte_script import End
from tests.support.providers.raw_server import say
from tests.support.upstream_faults import COUNTED
from tests.support.waiting import until
from tollhouse.outbound.http.port import ClientClosed


async def test_at_any_point_an_exchange_ends_with_client_closed(begun: Begun) -> None:
    await until(begun.is_there)
    async with at_once():
        await begun.exchange.upstream.close()
        with pytest.raises(ClientClosed) as caught:
            await begun.task
        await begun.closed()
    assert caught.value.sent is begun.sent


async def test_a_stream_that_nobody_reads_ends_with_client_closed(exchange: Exchange) -> None:
    exchange.server.behave = say(COUNTED, b"half", End.HANG)
    response = await exchange.open()
    await exchange.upstream.close()
    with pytest.raises(ClientClosed):
        await response.read(10)


async def test_idle_connections_are_closed(exchange: Exchange) -> None:
    await exchange.is_healthy()
    async with at_once():
        await exchange.upstream.close()
        await exchange.peer.wait_closed()


async def test_a_closed_client_sends_nothing(exchange: Exchange) -> None:
    await exchange.upstream.close()
    with pytest.raises(ClientClosed) as caught:
        await exchange.read()
    assert not caught.value.sent
    assert not exchange.server.peers


@plain_only
async def test_a_client_may_be_closed_while_it_is_being_closed(exchange: Exchange) -> None:
    exchange.server.behave = say(End.HANG)
    sending = asyncio.create_task(exchange.read())
    await until(lambda: exchange.server.requests)
    closing: list[asyncio.Task[None]] = []
    for _ in range(10):
        closing.append(asyncio.create_task(exchange.upstream.close()))
        await asyncio.sleep(0)
    await asyncio.gather(*closing)
    with pytest.raises(ClientClosed):
        await sending


SHUTDOWN = """
import asyncio, contextlib, importlib, sys
from tollhouse.outbound.http.client import HttpUpstream
from tollhouse.outbound.http.port import UpstreamRequest
from tests.support.providers.raw_server import RawServer, say
from tests.support.providers.byte_script import End

HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Length: 10\\r\\n\\r\\n"

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60
    async with RawServer() as server:
        upstream = HttpUpstream()
        async def use(script, scheme="http"):
            server.behave = say(*script)
            url = server.url.replace("http", scheme)
            response = await upstream.send(UpstreamRequest("POST", url, (), b"{}"))
            await response.read(100)
        await use([HEAD, b"0123456789"])
        uses = [([End.HANG],), ([HEAD, End.HANG],), ([], "https")]
        tasks = []
        for arguments in uses:
            tasks.append(asyncio.create_task(use(*arguments)))
            await asyncio.sleep(0.1)
        tasks[0].cancel()
        await upstream.close()
        print([type(e).__name__ for e in await asyncio.gather(*tasks, return_exceptions=True)])

importlib.import_module(sys.argv[1]).run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_nothing_is_logged_or_warned_about_when_the_loop_ends(loop: str) -> None:
    options = ["-X", "dev", "-W", "error"]
    run = subprocess.run(
        [sys.executable, *options, "-c", SHUTDOWN, loop],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.stdout, run.stderr) == ("['CancelledError', 'ClientClosed', 'ClientClosed']\n", "")

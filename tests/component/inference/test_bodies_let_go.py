"""What a request leaves in memory once it is answered: no body of its own, and none of a reply.

Nothing here waits for the garbage collector. It runs rarely in a server whose objects live long,
so that a body in a cycle stays for minutes.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.providers.byte_script import End
from tests.support.providers.raw_server import RawServer, reply, say
from tests.support.seams.api import Inference, LargeBodies, RequestGate, Routes
from tests.support.seams.inference import FORMATS, Dialect, HttpProvider, Steps
from tests.unit.api.asgi_client import Client, scope
from tests.unit.inference.fakes import SUBJECT, PipelineFixture, steps
from tollhouse.outbound.http.client import HttpUpstream
from tollhouse.outbound.http.port import TimeLimits
from tollhouse.settings.sections import ServerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.support.providers.raw_server import Behaviour
    from tests.unit.api.asgi_client import App
    from tollhouse.outbound.http.port import Upstream

BODY = 300_000
"""Bytes of each request and of each reply."""
LARGEST_REPLY = 270_000
REQUESTS = 2
PATIENCE = {502: 5.0, 504: 0.03}
"""Seconds that a reply may pause, by the status that its failure has."""
PATH = "/v1/chat/completions"

_HALF = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * LARGEST_REPLY)
ANSWERS: dict[str, tuple[Behaviour, int]] = {
    "larger than the limit": (say(reply(b"x" * BODY)), 502),
    "cut in the body": (say(_HALF, b"x" * LARGEST_REPLY, End.RST), 502),
    "no reply": (say(_HALF, b"x" * LARGEST_REPLY, End.HANG), 504),
    "no head": (say(End.HANG), 504),
    "not of its format": (say(reply(b"[" + b"1," * 132_000 + b"1]")), 502),
    "refused": (say(reply(b'{"error":{"message":"no"}}', "400 Bad Request")), 400),
    "overloaded": (say(reply(b"", "503 Service Unavailable")), 503),
}


class _Authenticator:
    async def authenticate(self, _key: str) -> object:
        return SUBJECT


class _Gateway:
    """The gate, one route, the pipeline and a provider that is reached over a socket."""

    def __init__(self, server: RawServer, upstream: Upstream, patience: float) -> None:
        provider = HttpProvider(
            slug="acme",
            name="Acme",
            base_url=f"{server.url}v1",
            dialects=frozenset({Dialect.CHAT}),
            headers=(),
            upstream=upstream,
            limits=TimeLimits(head=patience, idle=patience),
            largest_reply=LARGEST_REPLY,
            on_disconnect="cancel",
        )
        # Two endpoints: what the first one's failure holds must go, too.
        fixture = PipelineFixture([provider, provider])  # type: ignore[list-item]
        settings = ServerSettings()
        hot = {
            PATH[3:]: Inference(
                FORMATS[PATH[3:]],
                fixture.pipeline,
                fixture.clock,
                settings,
                LargeBodies.of(settings, Steps()),
            )
        }
        routes = Routes(hot=hot, control=None, system=None)  # type: ignore[arg-type]
        self._front: App = RequestGate(
            routes, _Authenticator(), settings, fixture.clock, fixture.metrics
        )  # type: ignore[arg-type]

    async def ask(self, *, stream: bool) -> int:
        """Send a request; return its status."""
        said = [{"role": "user", "content": "x" * BODY}]
        body = {"model": "acme/large", "stream": stream, "messages": said}
        client = Client(body=json.dumps(body).encode())
        client.scope = scope("POST", PATH, {"authorization": "Bearer key"})
        await self._front(client.scope, client.receive, client.send)
        await steps()
        return client.answer.status


@asynccontextmanager
async def opened() -> AsyncGenerator[Upstream]:
    upstream = HttpUpstream()
    yield upstream
    await upstream.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("how", ANSWERS)
async def test_no_body_outlives_a_request_that_failed(how: str, *, stream: bool) -> None:
    behaviour, status = ANSWERS[how]
    if stream and how == "larger than the limit":
        behaviour = say(reply(b"data: " + b"x" * BODY))
    async with RawServer(ssl_context=None) as server, opened() as upstream:
        server.behave = behaviour
        gateway = _Gateway(server, upstream, PATIENCE.get(status, 5.0))
        await gateway.ask(stream=stream)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            answers = {await gateway.ask(stream=stream) for _ in range(REQUESTS)}
            for peer in server.peers:
                peer.transport.abort()
            server.peers.clear()
            await steps()
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
            gc.enable()
    assert answers == {status}
    assert held < REQUESTS * BODY / 2

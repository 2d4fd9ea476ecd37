"""The client under test, a scripted server (plain and TLS), and a check for leaks."""

import asyncio
import gc
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import trustme

from tests.component.outbound.http.callbacks import CallbackUpstream
from tests.component.outbound.http.exchange import Exchange, open_sockets
from tests.component.outbound.http.forward_proxy import ForwardProxy, forward_proxy
from tests.component.outbound.http.points import POINTS, Begun, begun_at
from tests.support.event_loops import loops_for
from tests.support.loop_time import LoopTime
from tests.support.providers.raw_server import RawServer
from tollhouse.outbound.http.client import HttpUpstream
from tollhouse.outbound.http.port import Upstream

MakeUpstream = Callable[..., Upstream]


def pytest_asyncio_loop_factories(
    item: pytest.Function,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Who embeds the client may run it on another loop than the server does."""
    return loops_for(item)


@pytest.fixture
async def loop_time(monkeypatch: pytest.MonkeyPatch) -> LoopTime:
    return LoopTime(monkeypatch)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)  # pyright: ignore[reportUnknownMemberType]
    return context


@pytest.fixture(scope="session")
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.configure_cert(context)  # pyright: ignore[reportUnknownMemberType]
    return context


@pytest.fixture(params=["plain", "tls"])
def transport(request: pytest.FixtureRequest) -> str:
    """A test with only one of the two parametrizes `transport` itself."""
    return request.param


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """Fail if a test leaves a socket or a task behind; set up first, torn down last."""
    before = open_sockets()
    yield
    deadline = time.monotonic() + 5
    while open_sockets() > before or len(asyncio.all_tasks()) > 1:
        assert time.monotonic() < deadline, (before, open_sockets(), asyncio.all_tasks())
        gc.collect()
        await asyncio.sleep(0.01)


@pytest.fixture
async def server(transport: str, server_tls: ssl.SSLContext) -> AsyncIterator[RawServer]:
    async with RawServer(ssl_context=server_tls if transport == "tls" else None) as server:
        yield server


@pytest.fixture
async def proxy() -> AsyncIterator[ForwardProxy]:
    async with forward_proxy() as proxy:
        yield proxy


@pytest.fixture
async def route(request: pytest.FixtureRequest) -> AsyncIterator[str | None]:
    """The proxy through which clients go, for tests that are marked `on_both_routes`."""
    if getattr(request, "param", "direct") == "direct":
        yield None
        return
    async with forward_proxy() as proxy:
        yield proxy.url


@pytest.fixture(params=["send", "start"])
def interface(request: pytest.FixtureRequest) -> str:
    """What the client is called with; a test of one of the two parametrizes `interface` itself."""
    return request.param


@pytest.fixture
async def make_upstream(
    route: str | None, interface: str, client_tls: ssl.SSLContext
) -> AsyncIterator[MakeUpstream]:
    made: list[Upstream] = []

    def make(**options: Any) -> Upstream:
        given: dict[str, Any] = {"ssl_context": client_tls, "proxy": route, **options}
        upstream = HttpUpstream(**given)
        made.append(upstream)
        return CallbackUpstream(upstream) if interface == "start" else upstream

    yield make
    for upstream in made:
        await upstream.close()


@pytest.fixture
def upstream(make_upstream: MakeUpstream) -> Upstream:
    return make_upstream()


@pytest.fixture
def exchange(upstream: Upstream, server: RawServer) -> Exchange:
    return Exchange(upstream, server)


@pytest.fixture
def limits() -> dict[str, float]:
    """The limits of the exchange that was begun; a test of one parametrizes them itself."""
    return {}


@pytest.fixture(params=POINTS)
async def begun(
    request: pytest.FixtureRequest,
    make_upstream: MakeUpstream,
    server: RawServer,
    limits: dict[str, float],
) -> AsyncIterator[Begun]:
    exchange = Exchange(make_upstream(connections_per_host=1), server)
    async with begun_at(request.param, exchange, **limits) as made:
        yield made

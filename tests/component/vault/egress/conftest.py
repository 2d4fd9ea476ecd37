"""A proxy with its hosts for each test; a leaked socket or task fails the test."""

import asyncio
import gc
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import trustme
import uvloop

from tests.component.vault.egress.egress_fixture import API, OTHER, SECOND, Client, EgressFixture
from tests.support.providers.raw_server import RawServer


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(API, OTHER, SECOND).configure_cert(context)
    return context


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """Fail if a test leaves a socket or a task behind; set up first, torn down last."""
    before = open_sockets()
    yield
    deadline = time.monotonic() + 10
    while open_sockets() > before or len(asyncio.all_tasks()) > 1:
        assert time.monotonic() < deadline, (before, open_sockets(), asyncio.all_tasks())
        gc.collect()
        await asyncio.sleep(0.01)


@pytest.fixture
async def egress(
    tmp_path: Path, authority: trustme.CA, server_tls: ssl.SSLContext
) -> AsyncIterator[EgressFixture]:
    async with (
        RawServer(ssl_context=server_tls) as api,
        RawServer(ssl_context=server_tls) as other,
        RawServer(ssl_context=server_tls) as second,
        RawServer() as gateway,
    ):
        hosts = {API: api, OTHER: other, SECOND: second}
        egress = EgressFixture(tmp_path, hosts, gateway, authority)
        await egress.open()
        yield egress
        await egress.close()


@pytest.fixture
async def client(egress: EgressFixture) -> Client:
    """A client in a tunnel to the host that has secrets."""
    return await egress.tunnel()


def open_sockets() -> int:
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            count += str(descriptor.readlink()).startswith("socket:")
        except OSError:
            continue  # the folder's own
    return count

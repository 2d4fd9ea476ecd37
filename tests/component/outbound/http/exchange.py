"""Exchanges between the client under test and the scripted server."""

import asyncio
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from tests.support.providers.raw_server import Peer, RawServer, echo
from tests.support.waiting import until
from tollhouse.outbound.http.port import (
    TimeLimits,
    Upstream,
    UpstreamError,
    UpstreamRequest,
    UpstreamResponse,
)

HEALTHY_REQUESTS = 20
READ_LIMIT = 1_000_000
PATIENT = TimeLimits(connect=30, pool=30, head=30, idle=30, total=30)
"""Limits that not even a busy machine reaches."""

SHORT = 0.1
"""The one limit that a test is about, in seconds."""

BRISK = 20.0
"""What counts as at once, in seconds, on a machine that may be very busy. Nothing else ends an
exchange before 30 seconds, so this is the difference that a test sees."""

plain_only = pytest.mark.parametrize("transport", ["plain"])
"""Marks tests of behaviour that cannot differ on TLS."""

on_both_routes = pytest.mark.parametrize("route", ["direct", "proxied"], indirect=True)
"""Marks tests that a proxy between the client and the server must not change."""

_numbers = count()


def post(url: str, body: bytes = b"{}", method: str = "POST", **limits: float) -> UpstreamRequest:
    fields = (("Content-Type", "application/json"), ("User-Agent", "tests"))
    return UpstreamRequest(method, url, fields, body, replace(PATIENT, **limits))


async def read(upstream: Upstream, request: UpstreamRequest, limit: int = READ_LIMIT) -> bytes:
    """Send a request and read the whole body."""
    response = await upstream.send(request)
    try:
        return await response.read(limit)
    finally:
        await response.close()


async def collect(response: UpstreamResponse, into: list[bytes]) -> None:
    async for piece in response.chunks():
        into.append(piece)  # noqa: PERF401 - the pieces before an error count, too


def open_sockets() -> int:
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            count += str(descriptor.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue
    return count


def at_once() -> asyncio.Timeout:
    """Return a context that fails if what is inside waits for one of the patient limits."""
    return asyncio.timeout(BRISK)


@dataclass
class Exchange:
    """A client under test and a scripted server."""

    upstream: Upstream
    server: RawServer

    def post(self, body: bytes = b"{}", method: str = "POST", **limits: float) -> UpstreamRequest:
        return post(self.server.url, body, method, **limits)

    async def open(self, body: bytes = b"{}", **limits: float) -> UpstreamResponse:
        """Send a request; the head of its response has come."""
        return await self.upstream.send(self.post(body, **limits))

    async def read(self, body: bytes = b"{}", **limits: float) -> bytes:
        return await read(self.upstream, self.post(body, **limits))

    async def stream(self, **limits: float) -> bytes:
        response = await self.open(**limits)
        got: list[bytes] = []
        try:
            await collect(response, got)
        finally:
            await response.close()
        return b"".join(got)

    async def fails(self, error: type[UpstreamError], **limits: float) -> UpstreamError:
        """Assert that an exchange fails with an error, and that the next ones succeed."""
        with pytest.raises(UpstreamError) as caught:
            await self.read(**limits)
        assert type(caught.value) is error, repr(caught.value)
        await self.is_healthy()
        return caught.value

    async def is_healthy(self, requests: int = HEALTHY_REQUESTS, connections: int = 1) -> None:
        """Assert that requests get their own replies and that no connection is left over."""
        self.server.behave = echo
        for _ in range(requests):
            body = b"healthy %d" % next(_numbers)
            assert await self.read(body) == body
        await until(lambda: len(self.server.open_peers) <= connections)

    @property
    def peer(self) -> Peer:
        """The latest connection."""
        return self.server.peers[-1]

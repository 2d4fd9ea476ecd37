"""What is sent through the proxy, from a process of its own.

python -m bench.egress.load PLAN

parent                      load
                            connects, and warms up
         <── {"ready": true}
"go"     ──>                does what the plan says
         <── {"seconds": ..., "p50_ms": ..., "p99_ms": ...}
(input)  ──>                ends
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from itertools import count, takewhile
from time import perf_counter
from typing import TYPE_CHECKING, Final

import msgspec
import uvloop

from bench.egress.client import Client, Route, UnexpectedResponse, body_request, connect, request
from bench.statistic import percentile
from tollhouse.apps.process import allow_open_files

if TYPE_CHECKING:
    from collections.abc import Iterable

WARMUP: Final = 20
"""Requests of each connection before the measured ones."""
_AT_ONCE: Final = 16
"""Tunnels that are opened at the same time."""
_PIECE: Final = bytes(262_144)


class Requests(msgspec.Struct, tag=True):
    """Small requests on connections that stay open."""

    route: Route
    host: str
    connections: int
    requests: int
    secret: bool


class NewHosts(msgspec.Struct, tag=True):
    """A connection to each of some hosts, one after the other."""

    route: Route
    hosts: list[str]


class Body(msgspec.Struct, tag=True):
    """One large body."""

    route: Route
    host: str
    size: int
    up: bool
    secret: bool


class Tunnels(msgspec.Struct, tag=True):
    """Many connections that stay open until the input ends."""

    route: Route
    hosts: list[str]


Plan = Requests | NewHosts | Body | Tunnels


class _Load:
    """Does what a plan says."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._context = ssl.create_default_context(cafile=plan.route.trust)
        self._context.set_alpn_protocols(["http/1.1"])
        self._clients: list[Client] = []
        self._times: list[float] = []

    async def prepare(self) -> None:
        match self._plan:
            case Requests(route, host, connections, _, secret):
                asked = request(route, host, secret=secret)
                self._clients = [await self._connect(host) for _ in range(connections)]
                for client in self._clients:
                    await self._ask(client, asked, range(WARMUP))
            case Body(route, host):
                self._clients = [await self._connect(host)]
                await self._clients[0].request(request(route, host, secret=False))
            case NewHosts() | Tunnels():
                pass
        self._times.clear()

    async def run(self) -> dict[str, float]:
        began = perf_counter()
        match self._plan:
            case Requests(route, host, _, requests, secret):
                asked = request(route, host, secret=secret)
                left = takewhile(lambda number: number < requests, count())
                await asyncio.gather(*(self._ask(each, asked, left) for each in self._clients))
            case NewHosts(_, hosts):
                for host in hosts:
                    await self._open(host)
            case Body(route, host, size, up, secret):
                began_with = body_request(route, host, size, up=up, secret=secret)
                await (self._up(began_with, size) if up else self._down(began_with, size))
            case Tunnels(_, hosts):
                left_hosts = iter(hosts)
                await asyncio.gather(*(self._open_all(left_hosts) for _ in range(_AT_ONCE)))
        return {
            "seconds": perf_counter() - began,
            "p50_ms": percentile(self._times, 50) * 1_000,
            "p99_ms": percentile(self._times, 99) * 1_000,
        }

    async def _connect(self, host: str) -> Client:
        return await connect(self._plan.route, host, self._context)

    async def _ask(self, client: Client, asked: bytes, turns: Iterable[int]) -> None:
        for _ in turns:
            began = perf_counter()
            await client.request(asked)
            self._times.append(perf_counter() - began)

    async def _open(self, host: str) -> Client:
        began = perf_counter()
        client = await self._connect(host)
        self._times.append(perf_counter() - began)
        self._clients.append(client)
        return client

    async def _open_all(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            client = await self._open(host)
            await client.request(request(self._plan.route, host, secret=False))

    async def _down(self, head: bytes, size: int) -> None:
        if (got := await self._clients[0].request(head)) != size:
            raise UnexpectedResponse(f"{got} bytes in place of {size}")

    async def _up(self, head: bytes, size: int) -> None:
        client, left = self._clients[0], size
        await client.send(head)
        while left:
            piece = _PIECE[:left]
            await client.send(piece)
            left -= len(piece)
        await client.answer()


async def _run(plan: Plan) -> None:
    load = _Load(plan)
    await load.prepare()
    print(json.dumps({"ready": True}), flush=True)
    # Nothing else runs on this loop now; an empty line is a parent that is gone.
    if not sys.stdin.readline():
        return
    print(json.dumps(await load.run()), flush=True)
    await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """Do what the command line says."""
    allow_open_files()
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(plan))


if __name__ == "__main__":
    main()

# ruff: noqa: SLF001 - private names are what this file is about
"""aiohttp does not promise to keep what `aiohttp_pool` touches; these fail when it changes.

Then look at `aiohttp_pool` again, and run `make soak`.
"""

import asyncio
import inspect
import socket
from collections.abc import Callable

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

from tollhouse.inference.upstream import aiohttp_pool
from tollhouse.inference.upstream.aiohttp_pool import TOUCHED, Pool, SlicedBody, Wire, WireRequest
from tollhouse.outbound.dialing import open_socket

SIGNATURES: dict[Callable[..., object], list[str]] = {
    aiohttp.TCPConnector.connect: ["self", "req", "traces", "timeout"],
    aiohttp.TCPConnector._get: ["self", "key", "traces"],
    aiohttp.TCPConnector._release: ["self", "key", "protocol", "should_close"],
    aiohttp.ClientRequest.update_auto_headers: ["self", "skip_auto_headers"],
    aiohttp.ClientRequest.send: ["self", "conn"],
    aiohttp.ClientResponse.start: ["self", "connection"],
    ResponseHandler.feed_data: ["self", "data", "size"],
    ResponseHandler.connection_lost: ["self", "exc"],
    ResponseHandler.data_received: ["self", "data"],
    ResponseHandler.abort: ["self"],
    ResponseHandler.start_timeout: ["self"],
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__qualname__)
def test_a_function_that_is_called_or_overridden_takes_what_it_took(
    function: Callable[..., object],
) -> None:
    assert list(inspect.signature(function).parameters) == SIGNATURES[function]


async def test_the_protected_names_exist() -> None:
    async with aiohttp.TCPConnector() as connector:
        things = {
            "ClientRequest": aiohttp.ClientRequest,
            "Payload": aiohttp.Payload,
            "ResponseHandler": ResponseHandler(asyncio.get_running_loop()),
            "TCPConnector": connector,
        }
        missing = [
            f"{name}.{attribute}"
            for name, attributes in TOUCHED.items()
            for attribute in attributes
            if not hasattr(things[name], attribute)
        ]
    assert missing == []


def test_every_protected_name_that_is_touched_is_listed() -> None:
    ours = {"_body", "_head_room", *vars(aiohttp_pool)}
    listed = {name for names in TOUCHED.values() for name in names}
    touched: set[str] = set()
    for thing in (Wire, WireRequest, SlicedBody, Pool):
        touched |= {name for name in vars(thing) if is_protected(name)}
        for function in vars(thing).values():
            if inspect.isfunction(function):
                touched |= {name for name in function.__code__.co_names if is_protected(name)}
    assert touched - ours == listed


def is_protected(name: str) -> bool:
    return name.startswith("_") and not name.startswith(("__", "_abc_"))


async def test_leftovers_on_a_connection_without_a_parser_count_as_unclean() -> None:
    """What `Wire.rest` relies on (aio-libs/aiohttp#13656)."""
    wire = Wire(asyncio.get_running_loop())
    wire.rest()
    assert not wire.should_close
    wire.data_received(b"x")
    assert wire.should_close


async def test_the_factory_makes_our_connections() -> None:
    pool = Pool(idle_seconds=1, tls=None)
    assert isinstance(pool._factory(), Wire)
    await pool.close()


def test_a_socket_sends_at_once_and_probes_a_silent_peer() -> None:
    kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ())
    with open_socket(kind) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

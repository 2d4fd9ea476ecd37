"""A request whose head the connection has read before is read as if it were the first one.

Where requests come byte by byte no head is ever there whole, so that each is parsed: that is what
all other pieces are compared with.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.inbound import never, read
from tests.support.clock import FakeClock
from tests.support.loop_time import LoopTime
from tests.support.memory_transport import MemoryTransport
from tests.support.seams.api import (
    HEAD_SECONDS,
    LARGEST_HANDLED_BODY,
    Exchange,
    FirstLines,
    HttpConnection,
    Inference,
    InferenceHandler,
    PassingConnection,
    RequestGate,
    Routes,
    ServerContext,
)
from tests.support.seams.identity import Subject
from tests.support.seams.inference import FORMATS
from tests.unit.inference.fakes import SUBJECT
from tollhouse.observability.metrics import Metrics
from tollhouse.settings.sections import ServerSettings

LINES = [
    b"POST /v1/chat HTTP/1.1",
    b"POST /v1/chat?a=b%20c HTTP/1.1",
    b"POST http://b.example:81/v1/chat HTTP/1.1",
    b"POST /v1/chat HTTP/1.0",
    b"GET /v1/chat HTTP/1.1",
    b"\r\nPOST /v1/chat HTTP/1.1",
]
FIELDS = [
    b"X-A: b",
    b"x-a: b",
    b"X-A: Content-Length: 3",
    b"X-Content-Length: 3",
    b"Content-Type: application/json",
    b"Connection: keep-alive",
    b"Connection: close",
    b"Expect: 100-continue",
    b"Connection: upgrade\r\nUpgrade: h2c",
    b"Content-Length: 3",
    b"Transfer-Encoding: chunked",
    b"X-Folded: a\r\n b",
]
LENGTHS = [
    b"Content-Length: %b",
    b"content-length:%b",
    b"CONTENT-LENGTH: %b ",
    b"Content-Length:  %b",
    b"Content-Length : %b",
    b"Content-Length: +%b",
]
BODIES = [b"", b"x", b"{}", b"x" * 11, b"\r\nContent-Length: 3\r\n\r\nabc", b"y" * 100]
HEAD = [b"Host: a.example", b"Authorization: Bearer x"]
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


def request(
    line: bytes, fields: list[bytes], length: bytes, body: bytes, *, zeros: int = 0
) -> bytes:
    digits = b"0" * zeros + b"%d" % len(body)
    head = [line, b"Host: a.example", *fields]
    head.insert(2 + len(fields) // 2, length % digits)
    return b"\r\n".join((*head, b"", body))


def plain(body: bytes) -> bytes:
    return request(LINES[0], HEAD[1:], LENGTHS[0], body)


def in_bytes(pieces: list[bytes]) -> Iterator[bytes]:
    return (bytes([byte]) for byte in b"".join(pieces))


heads = st.tuples(
    st.sampled_from(LINES), st.lists(st.sampled_from(FIELDS), max_size=3), st.sampled_from(LENGTHS)
)
plain_heads = st.tuples(
    st.sampled_from(LINES[:3]),
    st.lists(st.sampled_from(FIELDS[:6]), max_size=3, unique=True),
    st.sampled_from(LENGTHS[:2]),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[bytes]:
    """Draw requests of a connection, of which many have the same head, in pieces."""
    few = draw(st.lists(heads | plain_heads, min_size=1, max_size=2))
    pieces: list[bytes] = []
    for _ in range(draw(st.integers(2, 6))):
        line, fields, length = draw(st.sampled_from(few))
        zeros = draw(st.sampled_from([0, 0, 0, 1, 9]))
        sent = request(line, fields, length, draw(st.sampled_from(BODIES)), zeros=zeros)
        stray = [b""] * 6 + [b"\r\n", b"\r", b"\0", SMUGGLED, request(*few[0], b"behind it")]
        sent += draw(st.sampled_from(stray))
        cuts = draw(st.lists(st.integers(0, len(sent)), max_size=2) | st.just([]))
        ends = [0, *sorted(cuts), len(sent)]
        pieces += [sent[a:b] for a, b in pairwise(ends) if a < b]
    return pieces


@given(conversations())
def test_requests_are_read_alike_in_pieces_of_which_no_head_is_whole(pieces: list[bytes]) -> None:
    assert read(pieces) == read(in_bytes(pieces))


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_kind_of_head_is_read_alike_each_time(line: bytes, length: bytes) -> None:
    for one in FIELDS:
        for fields in ([one], [one, b"X-Last: " + one[-9:]]):
            pieces = [request(line, fields, length, body) for body in (b"a", b"bc", b"", b"d")]
            assert read(pieces) == read(in_bytes(pieces))


@pytest.mark.parametrize("stray", [b"\r", b"\n", b"\r\n", b"P", b"\r\nPOST", b"\0", b" "])
def test_what_is_left_over_of_a_request_belongs_to_the_next_one(stray: bytes) -> None:
    known, next_one = plain(b"first"), plain(b"second")
    expected = read(in_bytes([known, known, stray, next_one]))
    assert read([known, known + stray, next_one]) == expected
    assert read([known, known, stray, next_one]) == expected
    assert read([known, known[:-1], known[-1:] + stray, next_one]) == expected


def test_a_body_that_is_too_large_for_the_handler_goes_to_the_application() -> None:
    first, large = plain(b"first"), plain(b"x" * (LARGEST_HANDLED_BODY + 1))
    pieces = [first, large[:200], large[200:], first]
    seen = read(pieces)
    assert seen == read([first, large[:9], large[9:], first])
    assert seen.written.count(b"called") == 1


@pytest.mark.parametrize("behind", [b"", SMUGGLED, b"\r\n", plain(b"next")])
def test_a_known_head_may_be_cut_anywhere(behind: bytes) -> None:
    first, second, third = plain(b"first"), plain(b"the second one") + behind, plain(b"")
    expected = read(in_bytes([first, second, third]))
    assert len(expected.requests) == 3 + (len(behind) > len(b"\r\n"))
    for cut in range(1, len(second)):
        assert read([first, second[:cut], second[cut:], third]) == expected


@pytest.mark.parametrize("put", [b"", *map(bytes, zip(b"\r\n\0 ,:;+-019axX", strict=True))])
def test_a_head_of_which_one_byte_differs_is_not_the_known_one(put: bytes) -> None:
    first, second = plain(b"0123456789"), plain(b"9876543210")
    for at in range(second.index(b"\r\n\r\n") + 4):
        for kept in (at, at + 1):  # put before a byte, and in its place
            pieces = [first, second[:at] + put + second[kept:], plain(b"")]
            assert read(pieces) == read(in_bytes(pieces)), (at, kept)


@pytest.mark.parametrize(
    "digits",
    [
        *(b"010", b"+10", b"1 0", b"10 ", b" 10", b"10\t", b"0x0a", b"1_0", b"-10", b"1e1"),
        *(b"", b"10,10", b"10\r\n", b"\xb2", b"\xd9\xa1", b"0000000010", b"99999999999999999999"),
        *(b"10\r\nContent-Length: 3", b"10\nX: y", b"9", b"11", b"10;", b"1.0", b"10\0"),
    ],
)
def test_a_length_that_could_be_read_in_two_ways_is_left_to_the_parser(digits: bytes) -> None:
    first = plain(b"0123456789")
    for body in (b"9876543210", b"9876543210" + SMUGGLED):
        second = plain(b"").replace(b"Length: 0", b"Length: " + digits) + body
        for pieces in ([first, second, first], [first, second + first]):
            assert read(pieces) == read(in_bytes(pieces))


# What is kept with a head, and what is decided anew


class Noting:
    """Notes of each head which request it came with first; refuses where it is told to."""

    def __init__(self) -> None:
        self.notes: list[object] = []
        self.refuses = False

    def accepts(self, exchange: Exchange) -> bool:
        exchange.from_head = exchange.from_head or len(self.notes) + 1
        return not self.refuses

    def handle(self, exchange: Exchange) -> None:
        self.notes.append(exchange.from_head)
        exchange.respond(200, [], exchange.body)


class Worker:
    """One of several processes, which hands no connection over."""

    answers_all = True
    is_ours = staticmethod(FirstLines(["/chat"]).for_worker)
    hand = staticmethod(never)


class Client:
    """A client of one connection."""

    def __init__(self, handler: Any, *, of_worker: bool = False) -> None:
        self.called: list[str] = []
        context = ServerContext(self.app, handler, 9, 0, never, never, set(), set())
        of_all = context, asyncio.get_running_loop()
        self.connection = (
            PassingConnection(*of_all, Worker()) if of_worker else HttpConnection(*of_all)
        )
        self.transport: Any = MemoryTransport()
        self.connection.connection_made(self.transport)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.called.append(scope["path"])
        await receive()
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def sends(self, body: bytes, *fields: bytes, cut: int = 0) -> None:
        sent = request(LINES[0], list(fields), LENGTHS[0], body)
        for piece in (sent[:cut], sent[cut:]):
            if piece:
                self.connection.data_received(piece)
        for _ in range(9):
            await asyncio.sleep(0)


async def test_what_a_handler_found_out_from_a_head_is_kept_for_the_next_like_it() -> None:
    handler = Noting()
    client = Client(handler)
    await client.sends(b"a")
    await client.sends(b"a longer one")
    await client.sends(b"in pieces", cut=-4)
    await client.sends(b"of another client", b"authorization: Bearer x")
    await client.sends(b"", b"authorization: Bearer x")
    await client.sends(b"a")
    assert handler.notes == [1, 1, 1, 4, 4, 6]


async def test_a_connection_whose_heads_all_differ_is_read_on() -> None:
    handler = Noting()
    client = Client(handler)
    for number in range(20):
        for body in (b"a", b"b"):
            await client.sends(body, b"x-number: %d" % number)
    assert client.transport.written.count(b"HTTP/1.1 200 ") == 40
    assert handler.notes[:4] == [1, 1, 3, 3]
    assert handler.notes[-2:] == [39, 40]


async def test_a_request_that_the_handler_does_not_accept_goes_to_the_application() -> None:
    handler = Noting()
    client = Client(handler)
    await client.sends(b"a")
    handler.refuses = True
    await client.sends(b"b")
    await client.sends(b"in pieces", cut=-4)
    handler.refuses = False
    await client.sends(b"c")
    assert client.called == ["/v1/chat"] * 2
    assert client.transport.written.count(b"HTTP/1.1 401 ") == 2
    assert handler.notes == [1, 1]


async def test_nothing_is_kept_of_a_head_that_another_one_has_followed() -> None:
    handler = Noting()
    client = Client(handler)
    await client.sends(b"a")
    handler.refuses = True
    await client.sends(b"b", b"authorization: Bearer x")
    handler.refuses = False
    await client.sends(b"c")
    assert handler.notes == [1, 2]


async def test_a_known_head_that_came_in_two_pieces_is_not_waited_for_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker keeps the first bytes, for so many seconds, until they tell who answers."""
    time, client = LoopTime(monkeypatch), Client(Noting(), of_worker=True)
    await client.sends(b"a")
    await client.sends(b"b", cut=4)
    await time.advance(HEAD_SECONDS + 1)
    await client.sends(b"c")
    assert client.transport.written.count(b"HTTP/1.1 200 ") == 3
    assert not client.transport.ended


@dataclass
class Keys:
    """Knows every key, until it is told to know none."""

    are_known: bool = True
    asked: list[str] = field(default_factory=list)

    def known(self, secret_hash: str) -> Subject | None:
        self.asked.append(secret_hash)
        return SUBJECT if self.are_known else None


async def test_a_key_that_is_no_longer_known_goes_to_the_gate_with_the_next_request() -> None:
    keys = Keys()
    client = Client(handler_of(keys, ServerSettings()))
    await client.sends(b"{}", *AS_A_CLIENT)
    await client.sends(b"{ }", *AS_A_CLIENT)
    assert client.transport.written.count(b"HTTP/1.1 400 ") == 2
    keys.are_known = False
    await client.sends(b"{}", *AS_A_CLIENT)
    assert client.called == ["/v1/chat"]
    assert len(set(keys.asked)) == 1


async def test_each_request_counts_for_its_address() -> None:
    settings = ServerSettings(max_requests_per_address_per_minute=3)
    client = Client(handler_of(Keys(), settings))
    for _ in range(4):
        await client.sends(b"{}", *AS_A_CLIENT)
    assert client.transport.written.count(b"HTTP/1.1 400 ") == 3
    assert client.called == ["/v1/chat"]


AS_A_CLIENT = (b"authorization: Bearer sk-th-v1-good",)


def handler_of(keys: Keys, settings: ServerSettings) -> InferenceHandler:
    """Return the handler of a gate with one route, which finds no request good."""
    clock, absent, known = FakeClock(), *cast("tuple[Any, Any]", (None, keys))
    route = Inference(FORMATS["/chat/completions"], absent, clock, settings, absent)
    routes = Routes(hot={"/chat": route}, control=absent, system=absent)
    return InferenceHandler(RequestGate(routes, known, settings, clock, Metrics()))

"""The same requests and replies give the same bytes, whether callbacks or tasks drive them."""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.clock import FakeClock
from tests.support.memory_transport import MemoryTransport
from tests.support.seams.api import (
    HttpConnection,
    Inference,
    InferenceHandler,
    LargeBodies,
    RequestGate,
    Routes,
    ServerContext,
)
from tests.support.seams.identity import Subject, hash_key
from tests.support.seams.inference import FORMATS, Steps
from tests.unit.inference import replies
from tests.unit.inference.fake_upstream import FakeExchange, FakeResponse
from tests.unit.inference.fakes import MODEL, SPOKEN, SUBJECT, FakeProvider, PipelineFixture
from tests.unit.inference.providers.test_http import provider
from tollhouse.kernel.errors import Unauthenticated
from tollhouse.observability.metrics import Metrics
from tollhouse.outbound.http.port import (
    ConnectFailed,
    ConnectionLost,
    HeadTimeout,
    ResponseReceiver,
    TakeResponse,
    UpstreamError,
    UpstreamRequest,
)
from tollhouse.settings.sections import ServerSettings

KEY = "sk-th-v1-good"
FORMS = tuple(SPOKEN)
HTML = b"<html>502 Bad Gateway</html>"
IDLE_TURNS = 20
"""After so many turns of the event loop without work, none follows."""
STREAMS = [body for name, body in replies.STREAMS.items() if name != "content in parts"]
"""All but one: parts are passed on as they came. What is written here is among the replies that
published clients have to accept at the end of a run, and those refuse parts."""
REFUSAL = json.dumps({"error": {"message": "no such field", "code": "invalid_prompt"}}).encode()


class OneKey:
    """Knows one key."""

    def known(self, secret_hash: str) -> Subject | None:
        return SUBJECT if secret_hash == hash_key(KEY) else None

    async def authenticate(self, key: str) -> Subject:
        if key != KEY:
            raise Unauthenticated("Invalid API key.")
        return SUBJECT


class Answers:
    """Gives each request the next of some answers."""

    def __init__(self, answers: Sequence[FakeResponse | UpstreamError]) -> None:
        self._rest = list(answers)
        self.bodies: list[bytes] = []

    def start(
        self,
        request: UpstreamRequest,
        receiver: ResponseReceiver,
        on_whole: TakeResponse | None = None,
    ) -> FakeExchange:
        self.bodies.append(request.body)
        answer = self._rest.pop(0) if self._rest else ConnectFailed("nobody there", sent=False)
        if isinstance(answer, UpstreamError):
            return FakeExchange([partial(receiver.on_error, answer.anew())], lambda: None)
        return FakeExchange(answer.calls(receiver, on_whole), answer.note_closed)


@dataclass(frozen=True)
class Seen:
    """What one driver did."""

    client: bytes
    asked: Sequence[bytes]
    booked: Sequence[Any]


async def seen(
    requests: Sequence[bytes], answers: Sequence[FakeResponse | UpstreamError], *, as_tasks: bool
) -> Seen:
    """Send pieces of bytes to a gateway, and return all that came of it."""
    fixture = PipelineFixture([FakeProvider(RuntimeError("never asked"))] * 2)
    upstream = Answers(answers)
    fixture.pipeline._as_tasks = as_tasks  # noqa: SLF001 - as the setting of the server does
    real = provider(upstream)  # type: ignore[arg-type]
    for each in fixture.providers:
        each.open = real.open  # type: ignore[method-assign]
    configured, clock = ServerSettings(), FakeClock()
    large = LargeBodies.of(configured, Steps())
    hot = {
        path: Inference(FORMATS[path], fixture.pipeline, clock, configured, large) for path in FORMS
    }
    gate = RequestGate(
        Routes(hot=hot, control=None, system=None),  # type: ignore[arg-type]
        OneKey(),  # type: ignore[arg-type]
        configured,
        clock,
        Metrics(),
    )
    context = ServerContext(
        gate,  # type: ignore[arg-type]
        None if as_tasks else InferenceHandler(gate),
        9,
        0,
        lambda _: False,
        lambda *_: False,
        set(),
        set(),
    )
    loop, transport = asyncio.get_running_loop(), MemoryTransport()
    connection = HttpConnection(context, loop)
    connection.connection_made(transport)  # type: ignore[arg-type]
    for piece in requests:
        if not transport.closed:
            connection.data_received(piece)
        await asyncio.sleep(0)
    idle = 0
    while idle < IDLE_TURNS:
        idle = 0 if fixture.in_flight or context.tasks else idle + 1
        await asyncio.sleep(0)
    connection.connection_lost(None)
    return Seen(unframed(bytes(transport.written)), upstream.bodies, fixture.settler.booked)


def unframed(written: bytes) -> bytes:
    """Return responses without their dates, and streams as if they had come in one chunk."""
    text = re.sub(rb"date: [^\r]*\r\n", b"", written)
    return re.sub(rb"\r\n[0-9a-f]+\r\n|\r\n0\r\n\r\n", b"", text)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Return data in pieces, cut at places that count from its beginning, modulo its length."""
    ends = sorted({place % len(data) for place in places} - {0}) if data else []
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True) if data[a:b]]


def request(draw: Any) -> bytes:
    form = draw(st.sampled_from(FORMS))
    fields = {"model": MODEL, "stream": draw(st.booleans()), **SPOKEN[form], "max_tokens": 50}
    fields |= draw(
        st.sampled_from(
            [{}, {"model": "no/such"}, {"messages": 1}, {"user": "u"}, {"models": [MODEL]}]
        )
    )
    body = json.dumps(fields).encode()
    if draw(st.integers(0, 9)) == 0:
        body = body[:-1]
    key = draw(st.sampled_from([KEY, KEY, KEY, KEY, "sk-th-v1-bad"]))
    extra = draw(st.sampled_from([b"", b"", b"x-title: t\r\n", b"origin: http://a\r\n"]))
    return b"POST /v1%b HTTP/1.1\r\nhost: a\r\nauthorization: Bearer %b\r\n%b%b\r\n%b" % (
        form.encode(),
        key.encode(),
        extra,
        b"content-length: %d\r\n" % len(body),
        body,
    )


@st.composite
def traffic(draw: Any) -> list[bytes]:
    """Draw requests, one after the other on one connection, cut anywhere."""
    sent = b"".join(request(draw) for _ in range(draw(st.integers(1, 3))))
    return cut(sent, draw(st.lists(st.integers(0, 5_000), max_size=6)))


@st.composite
def answer(draw: Any) -> FakeResponse | UpstreamError:
    """Draw what a provider says: the reply wanted or another one, whole or cut short."""
    failure = draw(
        st.sampled_from(
            [None] * 6
            + [ConnectFailed("x", sent=False), HeadTimeout("x", sent=True)]
            + [ConnectionLost("x", sent=True)]
        )
    )
    if failure is not None:
        return failure
    bodies = [
        json.dumps(replies.whole()).encode(),
        json.dumps(replies.whole(usage=None)).encode(),
        *STREAMS,
        HTML,
        REFUSAL,
        b"",
    ]
    body = draw(st.sampled_from(bodies))
    status = draw(st.sampled_from([200, 200, 200, 200, 400, 429, 500]))
    headers = {"retry-after": "7"} if status in {429, 500} else {}
    pieces = cut(body, draw(st.lists(st.integers(0, 3_000), max_size=8)))
    if draw(st.integers(0, 3)) == 0:
        kept = draw(st.integers(0, len(pieces)))
        return FakeResponse(status, headers, pieces[:kept], ConnectionLost("cut", sent=True))
    return FakeResponse(status, headers, pieces)


@given(traffic(), st.lists(answer(), max_size=6))
@settings(max_examples=150, deadline=None)
async def test_both_drivers_write_the_same_bytes_and_book_the_same_charges(
    sent: list[bytes], answers: list[FakeResponse | UpstreamError]
) -> None:
    by_callbacks = await seen(sent, answers, as_tasks=False)
    by_tasks = await seen(sent, answers, as_tasks=True)
    assert by_callbacks == by_tasks


@given(traffic(), st.lists(answer(), max_size=6), st.booleans())
@settings(max_examples=100, deadline=None)
async def test_a_reply_that_is_given_in_one_call_is_the_same_as_one_given_in_three(
    sent: list[bytes],
    answers: list[FakeResponse | UpstreamError],
    as_tasks: bool,  # noqa: FBT001
) -> None:
    def read_at_once(*, in_one_call: bool) -> list[FakeResponse | UpstreamError]:
        return [
            each
            if isinstance(each, UpstreamError)
            else replace(each, pieces=[*filter(None, [b"".join(each.pieces)])], at_once=in_one_call)
            for each in answers
        ]

    in_three = await seen(sent, read_at_once(in_one_call=False), as_tasks=as_tasks)
    assert await seen(sent, read_at_once(in_one_call=True), as_tasks=as_tasks) == in_three

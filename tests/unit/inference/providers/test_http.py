"""The provider over a fake transport: what it sends, and what it makes of whatever comes back."""

import asyncio
import base64
import gzip
import json
from collections.abc import Coroutine
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.clock import FakeClock
from tests.support.seams.inference import (
    ChatPassthroughAdapter,
    Dialect,
    Endpoint,
    ErrorEvent,
    HttpProvider,
    OpenedReply,
    ProviderCall,
    parse_request,
)
from tests.unit.inference import replies
from tests.unit.inference.fake_upstream import FakeResponse, FakeUpstream
from tests.unit.inference.fakes import PRICE, FakeProvider, PipelineFixture, failed, outcome, steps
from tollhouse.kernel.eager_task import EagerTask
from tollhouse.kernel.errors import ProviderFailure, ProviderUnavailable, status_of
from tollhouse.kernel.secret import Secret
from tollhouse.outbound.http.port import (
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    ConnectTimeout,
    HeadTimeout,
    IdleTimeout,
    PoolTimeout,
    ProtocolViolation,
    TimeLimits,
    TotalTimeout,
    UpstreamError,
)
from tollhouse.provider_keys.types import OwnKey

LOST = ConnectionLost("reset", sent=True)


def provider(upstream: FakeUpstream, **fields: Any) -> HttpProvider:
    plain: dict[str, Any] = {
        "slug": "acme",
        "name": "Acme",
        "base_url": "https://llm.acme.example/v1/",
        "dialects": frozenset({Dialect.CHAT}),
        "headers": [("authorization", "Bearer sk-acme"), ("x-region", "eu")],
        "upstream": upstream,
        "limits": TimeLimits(),
        "largest_reply": 100_000,
        "on_disconnect": "cancel",
        "clock": FakeClock(),
    }
    return HttpProvider(**(plain | fields))


def fixture(answer: FakeResponse | UpstreamError, **fields: Any) -> PipelineFixture:
    w = PipelineFixture([FakeProvider(RuntimeError("never asked"))])
    real = provider(FakeUpstream(answer), **fields)
    w.providers[0].open = real.open  # type: ignore[method-assign]
    return w


async def body_of(reply: OpenedReply) -> bytes:
    """Return the body of a whole reply, whenever it comes."""
    whole = reply.whole()
    return whole if isinstance(whole, bytes) else await whole


def call(body: dict[str, Any] | None = None, *, stream: bool = False) -> ProviderCall:
    fields = {
        "model": "acme/large",
        "stream": stream,
        "messages": [{"role": "user", "content": "a"}],
    }
    data = json.dumps(fields | (body or {})).encode()
    request = parse_request(data)
    endpoint = Endpoint("acme", "large-2026", PRICE)
    asked = ChatPassthroughAdapter(request).render_request(data, endpoint)
    return ProviderCall(endpoint, Dialect.CHAT, request.stream, asked)


async def refusal(answer: FakeResponse | UpstreamError) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        await provider(FakeUpstream(answer)).open(call())
    return caught.value


# What it sends


@pytest.mark.parametrize(
    ("stream", "accept"), [(False, "application/json"), (True, "text/event-stream")]
)
async def test_a_request_goes_out_as_a_post_with_the_key(stream: bool, accept: str) -> None:  # noqa: FBT001
    upstream = FakeUpstream(FakeResponse())
    await provider(upstream).open(call(stream=stream))
    [request] = upstream.requests
    assert request.method == "POST"
    assert request.url == "https://llm.acme.example/v1/chat/completions"
    assert dict(request.headers) == {
        "content-type": "application/json",
        "accept-encoding": "identity",
        "user-agent": "tollhouse",
        "authorization": "Bearer sk-acme",
        "x-region": "eu",
        "accept": accept,
    }
    assert json.loads(request.body)["model"] == "large-2026"


async def test_without_credentials_none_are_sent() -> None:
    upstream = FakeUpstream(FakeResponse())
    await provider(upstream, headers=[]).open(call())
    assert len(upstream.requests[0].headers) == 4


async def test_with_a_customers_key_only_headers_that_choose_a_version_go_along() -> None:
    upstream, key = FakeUpstream(FakeResponse()), OwnKey(None, Secret("own-key-0123"))  # type: ignore[arg-type] - not looked at
    names = ("X-Tenant", "http-referer", "x-goog-user-project", "OpenAI-Beta", "anthropic-version")
    kept = [("authorization", "Bearer sk-acme"), *((name, "v") for name in names)]
    await provider(upstream, headers=kept).open(call()._replace(own_key=key))
    common = {"content-type", "accept-encoding", "user-agent", "accept", "authorization"}
    sent = dict(upstream.requests[0].headers)
    assert sent.keys() - common == {"OpenAI-Beta", "anthropic-version"}
    assert sent["authorization"] == "Bearer own-key-0123"


async def test_what_passes_through_takes_the_place_of_a_header_of_its_name() -> None:
    upstream = FakeUpstream(FakeResponse())
    passing = call()._replace(query="beta=true", headers=(("x-region", "us"), ("x-beta", "1")))
    await provider(upstream).open(passing)
    [request] = upstream.requests
    assert request.url.endswith("/chat/completions?beta=true")
    names = [name for name, _ in request.headers]
    assert len(names) == len(set(names))
    assert dict(request.headers) | {"x-region": "us", "x-beta": "1"} == dict(request.headers)


async def test_closing_it_closes_its_connections() -> None:
    upstream = FakeUpstream(FakeResponse())
    await provider(upstream).close()
    assert upstream.closed


# What the transport says


@pytest.mark.parametrize(
    ("error", "status", "ambiguous"),
    [
        (ConnectFailed("10.0.0.7:443", sent=False), 502, False),
        (ConnectTimeout("10.0.0.7:443", sent=False), 504, False),
        (PoolTimeout("10.0.0.7:443", sent=False), 502, False),
        (HeadTimeout("10.0.0.7:443", sent=True), 504, True),
        (TotalTimeout("10.0.0.7:443", sent=True), 504, True),
        (TotalTimeout("10.0.0.7:443", sent=False), 504, False),
        (ConnectionLost("10.0.0.7:443", sent=True), 502, True),
        (ConnectionLost("10.0.0.7:443", sent=False), 502, False),
        (ProtocolViolation("10.0.0.7:443", sent=True), 502, True),
        (ClientClosed("10.0.0.7:443", sent=False), 502, False),
    ],
)
async def test_a_transport_that_fails_is_a_502_or_504_that_knows_whether_it_is_ambiguous(
    error: UpstreamError,
    status: int,
    ambiguous: bool,  # noqa: FBT001
) -> None:
    ours = await refusal(error)
    assert (status_of(ours), ours.ambiguous) == (status, ambiguous)
    assert ours.metadata["provider_name"] == "Acme"
    assert str(error) not in ours.message


@pytest.mark.parametrize(
    "error", [LOST, IdleTimeout("slow", sent=True), TotalTimeout("slow", sent=True)]
)
async def test_a_whole_reply_that_breaks_off_is_an_error(error: UpstreamError) -> None:
    reply = await provider(FakeUpstream(FakeResponse(broken=error))).open(call())
    with pytest.raises(ProviderFailure) as caught:
        await body_of(reply)
    assert caught.value.ambiguous


async def test_a_whole_reply_over_the_limit_is_an_error() -> None:
    response = FakeResponse(pieces=[b"x" * 100_001])
    error = await failed(fixture(response).begin())
    assert (status_of(error), error.message) == (502, "Acme sent an invalid response.")
    assert response.closed == 1


async def test_an_event_over_the_limit_is_an_error() -> None:
    response = FakeResponse(pieces=[b"data: " + b"x" * 60_000] * 2)
    error = await failed(fixture(response).begin(stream=True))
    assert (status_of(error), error.message) == (502, "Acme sent an invalid response.")
    assert response.closed == 1


# What the server says


@pytest.mark.parametrize("status", [300, 302, 400, 401, 404, 429, 500, 503])
async def test_a_response_with_an_error_status_is_closed(status: int) -> None:
    response = FakeResponse(status)
    await refusal(response)
    assert response.closed == 1


async def test_an_error_that_breaks_off_still_has_its_status() -> None:
    response = FakeResponse(429, broken=LOST, pieces=[b"{"])
    assert status_of(await refusal(response)) == 429
    assert response.closed == 1


async def test_an_error_larger_than_we_read_still_has_its_status() -> None:
    assert status_of(await refusal(FakeResponse(400, pieces=[b"x" * 100_000]))) == 400


async def test_a_cancelled_error_is_closed() -> None:
    response = FakeResponse(500, pieces=[b" "] * 1000)
    task = asyncio.create_task(provider(FakeUpstream(response)).open(call()))
    await steps()
    assert response.closed == 0
    task.cancel()
    await steps()
    assert response.closed == 1


async def test_a_stream_whose_end_is_waited_for_is_closed_if_that_is_cancelled() -> None:
    response = FakeResponse(pieces=[b"data: {}\n\n"] * 1000)
    reply = await provider(FakeUpstream(response)).open(call(stream=True))
    await reply.relay(lambda _: False)

    async def close() -> None:
        if (closing := reply.close(60.0)) is not None:
            await closing

    task = asyncio.create_task(close())
    await steps()
    assert response.closed == 0
    task.cancel()
    await steps()
    assert response.closed == 1


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "7"}, b"", 7),
        ({"retry-after": " 7 "}, b"", 7),
        ({"retry-after": "0"}, b"", 1),
        ({"retry-after": "3600"}, b"", 3600),
        ({"retry-after": "1.5"}, b"", 2),
        ({"retry-after": "Thu, 12 Mar 2026 10:30:09 GMT"}, b"", 9),
        ({"retry-after": "Thursday, 12-Mar-26 10:30:09 GMT"}, b"", 9),
        ({"retry-after": "Thu, 12 Mar 2026 10:00:00 GMT"}, b"", 1),
        ({"retry-after-ms": "1500"}, b"", 2),
        ({"retry-after-ms": "1500", "retry-after": "30"}, b"", 2),
        ({}, b'{"error":{"details":[{"retryDelay": "34.07s"}]}}', 35),
        ({}, b"Please try again in 1m2.5s.", 63),
        ({}, b"Please try again in 250ms.", 1),
        ({}, b"Please retry after 6 seconds.", 6),
        ({}, b"Please try again in a while.", None),
        ({"retry-after": "-1"}, b"", None),
        ({"retry-after": ""}, b"", None),
        ({"retry-after": "99999999999999999999"}, b"", 86400),
        ({"retry-after": "Thu, 12 Mar 2126 10:30:09 GMT"}, b"", 86400),
        ({"retry-after": "20s"}, b"", 20),
        ({"retry-after": "2026-03-12T10:30:09Z"}, b"", 9),
        ({"x-ratelimit-reset-requests": "1m30s"}, b"", 90),
        ({"x-ratelimit-reset-tokens": "6ms"}, b"", 1),
        ({"x-ratelimit-reset": "1773311409000"}, b"", 9),
        (
            {"anthropic-ratelimit-requests-reset": "2026-03-12T10:30:09Z"}
            | {"anthropic-ratelimit-requests-remaining": "0"}
            | {"anthropic-ratelimit-tokens-reset": "2026-03-12T10:40:00Z"},
            b"",
            9,
        ),
        ({}, b'{"error": {"retry_after": 12}}', 12),
        ({}, b'{"resets_in_seconds": "77"}', 77),
        ({}, b'{"retry_after_ms": 2500}', 3),
        ({"retry-after": "soon"}, b"", None),
        ({}, b"", None),
    ],
)
async def test_a_hint_when_to_try_again_is_read_in_every_form(
    headers: dict[str, str], body: bytes, seconds: int | None
) -> None:
    error = await refusal(FakeResponse(429, headers, pieces=[body]))
    assert error.retry_after == seconds


async def test_a_compressed_reply_counts_as_large_as_it_is() -> None:
    headers, body = {"content-encoding": "gzip"}, gzip.compress(b"x" * 10_000_000)
    response = FakeResponse(200, headers, pieces=[body])
    reply = await provider(FakeUpstream(response), largest_reply=9_999).open(call())
    with pytest.raises(ProviderUnavailable, match="invalid response"):
        await body_of(reply)


@pytest.mark.parametrize(("encoding", "body"), [("gzip", b"no gzip"), ("br", b"{}")])
async def test_what_cannot_be_decompressed_is_an_invalid_response(
    encoding: str, body: bytes
) -> None:
    response = FakeResponse(200, {"content-encoding": encoding}, pieces=[body])
    with pytest.raises(ProviderUnavailable, match="invalid response"):
        await body_of(await provider(FakeUpstream(response)).open(call()))


# A reply that is read at once, and not in pieces


async def by_callbacks(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine as the pipeline does: it goes on in the stack of whoever wakes it."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    task = EagerTask(coroutine, loop, lambda _: ended.set_result(None))
    loop.call_soon(task.start)
    await ended


COMPRESSED = {"content-encoding": "gzip"}
REPLIES: dict[str, tuple[int, dict[str, str], list[bytes]]] = {
    "whole": (200, {}, [b'{"id":"1",', b'"choices":[]}']),
    "empty": (200, {}, []),
    "a stream": (200, {}, [b"data: {}\n", b"\ndata: [DONE]\n\n"]),
    "a stream without its last line": (200, {}, [b"data: {}\n\ndata: ", b"[DONE]"]),
    "a stream that is cut": (200, {}, [b"data: {}\n\ndata: {"]),
    "too large": (200, {}, [b"x" * 60_000] * 2),
    "an event that is too large": (200, {}, [b"data: " + b"x" * 60_000] * 2),
    "an error under 200": (200, {}, [b'{"error":{"message":"no"}}']),
    "an event with an error": (200, {}, [b'data: {"error":{"message":"no"}}\n\n']),
    "compressed": (200, COMPRESSED, [gzip.compress(b"data: {}\n\n")]),
    "compressed, and too large": (200, COMPRESSED, [gzip.compress(b"x" * 10_000_000)]),
    "compressed badly": (200, COMPRESSED, [b"no gzip"]),
    "compressed in another way": (200, {"content-encoding": "br"}, [b"{}"]),
    "refused": (400, {}, [b'{"error":{"message":', b'"no"}}']),
    "refused, compressed": (400, COMPRESSED, [gzip.compress(b'{"error":{"message":"no"}}')]),
    "refused, compressed badly": (400, COMPRESSED, [b"no gzip"]),
    "refused at length": (400, {}, [b'{"error":{"message":"no"}}', b" " * 70_000]),
    "limited": (429, {"retry-after": "7"}, [b"slow"]),
    "moved": (302, {"location": "/"}, []),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", REPLIES)
async def test_a_reply_that_is_read_at_once_is_the_same_as_one_in_pieces(
    name: str, *, stream: bool
) -> None:
    status, headers, pieces = REPLIES[name]

    async def became(*, at_once: bool) -> list[object]:
        """Return where a call ended, what was given until then, and the failure."""
        response = FakeResponse(status, headers, pieces, at_once=at_once)
        got: list[bytes] = []
        reply, failure = None, None

        async def ask() -> None:
            nonlocal reply, failure
            try:
                reply = await provider(FakeUpstream(response)).open(call(stream=stream))
                if stream:
                    await reply.relay(lambda events: not got.extend(events))
                else:
                    got.append(await body_of(reply))
            except (ProviderFailure, ErrorEvent) as error:
                failure = error

        await by_callbacks(ask())
        if reply is not None:
            assert reply.close() is None
        assert response.closed == 1
        if isinstance(failure, ProviderFailure):
            told = [failure.message, failure.metadata, failure.ambiguous, failure.code]
            return [reply is None, got, *told, failure.provider_status, failure.retry_after]
        return [reply is None, got, failure and failure.args]

    assert await became(at_once=True) == await became(at_once=False)


# The check of a key


async def test_a_check_asks_for_the_list_of_models_with_the_providers_credentials() -> None:
    upstream = FakeUpstream(FakeResponse())
    await provider(upstream).check()
    [request] = upstream.requests
    assert (request.method, request.url) == ("GET", "https://llm.acme.example/v1/models")
    assert ("authorization", "Bearer sk-acme") in request.headers


async def test_a_check_names_the_setting_of_a_key_that_is_refused() -> None:
    with pytest.raises(ProviderFailure) as refused:
        await provider(FakeUpstream(FakeResponse(401))).check()
    assert "providers[acme].api_key" in refused.value.message


# Credentials that come back

KEY = "sk-acmekey-north/south+east=west"
ECHOES = {
    "as it is": KEY,
    "with its scheme": f"Authorization: Bearer {KEY}",
    "in .NET's JSON": KEY.replace("+", "\\u002B"),
    "in JSON in JSON": json.dumps({"authorization": KEY}).replace("/", "\\/"),
    "in a URL": quote(KEY, safe=""),
    "in base64": base64.b64encode(f"Bearer {KEY}".encode()).decode(),
    "behind much else": "x" * 490 + KEY,
}
BEARER = [("authorization", f"Bearer {KEY}")]


def shows_key(text: str) -> bool:
    """Tell whether anything of the key is there, but for its edges in base64."""
    return any(
        part in text for part in ("acmekey", "north", "south", "east", "west", *SHOWN_IN_BASE64)
    )


SHOWN_IN_BASE64 = [base64.b64encode(b"." * at + KEY.encode())[8:24].decode() for at in range(3)]


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_refusal_that_repeats_the_key_does_not_show_it(status: int, echo: str) -> None:
    error = {"message": f"Invalid request: {echo}", "type": echo, "code": echo}
    answer = FakeResponse(status, pieces=[json.dumps({"error": error}).encode()])
    with pytest.raises(ProviderFailure) as caught:
        await provider(FakeUpstream(answer), headers=BEARER).open(call())
    assert str(caught.value).startswith("Acme refused the request: Invalid request: ")
    assert not shows_key(f"{caught.value} {caught.value.metadata}")


@pytest.mark.parametrize(
    "header",
    [
        ("x-api-key", KEY),
        ("api-key", KEY),
        ("x-anything", KEY),
        ("authorization", f"Basic {base64.b64encode(f'me:{KEY}'.encode()).decode()}"),
    ],
    ids=lambda header: header[0],
)
async def test_a_credential_of_any_header_is_hidden(header: tuple[str, str]) -> None:
    text = f"what came: {header[1]} {KEY}"
    answer = FakeResponse(400, pieces=[json.dumps({"error": {"message": text}}).encode()])
    with pytest.raises(ProviderFailure) as caught:
        await provider(FakeUpstream(answer), headers=[header]).open(call())
    assert not shows_key(str(caught.value))


async def test_words_in_headers_that_are_no_secrets_stay_in_errors() -> None:
    text = "anthropic-version 2023-06-01 is not known in eu"
    headers = [("anthropic-version", "2023-06-01"), ("x-region", "eu")]
    answer = FakeResponse(400, pieces=[json.dumps({"error": {"message": text}}).encode()])
    with pytest.raises(ProviderFailure, match=text):
        await provider(FakeUpstream(answer), headers=headers).open(call())


@pytest.mark.parametrize("begun", [b"", replies.chunk({"content": "A"})], ids=["first", "later"])
@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
async def test_an_error_in_a_stream_that_repeats_the_key_does_not_show_it(
    echo: str, begun: bytes
) -> None:
    error = replies.event({"error": {"code": 400, "message": f"Refused: {echo}"}})
    exchange = fixture(FakeResponse(pieces=[begun, error]), headers=BEARER).begin(stream=True)
    end = await outcome(exchange)
    text = end.decode() if isinstance(end, bytes) else f"{end} {end.metadata}"
    assert "Refused: " in text
    assert not shows_key(text)


async def test_an_event_and_a_reply_that_repeat_the_key_do_not_show_it() -> None:
    said = json.dumps({"choices": [{"delta": {"content": f"The key is {KEY}"}}]}).encode()
    shown = FakeResponse(pieces=[b"data: " + said[:40], said[40:] + b"\n\n"])
    reply = await provider(FakeUpstream(shown), headers=BEARER).open(call(stream=True))
    taken: list[bytes] = []
    assert await reply.relay(lambda events: not taken.extend(events))
    [event] = taken
    assert event == said.replace(KEY.encode(), b"*" * len(KEY))
    reply = await provider(FakeUpstream(FakeResponse(pieces=[said])), headers=BEARER).open(call())
    assert await body_of(reply) == event


async def test_replies_without_the_key_are_passed_on_byte_by_byte() -> None:
    said = b'{"choices": [{"delta": {"content": "sk-acme-0123 \\u002b %2B Bearer"}}]}'
    reply = await provider(FakeUpstream(FakeResponse(pieces=[said])), headers=BEARER).open(call())
    assert await body_of(reply) == said


async def test_a_reply_may_name_what_was_sent_and_is_no_key() -> None:
    headers = [*BEARER, ("http-referer", "https://acme.example")]
    said = b'{"error": null, "output": [{"text": "see https://acme.example/docs"}]}'
    reply = await provider(FakeUpstream(FakeResponse(pieces=[said])), headers=headers).open(call())
    assert await body_of(reply) == said

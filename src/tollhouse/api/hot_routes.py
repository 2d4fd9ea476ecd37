"""Routes on the way of every inference request: plain ASGI, without a framework between.

A framework's routing, validation and middleware cost more than the relay itself (15 to 300 us of
CPU a request), so these routes stand in a dict in front of it, and are described in the OpenAPI
document like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from tollhouse.accounting.types import Attribution
from tollhouse.api.asgi import JSON, ON_GONE, SINK
from tollhouse.api.limits import read_body
from tollhouse.identity.access import billed_to
from tollhouse.inference.call import Call
from tollhouse.inference.formats.base import ClientRequest, Relay
from tollhouse.inference.formats.chat_completions import parse as chat_completions
from tollhouse.inference.formats.chat_completions.relay import ChatRelay
from tollhouse.inference.formats.embeddings import request as embeddings
from tollhouse.inference.formats.embeddings.relay import EmbeddingsRelay

if TYPE_CHECKING:
    from tollhouse.api.asgi import Receive, Scope, Send
    from tollhouse.inference.exchange import Exchange, Sink
    from tollhouse.inference.pipeline import Pipeline
    from tollhouse.kernel.clock import Clock

_EVENT_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # A reverse proxy that buffers would hold the stream back.
    (b"x-accel-buffering", b"no"),
)
_LONGEST_ATTRIBUTION = 512


class HotRoute(Protocol):
    """A route without a framework."""

    async def __call__(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Answer a request whose caller is in the scope.

        Raises:
            TollhouseError: The request is refused; nothing was sent.
        """
        ...


Read = Callable[[bytes], tuple[ClientRequest, tuple[Relay, ...]]]
"""Parses a body in a client's format; raises `Invalid`."""


def read_chat(body: bytes) -> tuple[ClientRequest, tuple[Relay, ...]]:
    """Read the body of `POST /chat/completions`."""
    request = chat_completions.parse_request(body)
    return request, (ChatRelay(request),)


def read_embeddings(body: bytes) -> tuple[ClientRequest, tuple[Relay, ...]]:
    """Read the body of `POST /embeddings`."""
    request = embeddings.parse_request(body)
    return request, (EmbeddingsRelay(request),)


READERS: Final[Mapping[str, Read]] = {
    "/chat/completions": read_chat,
    "/embeddings": read_embeddings,
}
"""Path to format."""


class Inference:
    """`POST` of a request to a model, in one format."""

    def __init__(self, read: Read, pipeline: Pipeline, clock: Clock, body_limit: int) -> None:
        """Take the format and what the route needs."""
        self._read = read
        self._pipeline = pipeline
        self._clock = clock
        self._body_limit = body_limit

    async def __call__(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Relay a request.

        Raises:
            TollhouseError: The request is refused, or failed before its first byte.
        """
        subject = billed_to(scope)
        received_at, received_monotonic = self._clock.now(), self._clock.monotonic()
        body = await read_body(receive, headers, self._body_limit)
        request, relays = self._read(body)
        exchange = self._pipeline.begin(
            Call(
                request,
                relays,
                subject,
                attribution(headers),
                received_at,
                received_monotonic,
            )
        )
        scope["tollhouse.exchange"] = exchange
        scope[ON_GONE] = exchange.abandon
        try:
            if request.stream:
                await _send_stream(exchange, send, scope.get(SINK))
            else:
                await _send_whole(exchange, send)
        finally:
            # Does nothing after the end; without it a failing send would leave the call running.
            exchange.abandon()


def attribution(headers: Mapping[bytes, bytes]) -> Attribution:
    """Return what a request's headers say of the program that sent it."""
    return Attribution(
        http_referer=_text(headers, b"http-referer") or _text(headers, b"referer"),
        app_title=_text(headers, b"x-openrouter-title") or _text(headers, b"x-title"),
        user_agent=_text(headers, b"user-agent"),
        session_id=_text(headers, b"x-session-id"),
    )


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    if value is None:
        return None
    # A NUL is no text to PostgreSQL.
    return value[:_LONGEST_ATTRIBUTION].decode("utf-8", "replace").replace("\0", "")


async def _send_whole(exchange: Exchange, send: Send) -> None:
    body = await exchange.read()
    headers = [
        JSON,
        (b"content-length", str(len(body)).encode()),
        (b"x-generation-id", exchange.generation_id.encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_stream(exchange: Exchange, send: Send, sink: Sink | None) -> None:
    data = await exchange.read()
    headers = [*_EVENT_STREAM, (b"x-generation-id", exchange.generation_id.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    while not exchange.drained:
        # This waits while the client is behind; the sink does not.
        await send({"type": "http.response.body", "body": data, "more_body": True})
        if sink is not None:
            await exchange.pour(sink)
        data = await exchange.read()
    await send({"type": "http.response.body", "body": data})

"""Routes on the way of every inference request: plain ASGI, without a framework between.

A framework's routing, validation and middleware cost more than the relay itself (15 to 300 us of
CPU a request), so these routes stand in a dict in front of it, and are described in the OpenAPI
document like all others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from tollhouse.api import policy
from tollhouse.api.asgi import JSON, ON_GONE, SINK, respond
from tollhouse.api.body_memory import BodyMemory
from tollhouse.api.limits import ClientGone, read_body
from tollhouse.identity.access import billed_to
from tollhouse.inference.attribution import attribution
from tollhouse.inference.formats.registry import (
    FORMATS,
    RawRequest,
    forwarded_headers,
    forwarded_query,
)
from tollhouse.inference.sse import EVENT_STREAM
from tollhouse.inference.steps import ask_count, question_count, read_count
from tollhouse.inference.types import Dialect
from tollhouse.kernel.clock import Now
from tollhouse.kernel.money import format_credits
from tollhouse.observability.request_log import log_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tollhouse.api.asgi import Receive, Scope, Send
    from tollhouse.inference.call import Call
    from tollhouse.inference.formats.registry import ApiFormat
    from tollhouse.inference.guardrails.gate import Guardrails
    from tollhouse.inference.pipeline import Pipeline
    from tollhouse.inference.reply_buffer import GenerationOutcome, ReplyBuffer, Sink
    from tollhouse.inference.steps import Steps
    from tollhouse.inference.token_count import TokenCounter
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.errors import TollhouseError
    from tollhouse.settings.sections import ServerSettings

_KEEP_ALIVE = b": TOLLHOUSE PROCESSING\n\n"
"""A comment: every reader of event streams passes over it."""


class HotRoute(Protocol):
    """A route without a framework."""

    @property
    def method(self) -> str:
        """The one that it takes."""
        ...

    @property
    def refuse(self) -> Callable[[TollhouseError, str | None], Mapping[str, object]]:
        """Return the body of an error; the second argument is the generation's id."""
        ...

    async def __call__(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Answer a request whose caller is in the scope.

        Raises:
            TollhouseError: The request is refused; nothing was sent.
        """
        ...


@dataclass(frozen=True, slots=True)
class LargeBodies:
    """What keeps large bodies from holding up the others."""

    memory: BodyMemory
    steps: Steps

    @classmethod
    def of(cls, settings: ServerSettings, steps: Steps) -> LargeBodies:
        """Return it with the memory that the settings allow."""
        most, seconds = settings.large_body_memory_bytes, settings.large_body_wait_seconds
        return cls(BodyMemory(most, seconds), steps)


class Inference:
    """`POST` of a request to a model, in one format."""

    method = "POST"

    def __init__(
        self,
        spoken: ApiFormat,
        pipeline: Pipeline,
        clock: Clock,
        settings: ServerSettings,
        large: LargeBodies,
    ) -> None:
        """Take the format and what the route needs."""
        self._large = large
        self._format = spoken
        self.refuse = spoken.render_error
        self._pipeline = pipeline
        self._clock = clock
        self._body_limit = settings.body_limit_bytes
        self._keep_alive_seconds = settings.keep_alive_seconds

    async def __call__(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Relay a request.

        Raises:
            TollhouseError: The request is refused, or failed before its first byte.
        """
        subject = billed_to(scope)
        with self._large.memory.hold(subject.account_id) as hold:
            now = Now.by(self._clock)
            body = await read_body(receive, headers, self._body_limit, hold)
            arrived = RawRequest(body, headers, scope["query_string"])
            scope[ON_GONE] = (gone := asyncio.Event()).set
            said = attribution(headers)
            call = await self._large.steps.read(self._format, arrived, subject, said, now)
            if gone.is_set():
                raise ClientGone
            await self._relay(scope, call, send)

    async def _relay(self, scope: Scope, call: Call, send: Send) -> None:
        exchange = self._pipeline.begin(call)
        subject = call.subject
        scope["tollhouse.exchange"] = exchange
        exchange.on_outcome = partial(_log, scope["path"], subject.label, exchange.generation_id)
        scope[ON_GONE] = exchange.client_left
        try:
            if call.request.stream:
                exchange.keep_alive(self._keep_alive_seconds, _KEEP_ALIVE)
                await _send_stream(exchange, send, scope.get(SINK))
            else:
                await _send_whole(exchange, send)
        finally:
            # Does nothing after the end; without it a failing send would leave the call running.
            exchange.client_left()


def _log(path: str, key_label: str, generation_id: str, outcome: GenerationOutcome) -> None:
    log_request(
        method=Inference.method,
        route=policy.api_path(path),
        status=outcome.status,
        error=outcome.error,
        ms=outcome.milliseconds,
        first_token_ms=outcome.first_byte_milliseconds,
        model=outcome.model,
        provider=outcome.provider,
        cost=format_credits(outcome.cost_nano),
        key_label=key_label,
        generation=generation_id,
    )


class CountTokens:
    """`POST /messages/count_tokens`: how many tokens a request would take; nothing is booked."""

    method = "POST"

    def __init__(
        self,
        counter: TokenCounter,
        guardrails: Guardrails,
        settings: ServerSettings,
        large: LargeBodies,
    ) -> None:
        """Take what the route needs."""
        self._large = large
        self.refuse = FORMATS["/messages"].render_error
        self._guardrails = guardrails
        self._counter = counter
        self._body_limit = settings.body_limit_bytes

    async def __call__(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Count.

        Raises:
            TollhouseError: The request is refused.
        """
        subject = billed_to(scope)
        with self._large.memory.hold(subject.account_id) as hold:
            body = await read_body(receive, headers, self._body_limit, hold)
            arrived = RawRequest(body, headers, scope["query_string"])
            run = partial(self._large.steps.run, subject.account_id, len(body))
            request = await run(read_count, body, subject.policies)
            asks = partial(run, question_count, body, subject, Dialect.COUNT_TOKENS)
            await self._guardrails.check(subject, asks)
            tokens = await self._counter.count(
                request,
                partial(run, ask_count, body),
                forwarded_query(arrived),
                forwarded_headers(arrived),
                subject.policies,
            )
        await respond(send, 200, [JSON], msgspec.json.encode({"input_tokens": tokens}))


def _of_exchange(exchange: ReplyBuffer) -> list[tuple[bytes, bytes]]:
    headers = [(b"x-generation-id", exchange.generation_id.encode())]
    if exchange.output_limit is not None:
        headers.append((b"x-max-tokens", str(exchange.output_limit).encode()))
    return headers


async def _send_whole(exchange: ReplyBuffer, send: Send) -> None:
    body = await exchange.read()
    headers = [
        JSON,
        (b"content-length", str(len(body)).encode()),
        *_of_exchange(exchange),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_stream(exchange: ReplyBuffer, send: Send, sink: Sink | None) -> None:
    data = await exchange.read()
    headers = [*EVENT_STREAM, *_of_exchange(exchange)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    while not exchange.drained:
        # This waits while the client is behind; the sink does not.
        await send({"type": "http.response.body", "body": data, "more_body": True})
        if sink is not None:
            await exchange.stream_to(sink)
        data = await exchange.read()
    await send({"type": "http.response.body", "body": data})

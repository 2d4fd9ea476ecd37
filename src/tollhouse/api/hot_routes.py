"""Routes on the way of every inference request: plain ASGI, without a framework between.

A framework's routing, validation and middleware cost more than the relay itself (15 to 300 us of
CPU a request), so these routes stand in a dict in front of it, and are described in the OpenAPI
document like all others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tollhouse.api import request_rules
from tollhouse.api.asgi import JSON, ON_GONE, Receive, Scope, Send, respond
from tollhouse.api.request_bodies import BodyMemory, ClientGone, read_body, without_mark
from tollhouse.identity.access import billed_to
from tollhouse.inference.formats.registry import FORMATS, forwarded_headers, forwarded_query
from tollhouse.inference.reply_buffer import Reply
from tollhouse.inference.request import InferenceRequest, attribution
from tollhouse.inference.sse import EVENT_STREAM
from tollhouse.inference.steps import Steps, parse_checked
from tollhouse.inference.token_count import TokenCounter, ask_count, question_count, read_count
from tollhouse.kernel.clock import Clock, Now
from tollhouse.kernel.eager_task import Waiter
from tollhouse.kernel.money import format_credits
from tollhouse.observability.server_log import FinishedRequest, log_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tollhouse.api.exchange import Exchange
    from tollhouse.identity.types import Subject
    from tollhouse.inference.formats.registry import ApiFormat
    from tollhouse.inference.guardrails import Guardrails
    from tollhouse.inference.own_routing import OwnKeyUse
    from tollhouse.inference.pipeline import Pipeline
    from tollhouse.inference.reply_buffer import GenerationOutcome, ReplyBuffer
    from tollhouse.kernel.errors import TollhouseError
    from tollhouse.settings.sections import ServerSettings

COUNT_TOKENS: Final = "/messages/count_tokens"
_KEEP_ALIVE = b": TOLLHOUSE PROCESSING\n\n"
"""A comment: every reader of event streams passes over it."""


class HotRoute(Protocol):
    """A route without a framework; it takes `POST` alone."""

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


@dataclass(frozen=True, slots=True)
class Inference:
    """`POST` of a request to a model, in one format."""

    _format: ApiFormat
    _pipeline: Pipeline
    _clock: Clock
    _settings: ServerSettings
    _large: LargeBodies

    @property
    def refuse(self) -> Callable[[TollhouseError, str | None], Mapping[str, object]]:
        """Return the body of an error in this format."""
        return self._format.render_error

    @property
    def largest_body(self) -> int:
        """The bytes of the largest request."""
        return self._settings.body_limit_bytes

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
            body = await read_body(receive, headers, self._settings.body_limit_bytes, hold)
            request = InferenceRequest(
                self._format,
                body,
                headers,
                scope["query_string"],
                subject,
                attribution(headers),
                now,
            )
            scope[ON_GONE] = (gone := asyncio.Event()).set
            await self._large.steps.parse(request)
            if gone.is_set():
                raise ClientGone
            await self._relay(scope, request, send)

    def handle(
        self,
        exchange: Exchange,
        path: str,
        subject: Subject,
        refuse: Callable[[Exchange, TollhouseError, Reply], None],
    ) -> None:
        """Relay a request whose body is here and small, to a path below the version segment.

        `refuse` answers it where there is no reply but an error.

        Raises:
            TollhouseError: The request is refused; nothing was sent.
        """
        request = InferenceRequest(
            self._format,
            without_mark(exchange.body),
            exchange.headers,
            exchange.query,
            subject,
            attribution(exchange.headers),
            Now.by(self._clock),
        )
        parse_checked(request)
        self._pipeline.prepare(request)
        reply = ExchangeReply(exchange, request, refuse)
        reply.on_outcome = partial(_log, path, subject.label, reply.generation_id)
        if request.parsed.stream:
            reply.keep_alive(self._settings.keep_alive_seconds, _KEEP_ALIVE)
        self._pipeline.run(request, reply)

    async def _relay(self, scope: Scope, request: InferenceRequest, send: Send) -> None:
        exchange = self._pipeline.begin(request)
        subject = request.subject
        scope["tollhouse.exchange"] = exchange
        path = request_rules.api_path(scope["path"])
        exchange.on_outcome = partial(_log, path, subject.label, exchange.generation_id)
        scope[ON_GONE] = exchange.client_left
        try:
            if request.parsed.stream:
                exchange.keep_alive(self._settings.keep_alive_seconds, _KEEP_ALIVE)
                await _send_stream(exchange, send)
            else:
                await _send_whole(exchange, send)
        finally:
            # Does nothing after the end; without it a failing send would leave the call running.
            exchange.client_left()


def _log(path: str | None, key_label: str, generation_id: str, outcome: GenerationOutcome) -> None:
    line = FinishedRequest(
        method="POST",
        route=path,
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
    log_request(line)


@dataclass(frozen=True, slots=True)
class CountTokens:
    """`POST /messages/count_tokens`: how many tokens a request would take; nothing is booked."""

    _counter: TokenCounter
    _guardrails: Guardrails
    _settings: ServerSettings
    _large: LargeBodies
    _own_keys_of: Callable[[Subject], Awaitable[OwnKeyUse]]
    refuse = staticmethod(FORMATS["/messages"].render_error)

    async def __call__(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Count.

        Raises:
            TollhouseError: The request is refused.
        """
        subject = billed_to(scope)
        with self._large.memory.hold(subject.account_id) as hold:
            body = await read_body(receive, headers, self._settings.body_limit_bytes, hold)
            run = partial(self._large.steps.run, subject.account_id, len(body))
            request = await run(read_count, body, subject.policies)
            asks = partial(run, question_count, body, subject, COUNT_TOKENS)
            await self._guardrails.check(subject, asks)
            tokens = await self._counter.count(
                request,
                partial(run, ask_count, body),
                forwarded_query(scope["query_string"]),
                forwarded_headers(headers),
                subject.policies,
                await self._own_keys_of(subject),
            )
        await respond(send, 200, [JSON], msgspec.json.encode({"input_tokens": tokens}))


def _of_reply(reply: Reply) -> list[tuple[bytes, bytes]]:
    headers = [(b"x-generation-id", reply.generation_id.encode())]
    if reply.output_limit is not None:
        headers.append((b"x-max-tokens", str(reply.output_limit).encode()))
    return headers


async def _send_whole(exchange: ReplyBuffer, send: Send) -> None:
    body = await exchange.read()
    headers = [JSON, *_of_reply(exchange), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_stream(exchange: ReplyBuffer, send: Send) -> None:
    data = await exchange.read()
    headers = [*EVENT_STREAM, *_of_reply(exchange)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    while not exchange.drained:
        await send({"type": "http.response.body", "body": data, "more_body": True})
        data = await exchange.read()
    await send({"type": "http.response.body", "body": data})


class ExchangeReply(Reply):
    """A reply that goes straight to the client's connection."""

    def __init__(
        self,
        exchange: Exchange,
        request: InferenceRequest,
        refuse: Callable[[Exchange, TollhouseError, Reply], None],
    ) -> None:
        """Answer a prepared request; `refuse` answers it where there is no reply but an error."""
        super().__init__(request.generation_id)
        self._exchange = exchange
        self._is_stream = request.parsed.stream
        self._refuse = refuse
        exchange.on_gone = self.client_left
        if self._is_stream:
            self._writable = Waiter(asyncio.get_running_loop())
            exchange.on_writable = self._writable.wake

    async def room(self) -> None:
        """Wait until the client is no longer far behind, or has gone away."""
        if not self.abandoned:
            await self._writable

    def _hand_over(self, data: bytes) -> bool:
        if not self.begun:
            self._begin()
        return self._exchange.write(data)

    def _hand_over_last(self, data: bytes) -> None:
        if not self._is_stream:
            self._exchange.respond(200, [JSON, *_of_reply(self)], data)
            return
        if not self.begun:
            self._begin()
        self._exchange.finish(data)

    def _begin(self) -> None:
        self._exchange.begin(200, [*EVENT_STREAM, *_of_reply(self)])

    def _fail(self, error: TollhouseError) -> None:
        self._refuse(self._exchange, error, self)

    def _drop(self) -> None:
        if self._is_stream:
            self._writable.wake()

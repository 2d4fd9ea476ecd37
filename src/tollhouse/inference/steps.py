"""The steps of a request whose time grows with its body, on the event loop or in a worker process.

A small body is handled on the loop. A large one would block the loop, so a worker handles it with
the same functions. It gets the body as the client sent it, and returns what the gateway
needs: first the call without its texts, then the body for a provider. It keeps nothing in between,
so each step can go to any worker.

A stream goes to a worker with a large event, and comes back as it stands after that event.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tollhouse.inference import policy_filter
from tollhouse.inference.call import LargeRequest
from tollhouse.inference.formats.adapter import without_content
from tollhouse.inference.formats.fields import fields_decoder
from tollhouse.inference.formats.messages.count_tokens import render_count
from tollhouse.inference.formats.messages.request import parse_request as parse_messages
from tollhouse.inference.formats.registry import FORMAT_HEADERS, RawRequest
from tollhouse.inference.guardrails.verdicts import question
from tollhouse.inference.request_parsing import limited, read_call
from tollhouse.inference.token_estimate import count_images, demand
from tollhouse.inference.workers.pool import WorkerGone, WorkerPool
from tollhouse.kernel.errors import Bug, Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tollhouse.accounting.types import Attribution, Charge, Usage
    from tollhouse.identity.types import AccessPolicy, Subject
    from tollhouse.inference.call import Call
    from tollhouse.inference.formats.adapter import AdaptedResponse, AdaptedStream, FormatAdapter
    from tollhouse.inference.formats.messages.request import MessagesRequest
    from tollhouse.inference.formats.registry import ApiFormat, ParsedRequest
    from tollhouse.inference.routing import Candidate
    from tollhouse.inference.types import Dialect, Endpoint, ReplyIdentity
    from tollhouse.kernel.clock import Now

R = TypeVar("R")
LARGE: Final = 256 * 1024
"""Bytes; a larger body goes to a worker. One of this size takes about 20 ms at most."""


class Steps:
    """Does each step on the event loop or in a worker, depending on the size of the body."""

    def __init__(self, pool: WorkerPool | None = None) -> None:
        """Take the workers; without them every step is done on the event loop."""
        self._pool = pool

    async def read(
        self,
        api_format: ApiFormat,
        raw_request: RawRequest,
        subject: Subject,
        said: Attribution,
        now: Now,
    ) -> Call:
        """Parse a request, and check its texts against the caller's policies.

        Args:
            api_format: The request's format.
            raw_request: The request.
            subject: The key that asks, whose account pays.
            said: The program that sent it, according to its headers.
            now: When it came.

        Raises:
            Invalid: It does not follow its format, or its routing preferences make no sense.
            Forbidden: A policy forbids what it contains.
        """
        if self._pool is None or len(raw_request.body) <= LARGE:
            return _read(api_format, raw_request, subject, said, now)
        names = (name for name in FORMAT_HEADERS if name in raw_request.headers)
        raw_request = replace(
            raw_request, headers={name: raw_request.headers[name] for name in names}
        )
        call = await self._pool.run(
            subject.account_id, _read_large, api_format, raw_request, subject, said, now
        )
        return replace(call, subject=subject)

    async def ask(self, call: Call, candidate: Candidate) -> tuple[FormatAdapter, bytes]:
        """Return the body to send to an endpoint's provider, and the adapter for its reply.

        Raises:
            Invalid: The request cannot be translated into the provider's dialect.
        """
        if call.large is None or self._pool is None:
            return candidate.adapter, candidate.adapter.render_request(candidate.endpoint)
        owner, large = call.subject.account_id, call.large
        dialect = candidate.adapter.dialect
        return await self._pool.run(
            owner, _ask_large, large.api_format, large.raw_request, dialect, candidate.endpoint
        )

    async def limit(self, call: Call, output_tokens: int) -> Call:
        """Return the call with an output limit, as if the request had set `max_tokens`."""
        if call.large is None or self._pool is None:
            return call.limited(output_tokens)
        return await self._pool.run(call.subject.account_id, _limit_large, call, output_tokens)

    async def whole(
        self, owner: str, adapter: FormatAdapter, body: bytes, repeated: int
    ) -> AdaptedResponse:
        """Parse a provider's reply that is not streamed; see `Relay.whole`.

        Args:
            owner: The account.
            adapter: The request's.
            body: The reply.
            repeated: Bytes of the request that the client's reply may repeat.
        """
        if len(body) + repeated <= LARGE:
            return adapter.parse_response(body)
        return await self.run_for_reply(
            owner, len(body) + repeated, _read_reply, adapter.without_content(), body
        )

    async def render(
        self, owner: str, whole: AdaptedResponse, identity: ReplyIdentity, charge: Charge
    ) -> bytes:
        """Return the body that the client gets for a reply that is not streamed."""
        size = LARGE + 1 if isinstance(whole, _LargeReply) else 0
        return await self.run_for_reply(owner, size, whole.render, identity, charge)

    async def run_for_reply(
        self,
        owner: str,
        size: int,
        function: Callable[..., R],
        *arguments: Any,  # noqa: ANN401
    ) -> R:
        """Call a function as `run` does, but on the event loop if the worker ends.

        The provider has already done the work, so its reply must not be lost.
        """
        with suppress(WorkerGone):
            return await self.run(owner, size, function, *arguments)
        return function(*arguments)

    async def question(self, call: Call, generation_id: str) -> bytes:
        """Return the body that is sent to guardrails; see `verdicts.question`."""
        subject, dialect, large = call.subject, call.adapters[0].dialect, call.large
        if large is None or self._pool is None:
            return question(subject, call.request, dialect, generation_id)
        return await self._pool.run(
            subject.account_id,
            _question_large,
            large.api_format,
            large.raw_request,
            subject,
            dialect,
            generation_id,
        )

    async def excerpt(self, call: Call) -> str:
        """Return a short excerpt of the last message; see `access.excerpt`."""
        if call.large is None or self._pool is None:
            return policy_filter.excerpt(call.request.fields)
        return await self._pool.run(
            call.subject.account_id, _excerpt_large, call.large.raw_request.body
        )

    async def run(
        self,
        owner: str,
        size: int,
        function: Callable[..., R],
        *arguments: Any,  # noqa: ANN401
    ) -> R:
        """Call a function whose time grows with a body, in a worker if the body is large.

        Args:
            owner: The account; accounts take turns at the workers.
            size: Bytes of the body.
            function: A function of a module, without state, because it may run in another process.
            arguments: Its arguments, which can be pickled.

        Raises:
            WorkerGone: The worker ended before it answered.
        """
        if self._pool is None or size <= LARGE:
            return function(*arguments)
        return await self._pool.run(owner, function, *arguments)

    async def close(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            await self._pool.close()


# The functions that a worker calls


def _read(
    api_format: ApiFormat, raw_request: RawRequest, subject: Subject, said: Attribution, now: Now
) -> Call:
    call = read_call(api_format, raw_request, subject, said, now)
    if subject.policies:
        policy_filter.require_unflagged(subject.policies, raw_request.body)
    return call


def _read_large(
    api_format: ApiFormat, raw_request: RawRequest, subject: Subject, said: Attribution, now: Now
) -> Call:
    return without_texts(
        _read(api_format, raw_request, subject, said, now), api_format, raw_request
    )


def without_texts(call: Call, api_format: ApiFormat, raw_request: RawRequest) -> Call:
    """Return the call of a large body without its texts, with their weight and number of images."""
    call = replace(call, with_limit=_unread)
    large = LargeRequest(api_format, raw_request, demand(call.request), count_images(call.request))
    parsed = call.preferences.require_parameters
    adapters = tuple(_without_text(adapter, parsed=parsed) for adapter in call.adapters)
    return replace(call, request=without_content(call.request), adapters=adapters, large=large)


def _limit_large(call: Call, output_tokens: int) -> Call:
    large = call.large
    if large is None:
        raise Bug("a call that is not large")
    request, _ = large.api_format.parse(large.raw_request)
    raw_request = limited(large.raw_request, request, output_tokens)
    request, adapters = large.api_format.parse(raw_request)
    parsed = call.preferences.require_parameters
    return replace(
        call,
        request=without_content(request),
        adapters=tuple(_without_text(adapter, parsed=parsed) for adapter in adapters),
        large=replace(large, raw_request=raw_request),
    )


def _unread(_output_tokens: int) -> ParsedRequest:
    raise Bug("a large request is limited by a worker")


def _without_text(adapter: FormatAdapter, *, parsed: bool) -> FormatAdapter:
    try:
        return adapter.without_content(parsed=parsed)
    except Invalid:
        return (
            adapter.without_content()
        )  # `ask` raises the same error for each endpoint of this dialect


def _ask_large(
    api_format: ApiFormat, raw_request: RawRequest, dialect: Dialect, endpoint: Endpoint
) -> tuple[FormatAdapter, bytes]:
    _, adapters = api_format.parse(raw_request)
    adapter = next(each for each in adapters if each.dialect == dialect)
    body = adapter.render_request(endpoint)
    return adapter.without_content(), body


def _question_large(
    api_format: ApiFormat,
    raw_request: RawRequest,
    subject: Subject,
    dialect: Dialect,
    generation_id: str,
) -> bytes:
    request, _ = api_format.parse(raw_request)
    return question(subject, request, dialect, generation_id)


def _excerpt_large(body: bytes) -> str:
    return policy_filter.excerpt(fields_decoder.decode(body))


def read_count(body: bytes, policies: Sequence[AccessPolicy]) -> MessagesRequest:
    """Parse a request to count tokens, and return it without its texts.

    Raises:
        Invalid: It does not follow its format.
        Forbidden: A policy forbids what it contains.
    """
    request = parse_messages(body)
    if policies:
        policy_filter.require_unflagged(policies, body)
    return without_content(request)


def ask_count(body: bytes, endpoint: Endpoint) -> bytes:
    """Return the body that asks an endpoint's provider to count tokens."""
    return render_count(parse_messages(body), endpoint)


def question_count(body: bytes, subject: Subject, dialect: Dialect) -> bytes:
    """Return the body that is sent to guardrails about a request to count tokens."""
    return question(subject, parse_messages(body), dialect, None)


@dataclass(frozen=True, slots=True)
class _LargeReply:
    """What a worker found in a large reply; `render` parses the body again for its texts."""

    adapter: FormatAdapter
    body: bytes
    reported: Usage | None
    seen: Usage
    finish_reason: str | None
    native_finish_reason: str | None
    upstream_id: str | None

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        return self.adapter.parse_response(self.body).render(identity, charge)


def feed(stream: AdaptedStream, data: bytes) -> tuple[AdaptedStream, bytes]:
    """Return a stream after an event, and what the client gets of it; see `Stream.feed`."""
    out = stream.feed(data)
    return stream, out


def _read_reply(adapter: FormatAdapter, body: bytes) -> _LargeReply:
    whole = adapter.parse_response(body)
    return _LargeReply(
        adapter,
        body,
        whole.reported,
        whole.seen,
        whole.finish_reason,
        whole.native_finish_reason,
        whole.upstream_id,
    )

"""The steps of a request: plain functions for `generation`, on the event loop or in a worker.

A body that is small is handled on the loop. A large one would block the loop, so a worker handles
it with the same functions. The worker gets the body as the client sent it, and keeps nothing in
between, so each step can go to any worker: first it parses the request, which is small then, and
later each step that needs the conversation gets the body, too.

A stream goes to a worker with a large event, and comes back as it stands after that event.
"""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from tollhouse.accounting.pricing import FULL_PRICE, charge_for, with_own_key
from tollhouse.accounting.types import (
    FREE,
    Charge,
    CostState,
    GenerationRecord,
    Usage,
    attempts_json,
)
from tollhouse.inference import policy_filter
from tollhouse.inference.admission import demand_of, uses_free_limits
from tollhouse.inference.formats.adapter import AdaptedResponse, ErrorEvent, MalformedResponse
from tollhouse.inference.formats.provider_errors import error_in_place_of_reply
from tollhouse.inference.formats.registry import FORMAT_HEADERS
from tollhouse.inference.formats.wire import estimate_tokens
from tollhouse.inference.request import parse
from tollhouse.inference.types import ReplyIdentity
from tollhouse.inference.workers.pool import StepTooLong, WorkerGone, WorkerPool
from tollhouse.kernel.eager_task import in_task
from tollhouse.kernel.errors import ProviderFailure
from tollhouse.kernel.json_text import first_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from tollhouse.inference.formats.adapter import AdaptedStream, ClientRequest, FormatAdapter
    from tollhouse.inference.formats.registry import Adapters
    from tollhouse.inference.ports import OpenedReply
    from tollhouse.inference.request import InferenceRequest
    from tollhouse.inference.types import Endpoint

R = TypeVar("R")
LARGE: Final = 256 * 1024
"""Bytes; a larger body goes to a worker. One of this size takes about 20 ms at most."""


class Steps:
    """Runs steps on the event loop or in a worker, depending on the size of the body."""

    def __init__(self, pool: WorkerPool | None = None) -> None:
        self._pool = pool

    def is_large(self, size: int) -> bool:
        """Tell whether a worker takes a body of so many bytes; other steps are plain calls."""
        return size > LARGE and self._pool is not None

    async def parse(self, request: InferenceRequest) -> None:
        """Fill in what a request asks for, and check its texts against the caller's policies.

        Raises:
            Invalid: It does not follow its format, or its routing preferences make no sense.
            Forbidden: A policy forbids what it contains.
        """
        if self._pool is None or len(request.body) <= LARGE:
            parse_checked(request)
        else:
            await self._fill(self._pool, request, _parse_large)

    async def limit_output(self, request: InferenceRequest, tokens: int) -> None:
        """Limit a request's output, as if it had set `max_tokens`."""
        if self._pool is None or len(request.body) <= LARGE:
            request.limit_output(tokens)
        else:
            await self._fill(self._pool, request, _limit_large, tokens)

    async def on_content(
        self, request: InferenceRequest, function: Callable[..., R], *arguments: object
    ) -> R:
        """Call a function that reads a request's body, which is its last argument."""
        if self._pool is None or len(request.body) <= LARGE:
            return function(*arguments, request.body)
        await in_task()
        return await self._pool.run(request.subject.account_id, function, *arguments, request.body)

    async def parse_response(
        self, owner: str, adapter: FormatAdapter, body: bytes, repeated: int
    ) -> AdaptedResponse:
        """Parse a provider's response that is not streamed; see `FormatAdapter.parse_response`.

        The client's response may repeat so many bytes of the request.
        """
        size = len(body) + repeated
        if size <= LARGE:
            return parse_response(adapter, body)
        return await self.run_for_reply(owner, size, _parse_large_response, adapter, body)

    async def run_for_reply(
        self, owner: str, size: int, function: Callable[..., R], *arguments: object
    ) -> R:
        """Call a function as `run` does, but on the event loop if the worker ends.

        The provider has already done the work, so its reply must not be lost.

        Raises:
            MalformedResponse: It took too long: on the event loop everybody would wait for it.
        """
        if self._pool is not None and size > LARGE:
            with suppress(WorkerGone):
                try:
                    return await self.run(owner, size, function, *arguments)
                except StepTooLong:
                    raise MalformedResponse("the reply takes too long to read") from None
        return function(*arguments)

    async def run(self, owner: str, size: int, function: Callable[..., R], *arguments: object) -> R:
        """Call a function whose time grows with a body, in a worker if the body is large.

        Accounts take turns at the workers. As it may run in another process, the function is one
        of a module, without state, and its arguments can be pickled.

        Raises:
            WorkerGone: The worker ended before it answered.
            StepTooLong: It did not answer in time.
        """
        if self._pool is None or size <= LARGE:
            return function(*arguments)
        await in_task()
        return await self._pool.run(owner, function, *arguments)

    async def close(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            await self._pool.close()

    async def _fill(
        self,
        pool: WorkerPool,
        request: InferenceRequest,
        function: Callable[..., InferenceRequest],
        *arguments: object,
    ) -> None:
        owner = request.subject.account_id
        await in_task()
        request.fill(await pool.run(owner, function, _for_worker(request), *arguments))


def _for_worker(request: InferenceRequest) -> InferenceRequest:
    """Return a copy that is not parsed, with the headers that a format reads."""
    headers = request.headers
    needed = {name: headers[name] for name in FORMAT_HEADERS if name in headers}
    return dataclasses.replace(request, headers=needed)


# Functions that a worker calls if the body is large


def parse_checked(request: InferenceRequest) -> None:
    """Parse a request, and check its texts against the caller's policies; see `Steps.parse`."""
    parse(request)
    if request.subject.policies:
        policy_filter.require_unflagged(request.subject.policies, request.body)


def _parse_large(request: InferenceRequest) -> InferenceRequest:
    parse_checked(request)
    demand_of(request)
    return request


def _limit_large(request: InferenceRequest, tokens: int) -> InferenceRequest:
    request.parse_body()
    request.limit_output(tokens)
    return request


def render_request(
    adapter: FormatAdapter, endpoint: Endpoint, body: bytes
) -> tuple[FormatAdapter, bytes]:
    """Return the adapter for a provider's response, and the body that the provider is sent."""
    rendered = adapter.render_request(body, endpoint)
    return adapter, rendered


def excerpt(request: ClientRequest, body: bytes) -> str:
    """Return a short excerpt of the last message; see `policy_filter.excerpt`."""
    return policy_filter.excerpt(request.whole(body))


def reply_reader(
    adapters: Adapters, adapter: FormatAdapter, reply: bytes, body: bytes
) -> FormatAdapter:
    """Return the adapter that reads a whole reply; see `Adapters.reader`."""
    return adapters.reader(adapter, reply, body)


def reply_identity(request: InferenceRequest) -> ReplyIdentity:
    """Return what every piece of the reply says of itself, once its endpoint is chosen."""
    tokens = 0
    if request.parsed.stream:
        # Media do not count with their bytes, and text not with all that a hold has to allow for.
        tokens = min(demand_of(request).input_tokens, estimate_tokens(request.parsed.size))
    provider = request.provider_name or ""
    return ReplyIdentity(
        request.generation_id,
        request.model.id,
        provider,
        request.created_ms // 1000,
        maker="" if request.candidate is None else request.candidate.endpoint.provider,
        input_tokens=tokens,
    )


def feed(stream: AdaptedStream, data: bytes) -> tuple[AdaptedStream, bytes]:
    """Return a stream after an event, and what the client gets of it; see `AdaptedStream.feed`."""
    out = stream.feed(data)
    return stream, out


@dataclasses.dataclass(slots=True, repr=False)
class _LargeResponse(AdaptedResponse):
    """What a worker found in a large response; `render` parses the body again for its texts."""

    adapter: FormatAdapter
    body: bytes

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        return self.adapter.parse_response(self.body).render(identity, charge)


def rendered_size(response: AdaptedResponse) -> int:
    """Return how many bytes a parsed response has to be rendered from: a worker's are large.

    Where its own body is small, it repeats a large request.
    """
    # `isinstance` of an abstract class is slow.
    return max(LARGE + 1, len(response.body)) if type(response) is _LargeResponse else 0


def parse_response(adapter: FormatAdapter, body: bytes) -> AdaptedResponse:
    """Parse a provider's response that is not streamed; see `FormatAdapter.parse_response`."""
    return _parsed(adapter, body)[0]


def _parsed(adapter: FormatAdapter, body: bytes) -> tuple[AdaptedResponse, bytes]:
    """Return a provider's response and its body, without what some servers add behind it.

    One that says nothing but that it failed is an error in place of a response.
    """
    try:
        found = adapter.parse_response(body)
    except MalformedResponse:
        if error := error_in_place_of_reply(body):
            raise error from None
        alone = first_value(body)
        if len(alone) == len(body):
            raise
        found, body = adapter.parse_response(alone), alone
    if found.finish_reason == "error" and not found.seen.output_tokens:
        raise ErrorEvent(found.native_finish_reason, None)
    return found, body


def _parse_large_response(adapter: FormatAdapter, body: bytes) -> _LargeResponse:
    found, body = _parsed(adapter, body)
    return _LargeResponse(
        found.reported,
        found.seen,
        found.finish_reason,
        found.native_finish_reason,
        found.upstream_id,
        adapter,
        body,
    )


async def take_rest(reply: OpenedReply, stream: AdaptedStream, seconds: float) -> None:
    """Let a stream that is done take what comes soon: some servers tell the usage there."""

    def take(events: Sequence[bytes]) -> bool:
        for data in events:
            stream.feed(data)
        return True

    await in_task()
    with suppress(TimeoutError, ProviderFailure, ErrorEvent):
        async with asyncio.timeout(seconds):
            await reply.relay(take)


# What a generation costs


def charge(
    request: InferenceRequest,
    finish_reason: str | None,
    *,
    broken_off: bool,
    left: bool = False,
    fee: Fraction | None = None,
) -> Charge:
    """Return what a generation costs, as far as it came.

    `left`: the client did not wait; `fee`: the part of the price that it costs with an own key,
    None for the gateway's.
    """
    response, candidate = request.response, request.candidate
    if response is None:
        seen, reported = Usage(input_tokens=estimate_tokens(request.parsed.size)), None
    else:
        seen, reported = response.seen, response.reported
        if reported is not None and not reported.output_tokens and seen.output_tokens:
            # No output, although some came: the report is none.
            seen, reported = replace(reported, output_tokens=seen.output_tokens), None
    if reported is None:
        seen = _within_limit(seen, demand_of(request).output_tokens)
    price = FREE if candidate is None else candidate.endpoint.price
    found = charge_for(
        reported,
        seen,
        price,
        finish_reason=finish_reason,
        broken_off=broken_off,
        left=left,
        images=demand_of(request).images if price.has_images else 0,
        factor=candidate.endpoint.batch_price_factor
        if candidate is not None and request.in_batch and fee is None
        else FULL_PRICE,
    )
    return found if fee is None else with_own_key(found, fee)


def _within_limit(seen: Usage, most: int | None) -> Usage:
    """Return what was counted of a reply's text, but no more than the provider was asked for.

    So what was held for the request suffices.
    """
    if most is None or seen.output_tokens <= most:
        return seen
    thoughts = min(seen.reasoning_tokens, most)
    return replace(seen, output_tokens=most, reasoning_tokens=thoughts)


def record(
    request: InferenceRequest,
    cost: Charge,
    finish_reason: str | None,
    *,
    cancelled: bool,
    now: float,
) -> GenerationRecord:
    """Return what is stored of a generation; `cancelled` if the client went away."""
    subject, candidate, response = request.subject, request.candidate, request.response
    began, usage, said = request.first_byte_at, cost.usage, request.attribution
    has_images = candidate is not None and candidate.endpoint.price.has_images
    return GenerationRecord(  # by place: by name it takes ten times as long
        request.generation_id,
        subject.account_id,
        subject.workspace_id,
        subject.key_hash,
        subject.payer_hash,
        request.parsed.api_type,
        request.model.id,
        request.provider_name,
        None if candidate is None else candidate.endpoint.model,
        None if response is None else response.upstream_id,
        cost.is_byok,
        request.parsed.stream,
        cancelled,
        finish_reason,
        None if response is None else response.native_finish_reason,
        cost.state,
        cost.cost_nano,
        cost.provider_cost_nano,
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        demand_of(request).images if has_images else None,
        candidate is not None and uses_free_limits(candidate),
        request.first_byte_ms,
        None if began is None else int((now - began) * 1000),
        attempts_json(request.attempts),
        said.http_referer,
        said.app_title,
        said.user_agent,
        said.external_user,
        said.session_id,
        said.categories,
        said.trace,
        said.metadata,
        request.created_ms,
        request.estimate_nano if cost.state is CostState.INTERRUPTED else None,
    )


def beginning(request: InferenceRequest, now: float) -> GenerationRecord:
    """Return what is stored of a request whose provider is asked now, if its end never comes."""
    candidate = request.candidate
    own = candidate is not None and candidate.own_key is not None
    return record(request, _NOTHING[own], None, cancelled=False, now=now)


_NOTHING: Final = tuple(
    Charge(CostState.INTERRUPTED, Usage(), 0, None, None, is_own) for is_own in (False, True)
)
"""What is known of a reply's cost while its provider is at work, without and with an own key."""

"""One request on its way: called, relayed, booked, whatever happens to the client.

A detached task runs it; the client only reads its `Exchange`. Three things can end it early, and
each still books what the provider may bill and gives the client a legal end:

    the provider fails      502 or 504 before the first byte, an error chunk after it
    the client goes away    the call is cancelled (or drained, where the provider bills anyway)
    the gateway stops       an error chunk and [DONE]
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from tollhouse.accounting.pricing import FULL_PRICE, charge_for
from tollhouse.accounting.rules import AccountingRules
from tollhouse.accounting.types import FREE, Attempt, Charge, GenerationRecord, Usage
from tollhouse.inference import routing
from tollhouse.inference.admission_request import (
    admission_request_of,
    allowed_candidates,
    output_limit,
    uses_free_limits,
)
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.tokens import estimate_tokens
from tollhouse.inference.health import Health
from tollhouse.inference.providers.base import ProviderCall
from tollhouse.inference.providers.context_length import too_long
from tollhouse.inference.providers.failures import failure, status_of_error_code
from tollhouse.inference.reply_buffer import GenerationOutcome
from tollhouse.inference.steps import LARGE, Steps, feed
from tollhouse.inference.types import ReplyIdentity
from tollhouse.kernel.clock import unix_seconds
from tollhouse.kernel.envelope import STATUS, status_of
from tollhouse.kernel.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    Bug,
    Invalid,
    ProviderFailure,
    ProviderModerated,
    ProviderRefused,
    ProviderUnavailable,
    TollhouseError,
    Unavailable,
    without_frames,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from decimal import Decimal

    from tollhouse.inference.call import Call
    from tollhouse.inference.formats.adapter import AdaptedResponse, AdaptedStream, FormatAdapter
    from tollhouse.inference.guardrails.gate import Guardrails
    from tollhouse.inference.ports import Admission, Settlement
    from tollhouse.inference.providers.base import Provider, ProviderExchange
    from tollhouse.inference.reply_buffer import ReplyBuffer
    from tollhouse.inference.routing import Candidate
    from tollhouse.inference.types import ExcludedEndpoint, Model
    from tollhouse.kernel.clock import Clock
    from tollhouse.observability.metrics import Metrics

_OK = 200
_LET_END_SECONDS = 0.25
_CLIENT_GONE = 499
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Services:
    """What every generation uses."""

    providers: Mapping[str, Provider]
    admission: Admission
    settlement: Settlement
    clock: Clock
    metrics: Metrics
    guardrails: Guardrails
    health: Health = field(default_factory=Health)
    rules: AccountingRules = field(default_factory=AccountingRules)
    steps: Steps = field(default_factory=Steps)

    def candidates(
        self,
        call: Call,
        models: Sequence[Model],
        on_excluded: Callable[[ExcludedEndpoint], None] = lambda _: None,
    ) -> Sequence[Candidate]:
        """Return the endpoints that can serve a request now: `routing.find_candidates`."""
        now = self.clock.monotonic()
        return routing.find_candidates(
            models,
            call.adapters,
            call.preferences,
            dialects_of=lambda endpoint: self.providers[endpoint.provider].dialects,
            cooling=lambda endpoint: self.health.is_cooling(endpoint, now),
            policies=call.subject.policies,
            on_excluded=on_excluded,
        )


class Generation:
    """One request and its reply."""

    def __init__(
        self, call: Call, models: Sequence[Model], exchange: ReplyBuffer, services: Services
    ) -> None:
        """Prepare; nothing is sent before `run`."""
        self._call = call
        self._owner = call.subject.account_id
        self._models = models
        self._exchange = exchange
        self._services = services
        self._attempts: list[Attempt] = []
        self._candidate: Candidate | None = None
        self._identity: ReplyIdentity | None = None
        self._stream: AdaptedStream | None = None
        kept = () if call.large is None else call.request.fields.values()
        self._repeated = sum(map(len, kept))
        """Bytes of a large request that the reply may repeat."""
        self._large_events = 0
        """Bytes of large events and of all after them: the end of a stream may repeat those."""
        self._whole: AdaptedResponse | None = None
        self._reply: ProviderExchange | None = None
        self._events: AsyncIterator[Sequence[bytes]] | None = None
        self._first_byte: float | None = None
        self._task: asyncio.Task[None] | None = None
        self.interruption: TollhouseError | None = None
        """Why it was ended from outside."""
        self._client_gone = Unavailable("The client closed the connection.")
        self._ending = False
        exchange.on_abandon = self._abandoned

    def start(self) -> asyncio.Task[None]:
        """Run in a task of its own."""
        self._task = asyncio.create_task(self._run())
        return self._task

    def interrupt(self, error: TollhouseError) -> None:
        """End it with an error, unless it is ending already."""
        if not self._ending and self._task is not None:
            self.interruption = self.interruption or error
            self._task.cancel()

    def _abandoned(self) -> None:
        provider = self._provider
        if provider is not None and provider.on_disconnect == "drain":
            return
        self.interrupt(self._client_gone)

    @property
    def _provider(self) -> Provider | None:
        return (
            None
            if self._candidate is None
            else self._services.providers[self._candidate.endpoint.provider]
        )

    async def _run(self) -> None:
        error: TollhouseError | None = None
        try:
            await self._serve()
        except asyncio.CancelledError:
            error = self.interruption or Unavailable("The gateway is stopping.")
        except TollhouseError as failed:
            error = without_frames(failed)
            if isinstance(failed, ProviderFailure) and self._reply is not None:
                self._warn(failed)
        except Exception as bug:  # noqa: BLE001 - the edge of the task
            _log.exception("generation_failed", generation=self._exchange.generation_id)
            error = Bug(type(bug).__name__)
        self._ending = True
        if error is None:
            try:
                await self._finish(None)
                await self._let_end()
            finally:
                await self._close_reply()
        else:
            # The provider learns first: it stops billing, the books can wait for a moment.
            try:
                await self._close_reply()
            finally:
                await self._finish(error)

    # The call and its reply

    async def _serve(self) -> None:
        self._reply = reply = await self._open()
        if self._candidate is None or self._identity is None:
            message = "a reply without an adapter"
            raise Bug(message)
        adapter = self._candidate.adapter
        if self._call.request.stream:
            run = self._services.steps.run_for_reply
            stream = await run(self._owner, self._repeated, adapter.open_stream, self._identity)
            await self._relay_stream(reply, stream)
        else:
            await self._relay_whole(reply, adapter)

    async def _open(self) -> ProviderExchange:
        services = self._services
        failures: list[ProviderFailure] = []
        unsayable: Invalid | None = None
        rest = await self._admitted(services.candidates(self._call, self._models))
        await self._pass_guardrails()
        while rest and not (failures and self._exchange.abandoned):
            candidate, *rest = rest
            try:
                reply = await self._try(candidate)
            except Invalid as error:
                # This dialect cannot say what is asked; that of another endpoint may.
                unsayable = unsayable or without_frames(error)
            except ProviderFailure as error:
                self._warn(error)
                failures.append(without_frames(error))
                if error.ambiguous:
                    services.metrics.ambiguous_sends.inc()
                services.health.failed(candidate.endpoint, error, services.clock.monotonic())
                rest = routing.remaining(error, candidate, rest)
            else:
                services.health.answered(candidate.endpoint)
                return reply
        if unsayable is not None and not failures:
            raise unsayable
        raise await self._explained(routing.final_error(failures))

    def _warn(self, error: ProviderFailure) -> None:
        """Log a provider's failure; a text that may repeat the request is left out."""
        refused = isinstance(error, ProviderRefused)
        _log.warning(
            "provider_failed",
            provider=error.provider_name,
            model=None if self._candidate is None else self._candidate.model.id,
            status=error.provider_status,
            error=error.code,
            reason=None if refused else error.message,
            generation=self._exchange.generation_id,
        )

    async def _pass_guardrails(self) -> None:
        """Let the guardrails judge the request, once somebody may serve it.

        Raises:
            Forbidden: One refused it.
            Unavailable: One that must let it pass gave no verdict.
        """
        call = self._call
        if call.subject.policies:
            name = self._exchange.generation_id
            asks = partial(self._services.steps.question, call, name)
            await self._services.guardrails.check(call.subject, asks, name)

    async def _explained(self, error: ProviderFailure) -> ProviderFailure:
        """Return a provider's failure with what only the request and its model tell of it."""
        request = self._call.request
        if isinstance(error, ProviderModerated):
            error.metadata["flagged_input"] = await self._services.steps.excerpt(self._call)
        if error.code == CONTEXT_LENGTH_EXCEEDED and self._candidate is not None:
            estimate = estimate_tokens(request.size)
            error.message = too_long(error.message, estimate, self._candidate.model.context_length)
        return error

    async def _admitted(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Hold what the candidates may cost; return those that the account's limits leave."""
        if self._call.in_batch:
            return candidates  # what they may cost is reserved
        request = admission_request_of(
            self._exchange.generation_id, self._call, candidates, self._services.rules
        )
        admitted = await self._services.admission.admit(request)
        allowed = allowed_candidates(request, candidates, may_use_free=admitted.may_use_free)
        if admitted.spendable_nano is None:
            return allowed
        return await self._limited(allowed, admitted.spendable_nano)

    async def _limited(
        self, candidates: Sequence[Candidate], spendable_nano: int
    ) -> Sequence[Candidate]:
        """Return the candidates with the limit of output that the account can pay for."""
        limit = output_limit(self._call.demand(), candidates, spendable_nano)
        self._exchange.output_limit = limit
        self._call = await self._services.steps.limit(self._call, limit)
        adapters = {adapter.dialect: adapter for adapter in self._call.adapters}
        return [
            replace(candidate, adapter=adapters[candidate.adapter.dialect])
            for candidate in candidates
        ]

    async def _try(self, candidate: Candidate) -> ProviderExchange:
        endpoint = candidate.endpoint
        provider = self._services.providers[endpoint.provider]
        adapter, body = await self._services.steps.ask(self._call, candidate)
        call = ProviderCall(
            endpoint=endpoint,
            dialect=adapter.dialect,
            stream=self._call.request.stream,
            body=body,
            query=adapter.query,
            headers=adapter.headers,
            owner=self._owner,
        )
        self._candidate = (
            candidate if adapter is candidate.adapter else replace(candidate, adapter=adapter)
        )
        started = self._services.clock.monotonic()
        status: int | None = None
        try:
            reply = await provider.open(call)
            status = _OK
        except ProviderFailure as error:
            status = error.provider_status
            raise
        finally:
            self._attempts.append(Attempt(provider.name, status, self._millis_since(started)))
        self._identity = ReplyIdentity(
            id=self._exchange.generation_id,
            model=candidate.model.id,
            provider=provider.name,
            created=unix_seconds(self._call.received_at),
        )
        return reply

    async def _relay_whole(self, reply: ProviderExchange, adapter: FormatAdapter) -> None:
        body = await reply.whole()
        self._note_first_byte()
        try:
            steps = self._services.steps
            self._whole = await steps.whole(self._owner, adapter, body, self._repeated)
        except MalformedResponse as error:
            raise self._unreadable() from error
        except ErrorEvent as error:
            raise await self._reported(error) from error

    async def _relay_stream(self, reply: ProviderExchange, stream: AdaptedStream) -> None:
        self._stream = stream
        self._events = reply.events()
        try:
            async for events in self._events:
                stream = await self._pass_on(events, stream)
                if stream.done:
                    break
        except MalformedResponse as error:
            raise self._unreadable() from error
        except ErrorEvent as error:
            raise await self._reported(error) from error
        if not stream.complete or stream.finish_reason is None:
            # Formats that must say how a reply ended would say that it failed.
            raise self._unreadable()

    async def _pass_on(self, events: Sequence[bytes], stream: AdaptedStream) -> AdaptedStream:
        """Give the client what it gets of some events; return the stream after them."""
        run, out = self._services.steps.run_for_reply, list[bytes]()
        try:
            for data in events:
                if self._large_events + len(data) > LARGE:
                    self._large_events += len(data)
                    stream, said = await run(self._owner, self._large_events, feed, stream, data)
                    self._stream = stream
                else:
                    said = stream.feed(data)
                out.append(said)  # one by one: what came before an error counts
        finally:
            if any(out):
                self._note_first_byte()
                await self._exchange.write(b"".join(out))
        return stream

    async def _let_end(self) -> None:
        """Read a stream past its `[DONE]` to the end of its body: its connection is used again."""
        if self._events is None:
            return
        with suppress(ProviderFailure, TimeoutError):
            async with asyncio.timeout(_LET_END_SECONDS):
                async for _ in self._events:
                    pass

    async def _close_reply(self) -> None:
        if self._reply is not None:
            await self._reply.close()

    def _note_first_byte(self) -> None:
        if self._first_byte is None:
            self._first_byte = self._services.clock.monotonic()

    def _unreadable(self) -> ProviderFailure:
        name = self._attempts[-1].provider
        return ProviderUnavailable(
            f"{name} sent an invalid response.", provider_name=name, ambiguous=True
        )

    async def _reported(self, event: ErrorEvent) -> ProviderFailure:
        status = status_of_error_code(event.code) or STATUS["upstream"]
        error = failure(self._attempts[-1].provider, status, code=event.code, message=event.message)
        error.ambiguous = True
        return await self._explained(error)

    # The end

    async def _finish(self, error: TollhouseError | None) -> None:
        charge = self._charge(error)
        if self._owes_a_record(error):
            try:
                await self._services.settlement.settle(self._record(charge, error))
                self._exchange.booked = True
            except Exception:  # noqa: BLE001 - whatever it was, the reply must not leave
                _log.exception("generation_not_booked", generation=self._exchange.generation_id)
                error = Unavailable("The charge could not be stored; the reply is withheld.")
        # Before the client hears of the end: what was held is free for its next request.
        self._services.admission.release(self._exchange.generation_id)
        self._services.metrics.finished(self._status(error))
        self.report(error, charge.cost_nano if self._exchange.booked else 0)
        await self._answer(charge, error)

    def report(self, error: TollhouseError | None, cost_nano: int = 0) -> None:
        """Say how it ended to whoever wants to know; the first time alone."""
        report, self._exchange.on_outcome = self._exchange.on_outcome, None
        if report is None:
            return
        outcome = GenerationOutcome(
            status=self._status(error),
            error=None if error is None else error.code,
            model=self._models[0].id if self._candidate is None else self._candidate.model.id,
            provider=self._attempts[-1].provider if self._attempts else None,
            milliseconds=self._millis_since(self._call.received_monotonic),
            first_byte_milliseconds=self._latency_ms(),
            cost_nano=cost_nano,
        )
        report(outcome)

    def _status(self, error: TollhouseError | None) -> int:
        if error is None:
            return _OK
        return _CLIENT_GONE if error is self._client_gone else status_of(error)

    async def _answer(self, charge: Charge, error: TollhouseError | None) -> None:
        exchange, steps = self._exchange, self._services.steps
        run = partial(steps.run_for_reply, self._owner, self._repeated + self._large_events)
        if error is not None and (exchange.begun or self._is_streamed(error)):
            stream = self._stream or self._unbegun_stream()
            exchange.finish(await run(stream.fail, error))
        elif error is not None:
            exchange.fail(error)
        elif self._stream is not None:
            exchange.finish(await run(self._stream.end, charge))
        elif self._whole is not None and self._identity is not None:
            exchange.finish(await steps.render(self._owner, self._whole, self._identity, charge))

    def _is_streamed(self, error: TollhouseError) -> bool:
        """Tell whether clients look for an error in their stream, although it has not begun."""
        request = self._call.request
        return request.stream and error.code in request.streamed_errors

    def _unbegun_stream(self) -> AdaptedStream:
        """Return a stream that says nothing but its error."""
        identity = self._identity or ReplyIdentity(
            id=self._exchange.generation_id,
            model=self._models[0].id,
            provider=self._attempts[-1].provider if self._attempts else "",
            created=unix_seconds(self._call.received_at),
        )
        return self._call.adapters[0].open_stream(identity)

    def _owes_a_record(self, error: TollhouseError | None) -> bool:
        """Tell whether a provider may have done work: then there is a generation to book."""
        if isinstance(error, ProviderFailure):
            # One that accepted the request has begun to work, however it failed then.
            return error.ambiguous or self._identity is not None
        return self._candidate is not None

    def _charge(self, error: TollhouseError | None) -> Charge:
        reply = self._stream or self._whole
        if reply is None:
            seen, reported = Usage(input_tokens=estimate_tokens(self._call.request.size)), None
        else:
            seen, reported = reply.seen, reply.reported
        return charge_for(
            reported,
            seen,
            FREE if self._candidate is None else self._candidate.endpoint.price,
            finish_reason=self._finish_reason(error),
            broken_off=error is not None,
            images=self._images() or 0,
            factor=self._factor(),
        )

    def _factor(self) -> Decimal:
        """Return what token prices are multiplied with."""
        if self._candidate is None or not self._call.in_batch:
            return FULL_PRICE
        return self._candidate.endpoint.batch_price_factor

    def _images(self) -> int | None:
        """Return how many images are charged for; None where they cost nothing."""
        if self._candidate is None or not self._candidate.endpoint.price.has_images:
            return None
        return self._call.images()

    def _finish_reason(self, error: TollhouseError | None) -> str | None:
        if error is not None and error is not self._client_gone:
            return "error"
        reply = self._stream or self._whole
        return None if reply is None else reply.finish_reason

    def _record(self, charge: Charge, error: TollhouseError | None) -> GenerationRecord:
        subject, candidate = self._call.subject, self._candidate
        reply = self._stream or self._whole
        return GenerationRecord(
            id=self._exchange.generation_id,
            account_id=self._owner,
            workspace_id=subject.workspace_id,
            key_hash=subject.key_hash,
            payer_hash=subject.payer_hash,
            api_type=self._call.request.api_type,
            model=self._models[0].id if candidate is None else candidate.model.id,
            provider=self._attempts[-1].provider if self._attempts else None,
            provider_model=None if candidate is None else candidate.endpoint.model,
            upstream_id=None if reply is None else reply.upstream_id,
            is_byok=False,
            streamed=self._call.request.stream,
            cancelled=self._exchange.abandoned,
            finish_reason=self._finish_reason(error),
            native_finish_reason=None if reply is None else reply.native_finish_reason,
            charge=charge,
            latency_ms=self._latency_ms(),
            generation_ms=None
            if self._first_byte is None
            else self._millis_since(self._first_byte),
            attempts=tuple(self._attempts),
            attribution=self._call.attribution,
            created_at=self._call.received_at,
            free_limited=candidate is not None and uses_free_limits(candidate),
            images=self._images(),
        )

    def _latency_ms(self) -> int | None:
        if self._first_byte is None:
            return None
        return int((self._first_byte - self._call.received_monotonic) * 1000)

    def _millis_since(self, monotonic: float) -> int:
        return int((self._services.clock.monotonic() - monotonic) * 1000)

"""The pipeline: it takes parsed requests, and drives each to a reply that is booked.

    choose -> admit -> guardrails -> ask -> read -> charge -> record -> render
    (the steps themselves are plain functions: `routing`, `admission`, `steps`)

A generation goes on by itself; the client only gets its `Reply`. It is driven by the callbacks of
the provider's connection for as long as it waits for nothing else, and as a task after that (see
`kernel.eager_task`); the steps know nothing of this. Three things can end it early, and each still
books what the provider may bill and gives the client a legal end:

    the provider fails      502 or 504 before the first byte, an error chunk after it
    the client goes away    the call is cancelled (or drained, where the provider bills anyway)
    the gateway stops       an error chunk and [DONE]
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import structlog

from tollhouse.accounting.types import Attempt
from tollhouse.inference import routing
from tollhouse.inference.admission import admission_request_of, uses_free_limits
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.error_codes import status_of_error
from tollhouse.inference.formats.finish_reasons import is_known
from tollhouse.inference.formats.wire import estimate_tokens
from tollhouse.inference.guardrails import question
from tollhouse.inference.ports import CancelledUnsent, ProviderCall
from tollhouse.inference.providers.failures import failure, too_long, unreadable
from tollhouse.inference.providers.retry_hints import retry_after
from tollhouse.inference.reply_buffer import GenerationOutcome, ReplyBuffer
from tollhouse.inference.sse import is_event_stream
from tollhouse.inference.steps import (
    LARGE,
    beginning,
    charge,
    excerpt,
    feed,
    record,
    render_request,
    reply_identity,
    reply_reader,
    take_rest,
)
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.eager_task import EagerTask, in_task
from tollhouse.kernel.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    STATUS,
    Bug,
    Invalid,
    ProviderFailure,
    ProviderModerated,
    ProviderRefused,
    TollhouseError,
    Unavailable,
    status_of,
    without_frames,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.dependencies import PipelineDependencies
    from tollhouse.inference.formats.adapter import AdaptedResponse, AdaptedStream, FormatAdapter
    from tollhouse.inference.ports import OpenedReply
    from tollhouse.inference.reply_buffer import Reply
    from tollhouse.inference.request import InferenceRequest
    from tollhouse.inference.routing import Candidate
    from tollhouse.kernel.ids import IdSource

_OK = 200
_LET_END_SECONDS = 0.25
"""How long a stream may take for what follows its last event, so its connection is used again."""
_CLIENT_GONE = 499
_MOST_HELD = 4096
"""Bytes."""
_log = structlog.get_logger(__name__)


class Generation:
    """Drives one request to the end of its reply, and fills in what became of it."""

    def __init__(
        self, request: InferenceRequest, reply: Reply, services: PipelineDependencies
    ) -> None:
        self.id = request.generation_id
        self._request = request
        self._client = reply
        self._services = services
        self._owner = request.subject.account_id
        self._stream: AdaptedStream | None = None
        self._whole: AdaptedResponse | None = None
        kept = request.parsed.fields.values() if len(request.body) > LARGE else ()
        self._repeated = sum(map(len, kept))
        """Bytes of a large request that the reply may repeat."""
        self._large_events = 0
        """Bytes of large events and of all after them: the end of a stream may repeat those."""
        self._waiting_events: Sequence[bytes] = ()
        """Events that arrived, of which the first is large."""
        self._client_has_room = True
        self._held = b""
        """The beginning of a stream that says nothing yet: another provider may still be asked."""
        self._has_begun = False
        """Whether the client got any of the reply: then no other provider is asked."""
        self._reply: OpenedReply | None = None
        self._task: EagerTask | None = None
        self._interruption: TollhouseError | None = None
        """Why it was ended from outside."""
        self._client_gone: TollhouseError | None = None
        self._ending = False
        reply.on_abandon = self._abandoned

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[Generation, BaseException | None], None],
        *,
        as_task: bool,
    ) -> None:
        """Run to the end of the reply, by callbacks or as a task."""
        self._task = EagerTask(self._run(), loop, partial(on_end, self))
        if as_task:
            self._task.start_task()
        else:
            self._task.start()

    def interrupt(self, error: TollhouseError) -> None:
        """End it with an error, unless it is ending already."""
        if not self._ending and self._task is not None:
            self._interruption = self._interruption or error
            self._task.cancel()

    def ended(self) -> None:
        """End the reply and report the outcome, if the task ended before it could."""
        # A task that was cancelled before its first step never got to say so.
        if not self._client.ended:
            self._client.fail(Unavailable("The request was cancelled before it was sent."))
        if self._client.on_outcome is not None:
            self._report(self._interruption)

    def _abandoned(self) -> None:
        candidate = self._request.candidate
        if candidate is not None:
            provider = self._services.providers[candidate.endpoint.provider]
            if provider.on_disconnect == "drain":
                return
        self._client_gone = self._client_gone or Unavailable("The client closed the connection.")
        self.interrupt(self._client_gone)

    async def _run(self) -> None:
        error: TollhouseError | None = None
        try:
            await self._serve()
        except asyncio.CancelledError:
            error = self._interruption or Unavailable("The gateway is stopping.")
        except TollhouseError as failed:
            error = without_frames(failed)
        except Exception as bug:  # noqa: BLE001 - the edge of the task
            _log.exception("generation_failed", generation=self.id)
            error = Bug(type(bug).__name__)
        self._ending = True
        if error is None:
            try:
                await self._finish(None)
            finally:
                await self._close_reply(0.0 if self._stream is None else _LET_END_SECONDS)
        else:
            # The provider learns first: it stops billing, the books can wait for a moment.
            try:
                await self._close_reply()
            finally:
                await self._finish(error)

    # Ask, and read the reply

    async def _serve(self) -> None:
        """Let one provider after the other try, until one has answered or begun to."""
        services, request = self._services, self._request
        failures: list[ProviderFailure] = []
        unsayable: Invalid | None = None
        rest = await self._admit(await services.candidates(request, request.models))
        await self._pass_guardrails()
        while rest and not (failures and self._client.abandoned):
            candidate, *rest = rest
            await self._forget_reply()
            if request.output_limits is not None:
                self._client.output_limit = await services.limit_output(request, candidate)
            if uses_free_limits(candidate) and not await services.admission.may_use_free(self.id):
                continue
            try:
                self._reply, adapter = await self._try(candidate)
                await self._read_reply(self._reply, adapter)
            except Invalid as error:
                # This dialect cannot say what is asked; that of another endpoint may.
                unsayable = unsayable or without_frames(error)
            except ProviderFailure as error:
                self._warn(error)
                if self._may_have_worked(error):
                    raise await self._explained(error) from error.__cause__
                failures.append(without_frames(error))
                if error.ambiguous:
                    services.metrics.ambiguous_sends.inc()
                services.failed(candidate, error)
                rest = routing.remaining(error, candidate, rest)
            else:
                return services.answered(candidate)
        if unsayable is not None and not failures:
            raise unsayable
        raise await self._explained(routing.final_error(failures))

    def _may_have_worked(self, error: ProviderFailure) -> bool:
        """Tell whether the provider had begun a reply, and not said in its place what is wrong."""
        begun = self._has_begun or not isinstance(error.__cause__, ErrorEvent)
        return begun and self._reply is not None

    async def _forget_reply(self) -> None:
        """Let go of a reply that came to nothing before the client got any of it."""
        await self._close_reply()
        self._reply = self._stream = self._whole = None
        self._waiting_events, self._large_events, self._held = (), 0, b""
        self._request.forget_reply()

    async def _read_reply(self, reply: OpenedReply, adapter: FormatAdapter) -> None:
        request, steps = self._request, self._services.steps
        request.identity = identity = reply_identity(request)
        try:
            if request.parsed.stream:
                stream = await steps.run_for_reply(
                    self._owner, self._repeated, adapter.open_stream, identity
                )
                await self._relay_stream(reply, stream)
            else:
                body = await reply.whole()
                self._note_first_byte()
                if is_event_stream(body):
                    adapter = await steps.on_content(
                        request, reply_reader, request.adapters, adapter, body
                    )
                self._whole = request.response = await steps.parse_response(
                    self._owner, adapter, body, self._repeated
                )
        except MalformedResponse as error:
            raise self._unreadable() from error
        except ErrorEvent as error:
            raise self._reported(error) from error

    async def _admit(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Hold what the candidates may cost; return those that the account's limits leave."""
        request, services = self._request, self._services
        if request.in_batch:
            await services.know_allowance(request, candidates)
            return candidates  # what they may cost is reserved
        wanted = admission_request_of(self.id, request, candidates, services.rules)
        admitted = services.admission.try_admit(wanted)
        if admitted is None:
            await in_task()
            admitted = await services.admission.admit(wanted)
        return services.admitted(request, wanted, admitted, candidates)

    async def _pass_guardrails(self) -> None:
        """Let the guardrails judge the request, once there is an endpoint for it."""
        request = self._request
        if request.subject.policies:
            await in_task()
            ask, path = self._services.steps.on_content, request.api_format.path
            facts = request.subject, request.parsed, path, self.id
            asks = partial(ask, request, question, *facts)
            await self._services.guardrails.check(request.subject, asks, self.id)

    async def _try(self, candidate: Candidate) -> tuple[OpenedReply, FormatAdapter]:
        request, services, endpoint = self._request, self._services, candidate.endpoint
        provider = services.providers[endpoint.provider]
        adapter, body = await services.steps.on_content(
            request, render_request, request.adapters[candidate.adapter.dialect], endpoint
        )
        call = ProviderCall(
            endpoint=endpoint,
            dialect=adapter.dialect,
            stream=request.parsed.stream,
            body=body,
            query=adapter.query,
            headers=adapter.headers,
            owner=self._owner,
            own_key=candidate.own_key,
        )
        request.candidate = candidate
        started = services.clock.monotonic()
        services.settlement.begin(beginning(request, started))
        status: int | None = None
        try:
            reply = await provider.open(call)
            status = _OK
        except ProviderFailure as error:
            status = error.provider_status
            raise
        except CancelledUnsent:
            request.candidate = None  # who had no work to do: there is nothing to pay
            raise
        finally:
            millis, is_own = self._millis_since(started), candidate.own_key is not None
            request.attempts.append(Attempt(provider.name, status, millis, is_own))
        return reply, adapter

    async def _relay_stream(self, reply: OpenedReply, stream: AdaptedStream) -> None:
        self._stream = self._request.response = stream
        ended = False
        while not (ended or self._stream.done):
            if self._waiting_events:
                await self._take_large(self._stream)
            elif not self._client_has_room:
                await self._client.room()
                self._client_has_room = True
            else:
                try:
                    ended = await reply.relay(self._take)
                except (ProviderFailure, MalformedResponse, ErrorEvent):
                    ended = self._stream.reported is not None  # all that counts has come
                    if not (ended and self._stream.complete and self._stream.finish_reason):
                        raise
        if self._stream.done and self._stream.reported is None and not ended:
            await take_rest(reply, self._stream, _LET_END_SECONDS)
        if not self._stream.complete or self._stream.finish_reason is None:
            # Formats that must say how a reply ended would say that it failed.
            raise self._unreadable()
        if self._stream.is_silent:
            raise ErrorEvent(self._stream.native_finish_reason, None)

    def _take(self, events: Sequence[bytes]) -> bool:
        """Give the client what it gets of some events; false where no more can be taken now."""
        stream, out = self._stream, list[bytes]()
        if stream is None:
            raise Bug("an event came before the stream was opened")
        try:
            for number, data in enumerate(events):
                if self._large_events + len(data) > LARGE:
                    self._waiting_events = events[number:]
                    return False
                out.append(stream.feed(data))  # one by one: what came before an error counts
        finally:
            self._say(out[0] if len(out) == 1 else b"".join(out))
        return self._client_has_room and not stream.done

    async def _take_large(self, stream: AdaptedStream) -> None:
        """Let a worker take the first of the events that wait."""
        (data, *rest), self._waiting_events = self._waiting_events, ()
        self._large_events += len(data)
        await in_task()
        run = self._services.steps.run_for_reply
        stream, said = await run(self._owner, self._large_events, feed, stream, data)
        self._stream = self._request.response = stream
        self._say(said)
        if rest and not stream.done:
            self._take(rest)

    def _say(self, said: bytes) -> None:
        held = self._held + said
        if said and self._stream is not None and self._stream.is_silent and len(held) < _MOST_HELD:
            self._held = held
        elif said:
            self._held, self._has_begun = b"", True
            self._note_first_byte()
            self._client_has_room = self._client.write(held)

    async def _close_reply(self, patience: float = 0.0) -> None:
        if self._reply is not None:
            await self._reply.close(patience)

    def _note_first_byte(self) -> None:
        if self._request.first_byte_at is None:
            self._request.first_byte_at = self._services.clock.monotonic()

    # What goes wrong

    def _warn(self, error: ProviderFailure) -> None:
        """Log a provider's failure; a text that may repeat the request is left out."""
        candidate = self._request.candidate
        _log.warning(
            "provider_failed",
            provider=error.provider_name,
            model=None if candidate is None else candidate.model.id,
            status=error.provider_status,
            error=error.code,
            reason=None if isinstance(error, ProviderRefused) else error.message,
            generation=self.id,
        )

    async def _explained(self, error: ProviderFailure) -> ProviderFailure:
        """Return a provider's failure with what only the request and its model tell of it."""
        request = self._request
        if isinstance(error, ProviderModerated):
            flagged = await self._services.steps.on_content(request, excerpt, request.parsed)
            error.metadata["flagged_input"] = flagged
        if error.code == CONTEXT_LENGTH_EXCEEDED and request.candidate is not None:
            estimate = estimate_tokens(request.parsed.size)
            error.message = too_long(error.message, estimate, request.model.context_length)
        return error

    def _unreadable(self) -> ProviderFailure:
        return unreadable(self._request.attempts[-1].provider)

    def _reported(self, event: ErrorEvent) -> ProviderFailure:
        """Return the failure that a provider told of in a reply that had status 200."""
        attempt = self._request.attempts[-1]
        status = status_of_error(event.code, event.message) or STATUS["upstream"]
        hint = retry_after({}, event.data, self._services.clock.now())
        candidate = self._request.candidate
        key = None if candidate is None else candidate.own_key
        error = failure(
            attempt.provider,
            status,
            code=event.code,
            message=event.message,
            retry_after=hint,
            own_key=None if key is None else key.stored.label,
        )
        error.ambiguous = self._has_begun
        return error

    # The end

    async def _finish(self, error: TollhouseError | None) -> None:
        reason = self._finish_reason(error)
        left = error is not None and error is self._client_gone
        owes = self._owes_a_record(error)
        fee = self._services.own_fee(self._request) if owes else None
        cost = charge(self._request, reason, broken_off=error is not None, left=left, fee=fee)
        if owes:
            now, cancelled = self._services.clock.monotonic(), self._client.abandoned
            try:
                found = record(self._request, cost, reason, cancelled=cancelled, now=now)
                if (unsafe := self._services.settlement.accept(found)) is not None:
                    await asyncio.ensure_future(unsafe)
                self._client.booked = True
            except Exception:  # noqa: BLE001 - whatever it was, the reply must not leave
                _log.exception("generation_not_booked", generation=self.id)
                error = Unavailable("The charge could not be stored; the reply is withheld.")
            finally:
                self._services.admission.release(self.id)
        else:
            self._services.settlement.forget(self.id)
            self._services.admission.release(self.id)
        # The client hears of the end now: what was held is free for its next request.
        self._services.metrics.count_generation(self._status(error))
        self._report(error, cost.cost_nano if self._client.booked else 0)
        await self._answer(cost, error)

    def _finish_reason(self, error: TollhouseError | None) -> str | None:
        if error is not None and error is not self._client_gone:
            return "error"
        response = self._request.response
        if response is not None and not is_known(response.native_finish_reason):
            self._services.metrics.unknown_finish_reasons.inc()
        return None if response is None else response.finish_reason

    def _owes_a_record(self, error: TollhouseError | None) -> bool:
        """Tell whether a provider may have done work: then there is a generation to book."""
        if isinstance(error, ProviderFailure):
            # One that accepted the request has begun to work, however it failed then.
            return error.ambiguous or self._request.identity is not None
        return self._request.candidate is not None

    def _report(self, error: TollhouseError | None, cost_nano: int = 0) -> None:
        """Report the outcome, once."""
        report, self._client.on_outcome = self._client.on_outcome, None
        if report is None:
            return
        outcome = GenerationOutcome(
            status=self._status(error),
            error=None if error is None else error.code,
            model=self._request.model.id,
            provider=self._request.provider_name,
            milliseconds=self._millis_since(self._request.received.monotonic),
            first_byte_milliseconds=self._request.first_byte_ms,
            cost_nano=cost_nano,
        )
        report(outcome)

    def _status(self, error: TollhouseError | None) -> int:
        if error is None:
            return _OK
        return _CLIENT_GONE if error is self._client_gone else status_of(error)

    async def _answer(self, cost: Charge, error: TollhouseError | None) -> None:
        client, steps, request = self._client, self._services.steps, self._request
        identity, parsed = request.identity, request.parsed
        run = partial(steps.run_for_reply, self._owner, self._repeated + self._large_events)
        # Clients look for these in their stream, although it has not begun.
        streamed_errors = parsed.streamed_errors if parsed.stream else ()
        if error is not None and (client.begun or error.code in streamed_errors):
            stream = self._stream or request.adapters.passthrough.open_stream(
                identity or reply_identity(self._request)
            )
            client.finish(self._held + await run(stream.fail, error))
        elif error is not None:
            client.fail(error)
        elif self._stream is not None:
            client.finish(self._held + await run(self._stream.end, cost))
        elif self._whole is not None and identity is not None:
            rendered = await steps.render_response(self._owner, self._whole, identity, cost)
            client.finish(rendered)

    def _millis_since(self, monotonic: float) -> int:
        return int((self._services.clock.monotonic() - monotonic) * 1000)


class Pipeline:
    """Starts generations and keeps count of them, so that a stop can wait for them or end them."""

    def __init__(
        self,
        catalog: Catalog,
        services: PipelineDependencies,
        ids: IdSource,
        *,
        as_tasks: bool = False,
    ) -> None:
        """Start nothing; `as_tasks`: every generation is a task from its beginning."""
        self._catalog = catalog
        self._services = services
        self._ids = ids
        self._as_tasks = as_tasks
        self._running: set[Generation] = set()
        self._stopping = False
        self._all_ended = asyncio.Event()

    @property
    def running(self) -> int:
        """How many generations are in flight."""
        return len(self._running)

    def begin(self, request: InferenceRequest, generation_id: str | None = None) -> ReplyBuffer:
        """Start a generation of a parsed request; its reply is read from the buffer.

        Raises what `prepare` does.
        """
        self.prepare(request, generation_id)
        reply = ReplyBuffer(request.generation_id)
        self.run(request, reply)
        return reply

    def prepare(self, request: InferenceRequest, generation_id: str | None = None) -> None:
        """Give a parsed request its models and its generation's id.

        Raises:
            NotFound: No such model.
            Unavailable: The gateway is stopping.
        """
        if self._stopping:
            raise Unavailable("The gateway is stopping; send the request again in a moment.")
        request.models = self._catalog.wanted(request.parsed.model, request.preferences.models)
        request.generation_id = generation_id or self._ids.generation(request.created_ms // 1000)

    def run(self, request: InferenceRequest, reply: Reply) -> None:
        """Run the generation of a prepared request; the reply may have ended when this returns."""
        generation = Generation(request, reply, self._services)
        self._running.add(generation)
        loop = asyncio.get_running_loop()
        generation.start(loop, self._ended, as_task=self._as_tasks)

    def refuse_new(self) -> None:
        """Start no further generation."""
        self._stopping = True

    async def drain(self, seconds: float) -> None:
        """Wait for the generations in flight; end those that last longer, and book them."""
        self.refuse_new()
        if self._running:
            await wait_for_event(self._all_ended, seconds)
        self.interrupt_all()
        if self._running:
            await self._all_ended.wait()

    def interrupt_all(self) -> None:
        """End every generation in flight with an error that says why."""
        for generation in tuple(self._running):
            generation.interrupt(Unavailable("The gateway is stopping."))

    def _ended(self, generation: Generation, error: BaseException | None) -> None:
        self._running.discard(generation)
        if error is not None and not isinstance(error, asyncio.CancelledError):
            _log.error("generation_ended_badly", generation=generation.id, exc_info=error)
        generation.ended()
        if self._stopping and not self._running:
            self._all_ended.set()

"""One generation: a parsed request on its way to a reply that is booked.

    choose -> admit -> guardrails -> ask -> read -> charge -> record -> render
    (the steps themselves are plain functions: `routing`, `admission`, `steps`)

It goes on by itself; the client only gets its `Reply`. It is driven by the callbacks of the
provider's connection for as long as it waits for nothing else, and as a task after that (see
`kernel.eager_task`). Steps that never wait are plain calls, and of the others each says when it
need not: then nothing is awaited. What ends it early, by how far it has come:

    |             | is not reached | breaks off  | client leaves | gateway stops | books fail  |
    | is admitted |                |             | gone, none    | 503, none     |             |
    | is sent     | next           | 502, free   | gone, seen    | 503, free     |             |
    | is accepted | 502, free      | 502, free   | gone, seen    | 503, free     |             |
    | is answered | event, free    | event, free | gone, seen    | event, free   |             |
    | is booked   |                |             | gone, exact   | reply, exact  | event, none |

The client gets the reply, that of the `next` provider, an error with a status, or an error as the
last `event` of its stream, in place of which a whole reply has the status, too. What is booked is
the `exact` charge, what was `seen` of the reply, a record that is `free` for the customer, since
a provider may have done work, or `none`. A provider that is not reached, or breaks off, may also be
one that does not answer in time. One that takes no notice of a client that leaves (`drain`) goes on
to its end. Where the books fail, the journal has the request as one that was under way.
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
from tollhouse.inference.reply_buffer import GenerationOutcome
from tollhouse.inference.sse import is_event_stream
from tollhouse.inference.steps import (
    LARGE,
    beginning,
    charge,
    excerpt,
    feed,
    parse_response,
    record,
    render_request,
    rendered_size,
    reply_identity,
    reply_reader,
    take_rest,
)
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
    from collections.abc import Awaitable, Callable, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.dependencies import PipelineDependencies
    from tollhouse.inference.formats.adapter import AdaptedResponse, AdaptedStream, FormatAdapter
    from tollhouse.inference.ports import OpenedReply
    from tollhouse.inference.reply_buffer import Reply
    from tollhouse.inference.request import InferenceRequest
    from tollhouse.inference.routing import Candidate
    from tollhouse.inference.types import ReplyIdentity

_OK = 200
_LET_END_SECONDS = 0.25
"""How long a stream may take for what follows its last event, so its connection is used again."""
_CLIENT_GONE = 499
_MOST_HELD = 4096
"""Bytes."""
_log = structlog.get_logger(__name__)


class Generation:
    """Drives one request to the end of its reply, and fills in what became of it."""

    _stream: AdaptedStream | None = None
    _whole: AdaptedResponse | None = None
    _repeated = 0
    """Bytes of a large request that the reply may repeat."""
    _large_events = 0
    """Bytes of large events and of all after them: the end of a stream may repeat those."""
    _waiting_events: Sequence[bytes] = ()
    """Events that arrived, of which the first is large."""
    _client_has_room = True
    _held: bytes = b""
    """The beginning of a stream that says nothing yet: another provider may still be asked."""
    _has_begun = False
    """Whether the client got any of the reply: then no other provider is asked."""
    _reply: OpenedReply | None = None
    task: EagerTask | None = None
    """Drives `run`; set by who starts it."""
    _interruption: TollhouseError | None = None
    """Why it was ended from outside."""
    _client_gone: TollhouseError | None = None
    _ending = False

    def __init__(
        self, request: InferenceRequest, reply: Reply, services: PipelineDependencies
    ) -> None:
        self.id = request.generation_id
        self._request = request
        self._client = reply
        self._services = services
        self._owner = request.subject.account_id
        if len(request.body) > LARGE:
            self._repeated = sum(map(len, request.parsed.fields.values()))
        reply.on_abandon = self._abandoned

    def interrupt(self, error: TollhouseError) -> None:
        """End it with an error, unless it is ending already."""
        if not self._ending and self.task is not None:
            self._interruption = self._interruption or error
            self.task.cancel()

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

    async def run(self) -> None:
        """Run to the end of the reply."""
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
                patience = 0.0 if self._stream is None else _LET_END_SECONDS
                if (closing := self._close_reply(patience)) is not None:
                    await closing
        else:
            # The provider learns first: it stops billing, the books can wait for a moment.
            try:
                if (closing := self._close_reply()) is not None:
                    await closing
            finally:
                await self._finish(error)

    # Ask, and read the reply

    async def _serve(self) -> None:
        """Let one provider after the other try, until one has answered or begun to."""
        services, request = self._services, self._request
        failures: list[ProviderFailure] = []
        unsayable: Invalid | None = None
        rest = await self._admit()
        while rest and not (failures and self._client.abandoned):
            candidate, *rest = rest
            if failures or unsayable is not None:
                await self._forget_reply()
            if request.output_limits is not None:
                self._client.output_limit = await services.limit_output(request, candidate)
            if uses_free_limits(candidate) and not await services.admission.may_use_free(self.id):
                continue
            try:
                await self._read_reply(await self._ask(candidate))
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
        explained = None if not failures else await self._explained(routing.final_error(failures))
        raise explained or unsayable or Bug("a generation had no candidate")

    def _may_have_worked(self, error: ProviderFailure) -> bool:
        """Tell whether the provider had begun a reply, and not said in its place what is wrong."""
        begun = self._has_begun or not isinstance(error.__cause__, ErrorEvent)
        return begun and self._reply is not None

    async def _forget_reply(self) -> None:
        """Let go of a reply that came to nothing before the client got any of it."""
        if (closing := self._close_reply()) is not None:
            await closing
        self._reply = self._stream = self._whole = None
        self._waiting_events, self._large_events, self._held = (), 0, b""
        self._request.forget_reply()

    async def _admit(self) -> Sequence[Candidate]:
        """Hold what the candidates may cost; return those that limits and guardrails leave."""
        request, services = self._request, self._services
        use = services.known_own_keys(request.subject)
        if use is None:
            use = await services.own_keys_of(request.subject)
        candidates = services.candidates_with(use, request, request.models)
        if request.in_batch:  # what they may cost is reserved
            await services.know_allowance(request, candidates)
        else:
            wanted = admission_request_of(self.id, request, candidates, services.rules)
            admitted = services.admission.try_admit(wanted)
            if admitted is None:
                await in_task()
                admitted = await services.admission.admit(wanted)
            candidates = services.admitted(request, wanted, admitted, candidates)
        if request.subject.policies:
            await self._pass_guardrails()
        return candidates

    async def _pass_guardrails(self) -> None:
        """Let the guardrails judge the request, once there is an endpoint for it."""
        request = self._request
        await in_task()
        ask, path = self._services.steps.on_content, request.api_format.path
        facts = request.subject, request.parsed, path, self.id
        asks = partial(ask, request, question, *facts)
        await self._services.guardrails.check(request.subject, asks, self.id)

    async def _ask(self, candidate: Candidate) -> FormatAdapter:
        """Ask a candidate's provider; return what reads the reply that it begins."""
        request, services, endpoint = self._request, self._services, candidate.endpoint
        provider, own_key = services.providers[endpoint.provider], candidate.own_key
        adapter = candidate.adapter
        if request.output_limit is not None:  # it was parsed again
            adapter = request.adapters[adapter.dialect]
        if services.steps.is_large(len(request.body)):
            adapter, body = await services.steps.on_content(
                request, render_request, adapter, endpoint
            )
        else:
            body = adapter.render_request(request.body, endpoint)
        call = ProviderCall(
            endpoint,
            adapter.dialect,
            request.parsed.stream,
            body,
            adapter.query,
            adapter.headers,
            self._owner,
            own_key,
        )
        request.candidate = candidate
        started = services.clock.monotonic()
        services.settlement.begin(beginning(request, started))
        status: int | None = None
        try:
            self._reply = await provider.open(call)
            status = _OK
        except ProviderFailure as error:
            status = error.provider_status
            raise
        except CancelledUnsent:
            request.candidate = None  # who had no work to do: there is nothing to pay
            raise
        finally:
            millis = self._millis_since(started)
            request.attempts.append(Attempt(provider.name, status, millis, own_key is not None))
        return adapter

    async def _read_reply(self, adapter: FormatAdapter) -> None:
        request, reply, steps = self._request, self._reply, self._services.steps
        if reply is None:
            raise Bug("a reply is read that nobody has begun")
        request.identity = identity = reply_identity(request)
        try:
            if request.parsed.stream:
                await self._relay_stream(reply, adapter, identity)
                return
            body = reply.whole()
            if not isinstance(body, bytes):
                body = await body
            self._note_first_byte()
            if is_event_stream(body):
                adapter = await steps.on_content(
                    request, reply_reader, request.adapters, adapter, body
                )
            if steps.is_large(len(body) + self._repeated):
                found = await steps.parse_response(self._owner, adapter, body, self._repeated)
            else:
                found = parse_response(adapter, body)
            self._whole = request.response = found
        except MalformedResponse as error:
            raise self._unreadable() from error
        except ErrorEvent as error:
            raise self._reported(error) from error

    async def _relay_stream(
        self, reply: OpenedReply, adapter: FormatAdapter, identity: ReplyIdentity
    ) -> None:
        steps, size = self._services.steps, self._repeated
        if steps.is_large(size):
            stream = await steps.run_for_reply(self._owner, size, adapter.open_stream, identity)
        else:
            stream = adapter.open_stream(identity)
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
        stream = self._stream
        if stream is None:
            raise Bug("an event came before the stream was opened")
        out: list[bytes] = []
        try:
            for data in events:
                if self._large_events + len(data) > LARGE:
                    self._waiting_events = events[len(out) :]
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
        if not said:
            return
        if not self._has_begun:
            said = self._held + said
            if self._stream is not None and self._stream.is_silent and len(said) < _MOST_HELD:
                self._held = said
                return
            self._held, self._has_begun = b"", True
            self._note_first_byte()
        self._client_has_room = self._client.write(said)

    def _close_reply(self, patience: float = 0.0) -> Awaitable[None] | None:
        return None if self._reply is None else self._reply.close(patience)

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
        if (answering := self._answer(cost, error)) is not None:
            await answering

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

    def _answer(self, cost: Charge, error: TollhouseError | None) -> Awaitable[None] | None:
        """Give the client the end of its reply; return what to await where a worker renders it."""
        request, steps, size = self._request, self._services.steps, self._repeated
        if error is None and self._whole is not None and request.identity is not None:
            size = rendered_size(self._whole)
            last = partial(self._whole.render, request.identity, cost)
        elif error is None and self._stream is not None:
            size += self._large_events
            last = partial(self._stream.end, cost)
        elif error is not None and self._is_told_in_stream(error):
            size += self._large_events
            stream = self._stream or request.adapters.passthrough.open_stream(
                request.identity or reply_identity(request)
            )
            last = partial(stream.fail, error)
        else:
            self._client.fail(error or Bug("a generation ended without a reply"))
            return None
        if steps.is_large(size):
            return self._render_in_worker(size, last)
        self._client.finish(self._held + last())
        return None

    def _is_told_in_stream(self, error: TollhouseError) -> bool:
        # Clients look for some in their stream, although it has not begun.
        parsed = self._request.parsed
        return self._client.begun or (parsed.stream and error.code in parsed.streamed_errors)

    async def _render_in_worker(self, size: int, last: Callable[[], bytes]) -> None:
        rendered = await self._services.steps.run_for_reply(self._owner, size, last)
        self._client.finish(self._held + rendered)

    def _millis_since(self, monotonic: float) -> int:
        return int((self._services.clock.monotonic() - monotonic) * 1000)

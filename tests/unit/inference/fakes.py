"""Fake providers, a fake settler and requests for tests of the data plane."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from tests.support.clock import START, FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.accounting import (
    AdmissionPreview,
    AdmissionRequest,
    Admitted,
    Attribution,
    GenerationRecord,
    Price,
)
from tests.support.seams.identity import AccessPolicy, KeyKind, Subject
from tests.support.seams.inference import (
    BEHAVIOURS,
    FORMATS,
    NO_PREFERENCES,
    Catalog,
    Dialect,
    Endpoint,
    EventParser,
    Guardrail,
    Guardrails,
    InferenceRequest,
    Model,
    Pipeline,
    PipelineDependencies,
    ProviderCall,
    ReplyBuffer,
    parse,
)
from tests.unit.inference import replies
from tollhouse.kernel.clock import Now
from tollhouse.kernel.eager_task import in_task
from tollhouse.kernel.errors import ProviderFailure, TollhouseError
from tollhouse.observability.metrics import Metrics

MODEL = "acme/large"
PRICE: Price = BEHAVIOURS["echo"].price
SUBJECT = Subject(
    key_hash="a" * 64,
    kind=KeyKind.API,
    operator=False,
    account_id="account",
    workspace_id="workspace",
    creator_user_id=None,
    intern_id=None,
    label="sk-th-v1-abc...xyz",
)

Step = bytes | asyncio.Event | BaseException
"""The next step of a reply: send a piece, wait for an event, or raise."""


async def steps() -> None:
    """Run the event loop until nothing can proceed without another event."""
    for _ in range(25):
        await asyncio.sleep(0)


@dataclass
class FakeReply:
    """A reply that the test leads step by step; a stream's pieces go through the real parser."""

    body: list[Step] = field(default_factory=list)
    closed: int = 0
    closing: Step | None = None
    """What `close` waits for or raises."""
    read: list[Step] = field(default_factory=list)


class FakeOpenedReply:
    """What one call got of a reply."""

    def __init__(self, reply: FakeReply) -> None:
        self._reply = reply
        self._rest = self._pieces()
        self._parser = EventParser()

    async def whole(self) -> bytes:
        return b"".join([piece async for piece in self._rest])

    async def relay(self, take: Callable[[Sequence[bytes]], bool]) -> bool:
        async for piece in self._rest:
            if not take(self._parser.feed(piece)):
                return False
        return True

    async def close(self, patience: float = 0.0) -> None:
        try:
            if patience:
                await in_task()
                async with asyncio.timeout(patience):
                    await self.relay(lambda _: True)
        except (TimeoutError, ProviderFailure):
            pass
        finally:
            self._reply.closed += 1
            await _take(self._reply.closing)

    async def _pieces(self) -> AsyncIterator[bytes]:
        for step in self._reply.body:
            await _take(step)
            self._reply.read.append(step)
            if isinstance(step, bytes):
                yield step


async def _take(step: Step | None) -> None:
    if isinstance(step, asyncio.Event):
        await step.wait()
    elif isinstance(step, BaseException):
        raise step


@dataclass
class FakeProvider:
    """Answers every call with the same reply, or the same error."""

    answer: FakeReply | BaseException
    name: str = "Acme"
    on_disconnect: Literal["cancel", "drain"] = "cancel"
    accepts: asyncio.Event | None = None
    """What `open` waits for."""
    calls: list[ProviderCall] = field(default_factory=list)
    dialects: Collection[Dialect] = frozenset({Dialect.CHAT})
    accepted: int = 0

    async def open(self, call: ProviderCall) -> FakeOpenedReply:
        self.calls.append(call)
        await _take(self.accepts)
        if isinstance(self.answer, BaseException):
            raise self.answer
        self.accepted += 1
        return FakeOpenedReply(self.answer)

    async def check(self) -> None:
        """It is there."""

    async def close(self) -> None:
        """Nothing is held."""


@dataclass
class FakeSettler:
    """Records generations, once the test allows it."""

    records: list[GenerationRecord] = field(default_factory=list)
    """The records that were passed to `settle`."""
    booked: list[GenerationRecord] = field(default_factory=list)
    ready: asyncio.Event | None = None
    broken: BaseException | None = None

    def begin(self, record: GenerationRecord) -> None:
        pass

    def forget(self, generation_id: str) -> None:
        pass

    def accept(self, record: GenerationRecord) -> Awaitable[None] | None:
        self.records.append(record)
        if self.ready is None and self.broken is None:
            self.booked.append(record)
            return None
        return self._book(record)

    async def _book(self, record: GenerationRecord) -> None:
        await _take(self.ready)
        await _take(self.broken)
        self.booked.append(record)


@dataclass
class FakeAdmission:
    """Admits every request, or raises an error; records the current holds."""

    refused: TollhouseError | None = None
    free: bool = True
    requests: list[AdmissionRequest] = field(default_factory=list)
    holding: set[str] = field(default_factory=set)

    spendable_nano: int | None = None
    """The most that a request may cost; None for no limit."""

    def try_admit(self, request: AdmissionRequest) -> Admitted:
        self.requests.append(request)
        if self.refused is not None:
            raise self.refused
        self.holding.add(request.generation_id)
        return Admitted(request.free and self.free, self.spendable_nano)

    async def preview(self, request: AdmissionRequest) -> AdmissionPreview:
        return AdmissionPreview((), (), (), 0, 0, Admitted(request.free), self.refused)

    async def admit(self, request: AdmissionRequest) -> Admitted:
        return self.try_admit(request)

    def release(self, generation_id: str) -> None:
        self.holding.discard(generation_id)

    async def may_use_free(self, generation_id: str) -> bool:
        return generation_id in self.holding


def parsed_request(body: bytes, received_monotonic: float = 0.0) -> InferenceRequest:
    """Return a chat request on its way."""
    now = Now(START, received_monotonic)
    made = _parsed("/chat/completions", body, now)
    made.preferences, made.attribution = NO_PREFERENCES, Attribution()
    return made


def _parsed(form: str, body: bytes, now: Now) -> InferenceRequest:
    request = InferenceRequest(FORMATS[form], body, {}, b"", SUBJECT, Attribution(), now)
    parse(request)
    return request


_MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}
SPOKEN: Mapping[str, dict[str, Any]] = {
    "/chat/completions": _MESSAGES,
    "/responses": {"input": "hi"},
    "/messages": _MESSAGES,
    "/completions": {"prompt": "hi"},
}
"""A short question in each format."""


@dataclass
class PipelineFixture:
    """A pipeline with fake dependencies."""

    as_tasks: ClassVar[bool] = False
    """Whether generations are tasks from their beginning."""
    providers: Sequence[FakeProvider]
    settler: FakeSettler = field(default_factory=FakeSettler)
    clock: FakeClock = field(default_factory=FakeClock)
    metrics: Metrics = field(default_factory=Metrics)
    admission: FakeAdmission = field(default_factory=FakeAdmission)
    idempotent: bool = False
    """Whether every endpoint's provider is idempotent."""
    guardrails: Mapping[str, Guardrail] = field(default_factory=dict["str", "Guardrail"])
    """By slug."""
    policies: tuple[AccessPolicy, ...] = ()
    """The policies of the caller."""
    price: Price = PRICE
    """The price of every endpoint."""
    catalog: Catalog = field(init=False)
    services: PipelineDependencies = field(init=False)
    pipeline: Pipeline = field(init=False)

    def __post_init__(self) -> None:
        by_slug = {f"p{number}": each for number, each in enumerate(self.providers)}
        endpoints = tuple(
            Endpoint(slug, f"{slug}-model", self.price, self.idempotent) for slug in by_slug
        )
        model = Model(MODEL, "Large", "", 128_000, None, endpoints)
        guardrails = Guardrails(self.guardrails, self.metrics)
        self.catalog = Catalog([model])
        self.services = PipelineDependencies(
            by_slug, self.admission, self.settler, self.clock, self.metrics, guardrails
        )
        self.pipeline = Pipeline(
            self.catalog, self.services, SequentialIds(), as_tasks=self.as_tasks
        )

    def begin(
        self, *, stream: bool = False, in_batch: bool = False, model: str = MODEL, **fields: Any
    ) -> ReplyBuffer:
        """Start a generation."""
        body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
        data = json.dumps(body | fields).encode()
        asked = parsed_request(data, received_monotonic=self.clock.monotonic())
        asked.subject = replace(asked.subject, policies=self.policies)
        asked.in_batch = in_batch
        return self.pipeline.begin(asked)

    def request(self, form: str, **fields: Any) -> InferenceRequest:
        """Return a short question in a format, on its way."""
        body = {"model": MODEL, **SPOKEN[form], **fields}
        return _parsed(form, json.dumps(body).encode(), Now.by(self.clock))

    def ask(self, form: str, **fields: Any) -> ReplyBuffer:
        """Start a generation in a format."""
        return self.pipeline.begin(self.request(form, **fields))

    @property
    def in_flight(self) -> int:
        return self.pipeline.running

    @property
    def ambiguous(self) -> float:
        return self.sample("tollhouse_upstream_ambiguous_sends_total")

    def finished(self, status: int) -> float:
        return self.sample("tollhouse_generations_total", status=str(status))

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


async def received(exchange: ReplyBuffer) -> bytes:
    """Read a reply to its end.

    Raises:
        TollhouseError: It failed before its first byte.
    """
    pieces: list[bytes] = []
    while piece := await exchange.read():
        pieces.append(piece)
    return b"".join(pieces)


async def outcome(exchange: ReplyBuffer) -> bytes | TollhouseError:
    """Return a reply, or the error that stands in its place."""
    try:
        return await received(exchange)
    except TollhouseError as error:
        return error


async def failed(exchange: ReplyBuffer) -> TollhouseError:
    """Return the error of a reply that failed before its first byte."""
    end = await outcome(exchange)
    assert isinstance(end, TollhouseError)
    return end


def whole_reply(**fields: Any) -> FakeReply:
    """Return a whole reply that comes at once."""
    return FakeReply([json.dumps(replies.whole(**fields)).encode()])


def stream_reply(name: str = "text", *, then: Sequence[Step] = ()) -> FakeReply:
    """Return a stream, event by event."""
    events = [event + b"\n\n" for event in replies.STREAMS[name].split(b"\n\n")[:-1]]
    return FakeReply([*events, *then])

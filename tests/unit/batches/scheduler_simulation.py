"""The batch engine and its driver with chunks in memory and fake providers, in virtual time.

simulation = SchedulerSimulation({"acme": ["acme/large"]})
one = simulation.submit("account", "acme/large", items=10)
simulation.behave = lambda request: ...
await simulation.run(seconds=3600)
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal

from tests.support.batches import batch
from tests.support.builders import generation_record
from tests.support.clock import START
from tests.support.seams.accounting import Price, Rates
from tests.support.seams.batches import (
    Batch,
    BatchEngine,
    BatchStatus,
    ChunkLease,
    ConcurrencyLimiters,
    Doorbell,
    InferenceResult,
    ItemResult,
    LeasedChunk,
    RequestDriver,
    StoredChunk,
    item_line,
    pack,
    read_lines,
)
from tests.support.seams.identity import Subject
from tests.support.seams.inference import Catalog, Endpoint, InferenceRequest, Model, Steps
from tests.unit.batches.virtual_time import VirtualClock
from tests.unit.inference.fakes import SUBJECT
from tollhouse.kernel.errors import TollhouseError

CHUNK = 500
_PRICE = Price(Rates(*[Decimal(0)] * 5))


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request that arrived at a provider."""

    batch: str
    """Its batch's id."""
    model: str
    item: int
    at: float
    """Seconds since the beginning."""


Behaviour = Callable[[ReceivedRequest], "TollhouseError | None"]


@dataclass
class _Chunk:
    batch: str
    chunk: StoredChunk
    data: bytes
    ready_at: datetime = START
    token: str | None = None
    done: set[int] = field(default_factory=set)
    failures: Mapping[int, object] = field(default_factory=dict)
    is_finished: bool = False


@dataclass
class Submitted:
    """A batch, and the results of its items."""

    batch: Batch
    results: dict[int, ItemResult] = field(default_factory=dict)
    ended_at: float | None = None
    tries: Counter[int] = field(default_factory=Counter)
    begun: list[float] = field(default_factory=list)
    """When its items' requests began."""

    @property
    def failed(self) -> set[int]:
        """The items that failed."""
        return {number for number, outcome in self.results.items() if outcome.error is not None}


class SchedulerSimulation:
    """The engine's dependencies; implements the driver's ports and the chunk store."""

    def __init__(
        self, providers: Mapping[str, Sequence[str]], *, latency: float = 1.0, places: int = 64
    ) -> None:
        models = [
            Model(model, model, "", 1_000, None, (Endpoint(provider, model, _PRICE),))
            for provider, names in providers.items()
            for model in names
        ]
        self.clock = VirtualClock()
        self.latency = latency
        self.behave: Behaviour = lambda _: None
        self.batches: dict[str, Submitted] = {}
        self._chunks: list[_Chunk] = []
        self._tokens = 0
        self._bell = Doorbell()
        limiters = ConcurrencyLimiters(places, self.clock, lambda: False)
        self._make_driver = lambda: RequestDriver(
            chunks=self,  # type: ignore[arg-type]
            limiters=limiters,
            client=self,
            subjects=self,
            catalog=Catalog(models),
            steps=Steps(),
            clock=self.clock,
            part_seconds=2.0,
        )
        self._driver = self._make_driver()

    def restart(self) -> None:
        """Start a new process: only what was stored survives."""
        self._driver = self._make_driver()

    def submit(self, account: str, model: str, items: int) -> Submitted:
        """Add a batch."""
        made = batch(
            id=f"batch_{len(self.batches)}",
            account_id=account,
            model=model,
            status=BatchStatus.IN_PROGRESS,
            total=items,
        )
        found = self.batches[made.id] = Submitted(made)
        for number, first in enumerate(range(0, items, CHUNK)):
            count = min(CHUNK, items - first)
            lines = [_line(made.id, at) for at in range(first, first + count)]
            self._chunks.append(_Chunk(made.id, StoredChunk(number, first, count), pack(lines)))
        self._bell.ring(made.id)
        return found

    async def run(self, seconds: float) -> None:
        """Run until every batch has ended, or for so long."""
        engine = BatchEngine(
            self,  # type: ignore[arg-type]
            self._driver,
            self._bell,
            self,  # type: ignore[arg-type]
            places=4,
            round_seconds=1.0,
        )
        engine.start()
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            if all(each.ended_at is not None for each in self.batches.values()):
                break
            await asyncio.sleep(0.5)
        await engine.stop(0)

    # The chunks

    async def lease(self, *, only_idle: bool = False) -> LeasedChunk | None:
        """Take the chunk that `repository.lease` would take."""
        at_work = [self.batches[each.batch].batch for each in self._chunks if each.token]
        accounts = Counter(each.account_id for each in at_work)
        kinds = Counter((each.account_id, each.model) for each in at_work)
        ids = Counter(each.id for each in at_work)
        ready = [
            (accounts[one.account_id], ids[one.id], place)
            for place, each in enumerate(self._chunks)
            if not each.is_finished and each.token is None and each.ready_at <= self.clock.now()
            for one in [self.batches[each.batch].batch]
            if not only_idle or not kinds[one.account_id, one.model]
        ]
        if not ready:
            return None
        chunk = self._chunks[min(ready)[2]]
        self._tokens += 1
        chunk.token = str(self._tokens)
        done, failures = frozenset(chunk.done), dict(chunk.failures)
        lease = ChunkLease(chunk.batch, chunk.chunk, chunk.token, 1, done, failures)  # type: ignore[arg-type]
        return LeasedChunk(self.batches[chunk.batch].batch, lease)

    async def input_of(self, leased: LeasedChunk) -> list[bytes]:
        return list(read_lines(self._of(leased).data))

    async def renew(self, leased: LeasedChunk | None = None) -> bool:
        del leased
        return True

    async def commit(
        self, leased: LeasedChunk, results: Sequence[ItemResult], part: int, *, finished: bool
    ) -> Batch:
        del part
        found, chunk = self.batches[leased.batch.id], self._of(leased)
        for outcome in results:
            assert outcome.number not in found.results
            found.results[outcome.number] = outcome
            chunk.done.add(outcome.number)
        if finished:
            chunk.is_finished, chunk.token = True, None
        if len(found.results) == found.batch.total and found.ended_at is None:
            found.ended_at = self.clock.monotonic()
            found.batch = replace(found.batch, status=BatchStatus.COMPLETED)
        return found.batch

    async def give_back(
        self, leased: LeasedChunk, ready_at: datetime, failures: Mapping[int, object]
    ) -> None:
        chunk = self._of(leased)
        chunk.token, chunk.ready_at, chunk.failures = None, ready_at, failures

    def _of(self, leased: LeasedChunk) -> _Chunk:
        [chunk] = [each for each in self._chunks if each.token == leased.lease.token]
        return chunk

    # The rest

    async def sweep(self) -> bool:
        """Do nothing: no deadline passes, and the batches are open."""
        return True

    async def subject_of(self, batch: Batch) -> Subject:
        return replace(SUBJECT, account_id=batch.account_id)

    async def ask(self, request: InferenceRequest, generation_id: str) -> InferenceResult:
        name, item = json.loads(request.body)["messages"][0]["content"].split()
        found = self.batches[name]
        asked = ReceivedRequest(name, found.batch.model, int(item), self.clock.monotonic())
        found.tries[asked.item] += 1
        found.begun.append(asked.at)
        error = self.behave(asked)
        await asyncio.sleep(self.latency if error is None else self.latency / 10)
        if error is not None:
            return InferenceResult(error=error)
        return InferenceResult(b'{"said":1}', generation_record(id=generation_id))


def _line(name: str, number: int) -> bytes:
    body = {"messages": [{"role": "user", "content": f"{name} {number}"}]}
    return item_line(f"c-{number}", json.dumps(body).encode())

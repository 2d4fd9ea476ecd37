"""A request driver with a fake chunk store and a fake provider; time stands still."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from tests.support.batches import batch
from tests.support.builders import generation_record
from tests.support.clock import FakeClock
from tests.support.seams.batches import (
    Batch,
    BatchStatus,
    ChunkLease,
    ConcurrencyLimiters,
    InferenceResult,
    ItemFailures,
    ItemResult,
    LeasedChunk,
    RequestDriver,
    StoredChunk,
    generation_id,
    item_line,
    pack,
    read_lines,
)
from tests.support.seams.identity import Subject
from tests.support.seams.inference import Catalog, InferenceRequest, Steps
from tests.unit.inference.fakes import SUBJECT
from tollhouse.storage.blobs import BlobMissing

ITEMS = 10
Behaviour = Callable[[str], InferenceResult]
"""From an item's text to the provider's answer."""


def echo(text: str) -> InferenceResult:
    return InferenceResult(json.dumps({"said": text}).encode(), generation_record(id=f"gen-{text}"))


def lines(count: int = ITEMS) -> list[bytes]:
    said = [{"messages": [{"role": "user", "content": f"item {at}"}]} for at in range(count)]
    return [item_line(f"c-{at}", json.dumps(body).encode()) for at, body in enumerate(said)]


class FakeChunkStore:
    """Records what was committed."""

    def __init__(self, items: Sequence[bytes]) -> None:
        self.batch: Batch = batch(status=BatchStatus.IN_PROGRESS, total=len(items))
        self.items = list(items)
        self.input: bytes | Exception | None = pack(items)
        self.committed: list[ItemResult] = []
        self.parts: list[int] = []
        self.finished = False
        self.handed_back: datetime | None = None
        self.given_up = False
        self.suspects: list[int | None] = []
        self.failures_left: Mapping[int, ItemFailures] = {}
        self.lease_lost = False
        self.renewals = 0
        self.failures: list[Exception] = []

    async def input_of(self, leased: LeasedChunk) -> list[bytes]:
        if isinstance(self.input, Exception):
            raise self.input
        if self.input is None:
            raise BlobMissing(leased.batch.id)
        return list(read_lines(self.input))

    async def undo_attempt(self, leased: LeasedChunk) -> bool:
        self._check(leased)
        return not self.lease_lost

    async def suspect(self, leased: LeasedChunk, number: int | None) -> bool:
        self._check(leased)
        self.suspects.append(number)
        return not self.lease_lost

    async def commit(
        self, leased: LeasedChunk, results: Sequence[ItemResult], part: int, *, finished: bool
    ) -> Batch | None:
        self._check(leased)
        self.parts.append(part)
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        if self.lease_lost:
            return None
        self.committed += results
        self.finished = self.finished or finished
        return self.batch

    async def renew(self, leased: LeasedChunk) -> bool:
        self._check(leased)
        self.renewals += 1
        return not self.lease_lost

    async def give_back(
        self, leased: LeasedChunk, ready_at: datetime, failures: Mapping[int, ItemFailures]
    ) -> None:
        self._check(leased)
        self.handed_back = ready_at
        self.failures_left = failures

    async def give_up(self, leased: LeasedChunk) -> None:
        self._check(leased)
        self.given_up = True

    def _check(self, leased: LeasedChunk) -> None:
        assert leased.lease.token == "token"

    @property
    def results(self) -> dict[int, dict[str, Any]]:
        return {each.number: json.loads(each.line) for each in self.committed}


class FakeProvider:
    """Answers at once, or when the test allows it."""

    def __init__(self, behaviour: Behaviour = echo) -> None:
        self.behaviour = behaviour
        self.asked: Counter[str] = Counter()
        self.names: dict[str, set[str]] = {}
        self.under_way = 0
        self.most_under_way = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, request: InferenceRequest, generation_id: str) -> InferenceResult:
        text = json.loads(request.body)["messages"][0]["content"]
        self.asked[text] += 1
        self.names.setdefault(text, set()).add(generation_id)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
        finally:
            self.under_way -= 1
        answer = self.behaviour(text)
        record = answer.record
        named = None if record is None else msgspec.structs.replace(record, id=generation_id)
        return replace(answer, record=named)


class FakeSubjects:
    async def subject_of(self, batch: Batch) -> Subject:
        del batch
        return SUBJECT


@dataclass
class DriverFixture:
    """A driver with its dependencies."""

    clock: FakeClock = field(default_factory=FakeClock)
    provider: FakeProvider = field(default_factory=FakeProvider)
    chunks: FakeChunkStore = field(default_factory=lambda: FakeChunkStore(lines()))
    part_seconds: float = 60.0
    capacity: int = 64

    def __post_init__(self) -> None:
        self.limiters = ConcurrencyLimiters(self.capacity, self.clock, lambda: False)
        self.fanout = RequestDriver(
            chunks=self.chunks,  # type: ignore[arg-type]
            limiters=self.limiters,
            client=self.provider,
            subjects=FakeSubjects(),
            catalog=Catalog([]),
            steps=Steps(),
            clock=self.clock,
            part_seconds=self.part_seconds,
        )

    def leased(self, *done: int, attempts: int = 1, crashes: Mapping[int, int] = {}) -> LeasedChunk:
        """Return the lease of the one chunk."""
        chunk = StoredChunk(0, 0, len(self.chunks.items))
        failures = {number: ItemFailures(crashes=count) for number, count in crashes.items()}
        failures = failures or self.chunks.failures_left
        lease = ChunkLease(
            self.chunks.batch.id, chunk, "token", attempts, frozenset(done), failures
        )
        return LeasedChunk(self.chunks.batch, lease)

    def start(
        self, *done: int, attempts: int = 1, crashes: Mapping[int, int] = {}
    ) -> asyncio.Task[None]:
        """Start work on the chunk."""
        leased = self.leased(*done, attempts=attempts, crashes=crashes)
        return asyncio.create_task(self.fanout.run(leased))

    async def run(
        self, *done: int, attempts: int = 1, crashes: Mapping[int, int] = {}, ticking: bool = False
    ) -> None:
        """Work on the chunk until it is finished or handed back; `ticking` lets time pass."""
        task = self.start(*done, attempts=attempts, crashes=crashes)
        while ticking and not task.done():
            self.clock.advance(1)
            await asyncio.sleep(0.001)
        await asyncio.wait_for(task, 30)

    async def resume(self) -> None:
        """Resume the chunk at the time for which it was handed back."""
        if self.chunks.handed_back is not None:
            self.clock.set(max(self.clock.now(), self.chunks.handed_back))
        await self.run(ticking=True)

    @property
    def limiter(self) -> Any:
        return self.limiters.of("", self.chunks.batch.model)

    def generation_id(self, number: int) -> str:
        """Return the id of an item's generation."""
        return generation_id(self.chunks.batch, number)

"""A request driver with a fake chunk store and a fake provider; time stands still."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.unit.inference.fakes import SUBJECT
from tollhouse.batches import outcomes
from tollhouse.batches.books import Leased
from tollhouse.batches.chunks import item_line, pack, read_lines
from tollhouse.batches.drivers.fanout import Fanout, Tools
from tollhouse.batches.lanes import Lanes
from tollhouse.batches.ports import Answer
from tollhouse.batches.retries import Failures
from tollhouse.batches.types import Batch, Lease, Outcome, Status, StoredChunk
from tollhouse.inference.catalog import Catalog
from tollhouse.inference.steps import Steps
from tollhouse.storage.blobs.port import BlobMissing
from tollhouse.testing.batches import batch
from tollhouse.testing.builders import generation_record
from tollhouse.testing.clock import FakeClock

if TYPE_CHECKING:
    from datetime import datetime

    from tollhouse.identity.types import Subject
    from tollhouse.inference.call import Call

ITEMS = 10
Behaviour = Callable[[str], Answer]
"""From an item's text to the provider's answer."""


def echo(text: str) -> Answer:
    return Answer(json.dumps({"said": text}).encode(), generation_record(id=f"gen-{text}"))


def lines(count: int = ITEMS) -> list[bytes]:
    said = [{"messages": [{"role": "user", "content": f"item {at}"}]} for at in range(count)]
    return [item_line(f"c-{at}", json.dumps(body).encode()) for at, body in enumerate(said)]


class FakeChunkStore:
    """Records what was committed."""

    def __init__(self, items: Sequence[bytes]) -> None:
        self.batch: Batch = batch(status=Status.IN_PROGRESS, total=len(items))
        self.items = list(items)
        self.input: bytes | Exception | None = pack(items)
        self.committed: list[Outcome] = []
        self.parts: list[int] = []
        self.finished = False
        self.handed_back: datetime | None = None
        self.given_up = False
        self.suspects: list[int | None] = []
        self.failures_left: Mapping[int, Failures] = {}
        self.lease_lost = False
        self.renewals = 0
        self.failures: list[Exception] = []

    async def input_of(self, leased: Leased) -> list[bytes]:
        if isinstance(self.input, Exception):
            raise self.input
        if self.input is None:
            raise BlobMissing(leased.batch.id)
        return list(read_lines(self.input))

    async def excuse(self, leased: Leased) -> bool:
        self._check(leased)
        return not self.lease_lost

    async def suspect(self, leased: Leased, number: int | None) -> bool:
        self._check(leased)
        self.suspects.append(number)
        return not self.lease_lost

    async def commit(
        self, leased: Leased, results: Sequence[Outcome], part: int, *, finished: bool
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

    async def keep(self, leased: Leased) -> bool:
        self._check(leased)
        self.renewals += 1
        return not self.lease_lost

    async def hand_back(
        self, leased: Leased, ready_at: datetime, failures: Mapping[int, Failures]
    ) -> None:
        self._check(leased)
        self.handed_back = ready_at
        self.failures_left = failures

    async def give_up(self, leased: Leased) -> None:
        self._check(leased)
        self.given_up = True

    def _check(self, leased: Leased) -> None:
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

    async def ask(self, call: Call, generation_id: str) -> Answer:
        text = json.loads(call.request.body)["messages"][0]["content"]
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
        named = None if record is None else replace(record, id=generation_id)
        return replace(answer, record=named)


class FakeSubjects:
    async def owner(self, batch: Batch) -> Subject:
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
        self.lanes = Lanes(self.capacity, self.clock, lambda: False)
        self.fanout = Fanout(
            Tools(
                books=self.chunks,  # type: ignore[arg-type]
                lanes=self.lanes,
                asker=self.provider,
                owners=FakeSubjects(),
                catalog=Catalog([]),
                steps=Steps(),
                clock=self.clock,
                part_seconds=self.part_seconds,
            )
        )

    def leased(self, *done: int, attempts: int = 1, crashes: Mapping[int, int] = {}) -> Leased:
        """Return the lease of the one chunk."""
        chunk = StoredChunk(0, 0, len(self.chunks.items))
        failures = {number: Failures(crashes=count) for number, count in crashes.items()}
        failures = failures or self.chunks.failures_left
        lease = Lease(self.chunks.batch.id, chunk, "token", attempts, frozenset(done), failures)
        return Leased(self.chunks.batch, lease)

    def start(
        self, *done: int, attempts: int = 1, crashes: Mapping[int, int] = {}
    ) -> asyncio.Task[None]:
        """Start work on the chunk."""
        leased = self.leased(*done, attempts=attempts, crashes=crashes)
        return asyncio.create_task(self.fanout.run(leased))

    async def run(
        self,
        *done: int,
        attempts: int = 1,
        crashes: Mapping[int, int] = {},
        ticking: bool = False,
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
        return self.lanes.of("", self.chunks.batch.model)

    def generation_id(self, number: int) -> str:
        """Return the id of an item's generation."""
        return outcomes.generation_id(self.chunks.batch, number)

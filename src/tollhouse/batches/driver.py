"""Runs the items of chunks: each is a request of its own, through the ordinary pipeline.

    chunk ──> items without a result ──> limiter ──> pipeline ──> result ──> chunk store
                 (in their order)                     (as they come, several in one commit)

Results are committed while other items are under way, so that a kill costs only what was in flight.
An item that fails in passing is tried again later (`retries`) and leaves its place meanwhile. Where
no item of a batch is answered its circuit breaker lets single probes through. A chunk of which
nothing can be begun soon is given back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.batches import items, policy
from tollhouse.batches.chunk_store import CAREFUL_FROM, MOST_CRASHES, ChunkStore, LeasedChunk
from tollhouse.batches.chunks import LARGEST_CHUNK, DamagedChunk
from tollhouse.batches.inference_client import BatchSubjects, InferenceClient, InferenceResult
from tollhouse.batches.retries import CircuitBreaker, RequestCounter, RetrySchedule
from tollhouse.batches.types import Batch, ItemError, ItemResult, closing_reason
from tollhouse.kernel.clock import Clock, Now
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.errors import Bug, ProviderFailure, TollhouseError, without_frames
from tollhouse.storage.blobs import BlobMissing, BlobsUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.batches.concurrency import ConcurrencyLimiter, ConcurrencyLimiters
    from tollhouse.batches.retries import ItemFailures
    from tollhouse.identity.types import Subject
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.steps import Steps

SINGLES: Final = 64
"""How many items are run alone of a chunk that ended its workers: about as many as may have been
under way. Should it be a later one, the next time begins nearer to it."""
_PATIENCE_SECONDS: Final = 5.0
"""Where nothing can be begun for longer the chunk is given back."""
_LOOK_SECONDS: Final = 1.0
"""How long it may take to see that a breaker closed."""
_GRACE_SECONDS: Final = 10.0
"""How long items under way may go on once their batch is being closed."""
_STORE_PAUSE: Final = timedelta(seconds=5)
_LOST_ITEMS_PAUSE: Final = timedelta(minutes=1)
_LONGEST_WRITE_PAUSE: Final = 10.0
_CRASHED: Final = ItemError(
    "api_error", "The request ended the worker that ran it, several times.", None, "server"
)
_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class RequestDriver:
    """Runs chunks: each item is a request of its own."""

    chunks: ChunkStore
    limiters: ConcurrencyLimiters
    client: InferenceClient
    subjects: BatchSubjects
    catalog: Catalog
    steps: Steps
    clock: Clock
    part_seconds: float
    """How long an outcome waits for others before it is committed."""
    keep_seconds: float = 10.0
    """How long after the last commit a lease is kept without one."""
    booked: Callable[[GenerationRecord | None], None] = lambda _: None
    """Is told of what came of an item that it is in the books."""
    dropped: Callable[[GenerationRecord | None], None] = lambda _: None
    """Is told that it never will be."""
    _runs: set[_ChunkRun] = field(default_factory=set)
    _breakers: dict[str, CircuitBreaker] = field(default_factory=dict[str, CircuitBreaker])
    """By batch: of those that have a chunk at work, or nobody of which was answered."""
    _grace: float = _GRACE_SECONDS
    _stopping: bool = False

    async def run(self, leased: LeasedChunk) -> None:
        """Work on a chunk until each of its items has a result, or it has to be given back.

        Where the batch is being closed, items that have no result get an error in place of one.
        Returns early once `stop` or `refresh_status` says so.
        """
        batch = leased.batch
        subject = await self.subjects.subject_of(batch)
        breaker = self._breakers.setdefault(batch.id, CircuitBreaker(self.clock))
        run = _ChunkRun(leased, subject, breaker, self)
        self._runs.add(run)
        if self._stopping:
            run.drain(self._grace)
        try:
            await run.work()
        finally:
            self._runs.discard(run)
            is_needed = breaker.is_open and not run.batch.status.is_terminal
            if not is_needed and all(each.batch_id != batch.id for each in self._runs):
                self._breakers.pop(batch.id, None)

    def refresh_status(self, batch_id: str) -> None:
        """Look at the status of a batch that may be closed: then no more of its items is begun."""
        for run in self._runs:
            if run.batch_id == batch_id:
                run.refresh_status()

    async def renew_leases(self) -> None:
        """Renew the leases of chunks at work that could not be committed for a while."""
        for run in tuple(self._runs):
            await run.renew_lease()

    async def stop(self, seconds: float) -> None:
        """Begin no more items; let those under way finish for so long, hand the rest back."""
        self._stopping, self._grace = True, seconds
        for run in self._runs:
            run.drain(seconds)


class _ChunkRun:
    def __init__(
        self, leased: LeasedChunk, subject: Subject, breaker: CircuitBreaker, driver: RequestDriver
    ) -> None:
        self.batch_id = leased.batch.id
        self._leased = leased
        self.batch: Batch = leased.batch
        self._subject = subject
        self._driver = driver
        self._model = policy.catalog_name(leased.batch.model)
        provider = _first_provider(driver.catalog, leased.batch, self._model)
        self._limiter = driver.limiters.of(provider, self._model)
        self._breaker = breaker
        self._lines: list[bytes] = []
        self._done = set(leased.lease.done)
        failed = {at: each for at, each in leased.lease.failures.items() if at not in self._done}
        self._retries = RetrySchedule(failed, self._limiter.requests, breaker, driver.clock)
        self._suspects = [at for at, each in failed.items() if each.crashes]
        """Items that ran alone when their worker ended; they run alone, after all others."""
        self._fresh: deque[int] = deque()
        """Items that were not tried yet."""
        self._waiting: list[ItemResult] = []
        self._waiting_bytes = 0
        self._parts = 0
        self._committing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._held = set(self._suspects)
        """Items that are not to be begun now: they are under way, or run alone later."""
        self._draining = asyncio.Event()
        """No further item is begun; nor tried again."""
        self._changed = asyncio.Event()
        """An item ended, or the chunk drains."""
        self._grace = _GRACE_SECONDS
        self._lost = False
        self._write_now = asyncio.Event()
        self._all_ended = False
        self._kept_at = driver.clock.monotonic()

    # From outside

    def refresh_status(self) -> None:
        """Look at the batch's status now; the next commit brings it."""
        self._write_now.set()

    def drain(self, grace: float) -> None:
        """Begin no further item; those under way may go on for so many seconds."""
        self._grace = grace
        self._draining.set()
        self._changed.set()
        self._limiter.wake()

    async def renew_lease(self) -> None:
        """Renew the lease where no commit did for a while: what is not stored is not lost."""
        now = self._driver.clock.monotonic()
        if now - self._kept_at < self._driver.keep_seconds:
            return
        if await self._driver.chunks.renew(self._leased):
            self._kept_at = now
        elif not self._all_ended:  # else it may be that the last commit gave it back
            self._lose()

    # The work

    async def work(self) -> None:
        """Give every item its result, or hand the chunk back."""
        pause = max(self._limiter.pause_seconds, self._breaker.pause_seconds)
        if pause > _PATIENCE_SECONDS and closing_reason(self.batch) is None:
            return await self._give_back(timedelta(seconds=pause))
        try:
            self._lines = await self._driver.chunks.input_of(self._leased)
        except (BlobMissing, DamagedChunk) as error:
            return await self._without_items(error)
        except BlobsUnavailable as error:
            # It is no crash: nothing may be held against the chunk.
            _log.error("batch_items_not_read_yet", batch=self.batch_id, error=error.reason)
            return await self._give_back(_STORE_PAUSE)
        writer = asyncio.create_task(self._write(), name="batch-writer")
        try:
            if closing_reason(self.batch) is None:
                await self._run_items()
            self._close_rest()
        finally:
            self._all_ended = True
            self._write_now.set()
            await writer

    async def _run_items(self) -> None:
        self._fresh.extend(
            number
            for number in self._open_items()
            if number not in self._retries and number not in self._held
        )
        try:
            if self._leased.lease.attempts >= CAREFUL_FROM:
                if not await self._driver.chunks.undo_attempt(self._leased):
                    self._lose()
                await self._run_alone(self._first_singles())
            while (number := await self._next()) is not None:
                self._begin(number)
            await self._until_all_ended()
            await self._run_alone(self._suspects)
        finally:
            for task in self._tasks:
                task.cancel()

    def _first_singles(self) -> Iterator[int]:
        for _ in range(min(SINGLES, len(self._fresh))):
            yield self._fresh[0]
            self._fresh.popleft()

    async def _run_alone(self, numbers: Iterable[int]) -> None:
        """Run items one by one, beside none of any chunk: one of them ended the worker before."""
        for number in numbers:
            if self._retries.of(number).crashes >= MOST_CRASHES:
                _log.error("batch_item_given_up", batch=self.batch_id, item=number)
                self._take(self._failed(number, self._item_of(number), _CRASHED))
                continue
            if self._draining.is_set():
                return
            async with self._driver.limiters.exclusive():
                if not await self._acquire_place():
                    return
                await self._run_one(number)

    async def _run_one(self, number: int) -> None:
        """Run an item that has a place, and store what came of it; nothing else is under way."""
        chunks = self._driver.chunks
        # Not before: what ends the worker while nothing runs is nobody's fault.
        if not await chunks.suspect(self._leased, number):
            self._limiter.leave(self.batch.account_id)
            self._lose()
            return
        self._begin(number)
        await self._until_all_ended()
        if number not in self._done and not await chunks.suspect(self._leased, None):
            self._lose()
        await self._commit()

    def _open_items(self) -> Iterator[int]:
        first = self._leased.lease.chunk.first
        return (at for at in range(first, first + len(self._lines)) if at not in self._done)

    def _item_of(self, number: int) -> items.StoredItem:
        return items.read_line(self._lines[number - self._leased.lease.chunk.first])

    # Which item is next

    async def _next(self) -> int | None:
        """Wait until an item may be begun, and take a place for it; None where none can soon."""
        while self._is_wanted():
            seconds = self._seconds_to_next()
            if seconds is None or seconds > _PATIENCE_SECONDS:
                if not self._tasks:
                    return None
                await self._until_change(_PATIENCE_SECONDS)
            elif seconds:
                await self._until_change(min(seconds, _LOOK_SECONDS))
            elif not await self._enter():
                return None
            elif (number := self._pick()) is not None:
                return number
            else:
                self._limiter.leave(self.batch.account_id)
        return None

    async def _until_change(self, seconds: float) -> None:
        self._changed.clear()
        await wait_for_event(self._changed, seconds)

    def _seconds_to_next(self) -> float | None:
        """Return when an item may be begun as far as this batch is concerned; None if none is."""
        if self._breaker.has_probe:
            return _LOOK_SECONDS
        if self._fresh:
            return self._breaker.pause_seconds
        due = self._retries.next(self._held)
        return None if due is None else max(self._breaker.pause_seconds, due[1])

    def _pick(self) -> int | None:
        """Return the item to begin: one that failed before, unless nobody is answered anyway."""
        if not self._breaker.lets_pass:
            return None
        if self._fresh and self._breaker.is_open:
            return self._fresh.popleft()
        due = self._retries.next(self._held)
        if due is not None and not due[1]:
            return due[0]
        return self._fresh.popleft() if self._fresh else None

    async def _enter(self) -> bool:
        """Take a place for an item; false where none is begun any more for now."""
        while True:
            await self._driver.limiters.wait_until_shared(self._is_wanted)
            if not await self._acquire_place():
                return False
            if not self._driver.limiters.is_exclusive:
                return True
            self._limiter.leave(self.batch.account_id)

    async def _acquire_place(self) -> bool:
        return await self._limiter.enter(self.batch.account_id, _PATIENCE_SECONDS, self._is_wanted)

    def _is_wanted(self) -> bool:
        return not self._draining.is_set()

    def _begin(self, number: int) -> None:
        self._held.add(number)
        # Now, and not when the task gets its turn: whoever is next sees a probe under way.
        sent = _SentItem(self._limiter, self._breaker)
        task = asyncio.create_task(self._item(number, sent))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, number, sent))

    def _ended(self, task: asyncio.Task[None], number: int, sent: _SentItem) -> None:
        self._tasks.discard(task)
        sent.ended()
        self._held.discard(number)
        # Also of one that was cancelled before its first step.
        self._limiter.leave(self.batch.account_id)
        self._changed.set()

    async def _until_all_ended(self) -> None:
        """Wait for the items under way; once it drains, not for long."""
        while self._tasks and not self._draining.is_set():
            ended = asyncio.create_task(self._draining.wait())
            await asyncio.wait({*self._tasks, ended}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._grace)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # One item

    async def _item(self, number: int, sent: _SentItem) -> None:
        """Try an item once: it has its result then, or waits for the next try."""
        item = self._item_of(number)
        try:
            outcome = await self._try(number, item, sent)
        except Exception:  # noqa: BLE001 - the edge of the task: it would happen again and again
            _log.exception("batch_item_failed", batch=self.batch_id, item=number)
            outcome = self._failed(number, item, items.item_error(Bug("unexpected")))
        if outcome is not None:
            self._take(outcome)

    async def _try(self, number: int, item: items.StoredItem, sent: _SentItem) -> ItemResult | None:
        """Ask once; return what became of the item, None where it is to be tried again."""
        answer, tries = await self._ask(number, item), 0
        if answer.error is None:
            sent.answered()
            line = await self._driver.steps.run_for_reply(
                self.batch.account_id,
                len(answer.body),
                items.response_line,
                self.batch,
                number,
                item.custom_id,
                answer.body,
            )
            return ItemResult(number, line, answer.record)
        if not items.is_retryable(answer.error):
            if isinstance(answer.error, ProviderFailure):
                sent.answered()
        elif self._draining.is_set():
            # It may have failed because everything is being ended.
            self._driver.dropped(answer.record)
            return None
        else:
            before = self._retries.of(number)
            others = sent.failed((self.batch_id, number), answer.error, before)
            if not self._retries.failed(number, answer.error, others):
                self._driver.dropped(answer.record)
                return None
            tries = self._retries.of(number).tries
        error = items.item_error(answer.error, tries)
        failed = self._failed(number, item, error)
        return ItemResult(number, failed.line, answer.record, failed.error)

    async def _ask(self, number: int, item: items.StoredItem) -> InferenceResult:
        driver, batch, now = self._driver, self.batch, Now.by(self._driver.clock)
        try:
            call = await items.call_of(
                driver.steps, batch, self._model, self._subject, item.body, now
            )
        except TollhouseError as error:
            return InferenceResult(error=without_frames(error))
        return await driver.client.ask(call, items.generation_id(batch, number))

    def _failed(self, number: int, item: items.StoredItem, error: ItemError) -> ItemResult:
        line = items.error_line(self.batch, number, item.custom_id, error)
        return ItemResult(number, line, error=error)

    def _take(self, outcome: ItemResult) -> None:
        self._done.add(outcome.number)
        self._retries.ended(outcome.number)
        self._waiting.append(outcome)
        self._waiting_bytes += len(outcome.line)
        if self._waiting_bytes >= LARGEST_CHUNK:
            self._write_now.set()

    # The end of a batch that is closed early

    def _close_rest(self) -> None:
        word = closing_reason(self.batch)
        if word is None or self._lost:
            return
        for number in list(self._open_items()):
            self._take(self._failed(number, self._item_of(number), items.closing_error(word)))

    async def _without_items(self, error: Exception) -> None:
        """Go on without a chunk's items: nobody knows what they were."""
        _log.error(
            "batch_items_lost",
            batch=self.batch_id,
            chunk=self._leased.lease.chunk.number,
            error=type(error).__name__,
        )
        if closing_reason(self.batch) is None:
            await self._give_back(_LOST_ITEMS_PAUSE)
        else:
            await self._driver.chunks.give_up(self._leased)

    # Commits

    async def _write(self) -> None:
        """Commit outcomes as they come, and keep the lease, until every item has ended."""
        while not self._all_ended and not self._lost:
            await wait_for_event(self._write_now, self._driver.part_seconds)
            self._write_now.clear()
            if not self._all_ended:
                await self._commit()
        if self._lost:
            for each in self._waiting:
                self._driver.dropped(each.record)
            return
        finished = len(self._done) == len(self._lines)
        await self._commit(finished=finished)
        if not finished and not self._lost:
            pause = max(self._limiter.pause_seconds, self._seconds_to_next() or 0.0)
            await self._give_back(timedelta(seconds=pause))

    async def _give_back(self, pause: timedelta) -> None:
        ready_at = self._driver.clock.now() + pause
        await self._driver.chunks.give_back(self._leased, ready_at, self._retries.stored())

    async def _commit(self, *, finished: bool = False) -> None:
        """Commit what there is, again and again until that succeeds; learn how the batch stands."""
        async with self._committing:
            results, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self._parts += 1
            part, pause, is_booked = self._parts, 0.1, False
            while not self._lost:
                try:
                    batch = await self._driver.chunks.commit(
                        self._leased, results, part, finished=finished
                    )
                except Exception as error:  # noqa: BLE001 - the edge: what is done must not be lost
                    # Not its text: a database's error may quote the row.
                    _log.error(
                        "batch_results_not_stored_yet",
                        batch=self.batch_id,
                        count=len(results),
                        error=type(error).__name__,
                    )
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_WRITE_PAUSE)
                else:
                    self._kept_at = self._driver.clock.monotonic()
                    self._learn(batch)
                    is_booked = batch is not None
                    break
            tell = self._driver.booked if is_booked else self._driver.dropped
            for each in results:
                tell(each.record)

    def _learn(self, batch: Batch | None) -> None:
        if batch is None:
            self._lose()
            return
        self.batch = batch
        if closing_reason(batch) is not None:
            self.drain(self._grace)

    def _lose(self) -> None:
        """Somebody else has the chunk now: what is not committed is theirs to do."""
        _log.warning("batch_lease_lost", batch=self.batch_id)
        self._lost = True
        self.drain(0)


class _SentItem:
    """An item's request, as its limiter and its batch's breaker count it."""

    def __init__(self, limiter: ConcurrencyLimiter, breaker: CircuitBreaker) -> None:
        self._limiter, self._in_limiter = limiter, limiter.requests.begin()
        self._breaker, self._in_batch = breaker, breaker.begin()

    def ended(self) -> None:
        self._breaker.ended(self._in_batch)

    def answered(self) -> None:
        self._limiter.answered(self._in_limiter)
        self._breaker.answered(self._in_batch)

    def failed(
        self, item: tuple[str, int], error: TollhouseError, before: ItemFailures
    ) -> RequestCounter:
        """Learn that it failed; return the requests whose answers speak against the item."""
        is_providers = isinstance(error, ProviderFailure)
        if error.kind == "rate_limited":
            self._limiter.limited(error.retry_after)
        else:
            suspect = before.are_suspect
            self._breaker.failed(self._in_batch, item, error, is_suspect=suspect)
            if is_providers and not suspect:
                self._limiter.requests.note_failing(item)
        return self._limiter.requests if is_providers else self._breaker


def _first_provider(catalog: Catalog, batch: Batch, model: str) -> str:
    with suppress(TollhouseError):
        preferred = policy.preferences(batch.preferences)
        if endpoints := policy.ranked(catalog.find(model).endpoints, preferred):
            return endpoints[0].provider
    return ""

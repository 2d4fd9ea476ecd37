"""The driver for any provider: each item is a request of its own, through the ordinary pipeline.

    chunk ──> items without a result ──> lane ──> pipeline ──> outcome ──> part ──> books
                 (in their order)                               (as they come)

Outcomes are committed while others are under way, so that a kill costs only what was in flight.
What fails in passing is tried again, a few times and ever later (`retries`); meanwhile its place is
free for others. Where nobody of a batch is answered its breaker lets single probes through
(`breaker`). A chunk of which nothing can be begun soon is handed back for later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.batches import lifecycle, outcomes, policy
from tollhouse.batches.books import CAREFUL_FROM, MOST_CRASHES
from tollhouse.batches.breaker import CircuitBreaker
from tollhouse.batches.chunks import LARGEST_CHUNK, Damaged
from tollhouse.batches.items import call_of, read_line
from tollhouse.batches.ports import Answer
from tollhouse.batches.retries import Retries
from tollhouse.batches.types import ItemError, Outcome
from tollhouse.kernel.clock import Now
from tollhouse.kernel.errors import Bug, ProviderFailure, TollhouseError, without_frames
from tollhouse.kernel.waiting import wait_for_event
from tollhouse.storage.blobs.port import BlobMissing, BlobsUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tollhouse.batches.books import BatchBooks, Leased
    from tollhouse.batches.items import Line
    from tollhouse.batches.lanes import Lane, Lanes
    from tollhouse.batches.ports import Asker, Owners
    from tollhouse.batches.retries import Requests
    from tollhouse.batches.types import Batch
    from tollhouse.identity.types import Subject
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.steps import Steps
    from tollhouse.kernel.clock import Clock

SINGLES: Final = 64
"""How many items are run alone of a chunk that ended its workers: about as many as may have been
under way. Should it be a later one, the next time begins nearer to it."""
_PATIENCE_SECONDS: Final = 5.0
"""Where nothing can be begun for longer the chunk is handed back."""
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


@dataclass(frozen=True, slots=True)
class Tools:
    """What every chunk at work uses."""

    books: BatchBooks
    lanes: Lanes
    asker: Asker
    owners: Owners
    catalog: Catalog
    steps: Steps
    clock: Clock
    part_seconds: float
    """How long an outcome waits for others before it is committed."""
    keep_seconds: float = 10.0
    """How long after the last commit a lease is kept without one."""


class Fanout:
    """Runs chunks; fulfils `drivers.base.Driver`."""

    def __init__(self, tools: Tools) -> None:
        """Take what it needs."""
        self._tools = tools
        self._runs: set[_Run] = set()
        self._breakers: dict[str, CircuitBreaker] = {}
        """By batch: of those that have a chunk at work, or nobody of which was answered."""
        self._grace = _GRACE_SECONDS
        self._stopping = False

    async def run(self, leased: Leased) -> None:
        """Work on a chunk; see `Driver.run`."""
        batch = leased.batch
        subject = await self._tools.owners.owner(batch)
        breaker = self._breakers.setdefault(batch.id, CircuitBreaker(self._tools.clock))
        run = _Run(leased, subject, breaker, self._tools)
        self._runs.add(run)
        if self._stopping:
            run.halt(self._grace)
        try:
            await run.work()
        finally:
            self._runs.discard(run)
            is_needed = breaker.is_open and not run.has_ended
            if not is_needed and all(each.batch_id != batch.id for each in self._runs):
                self._breakers.pop(batch.id, None)

    def notice(self, batch_id: str) -> None:
        """Learn that a batch is being closed; see `Driver.notice`."""
        for run in self._runs:
            if run.batch_id == batch_id:
                run.look_up()

    async def keep(self) -> None:
        """Keep leases that no commit keeps; see `Driver.keep`."""
        for run in tuple(self._runs):
            await run.keep()

    async def stop(self, seconds: float) -> None:
        """Begin no more items; see `Driver.stop`."""
        self._stopping, self._grace = True, seconds
        for run in self._runs:
            run.halt(seconds)


class _Run:
    """One chunk at work."""

    def __init__(
        self, leased: Leased, subject: Subject, breaker: CircuitBreaker, tools: Tools
    ) -> None:
        self.batch_id = leased.batch.id
        self._leased = leased
        self._batch: Batch = leased.batch
        self._subject = subject
        self._tools = tools
        self._model = policy.catalog_name(leased.batch.model)
        provider = _first_provider(tools.catalog, leased.batch, self._model)
        self._lane = tools.lanes.of(provider, self._model)
        self._breaker = breaker
        self._lines: list[bytes] = []
        self._done = set(leased.lease.done)
        failed = {at: each for at, each in leased.lease.failures.items() if at not in self._done}
        self._retries = Retries(failed, self._lane.requests, tools.clock)
        self._suspects = [at for at, each in failed.items() if each.crashes]
        """Items that ran alone when their worker ended; they run alone, after all others."""
        self._fresh: deque[int] = deque()
        """Items that were not tried yet."""
        self._waiting: list[Outcome] = []
        self._waiting_bytes = 0
        self._parts = 0
        self._committing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._held = set(self._suspects)
        """Items that are not to be begun now: they are under way, or run alone later."""
        self._halted = asyncio.Event()
        """No further item is begun; nor tried again."""
        self._changed = asyncio.Event()
        """An item ended, or all are halted."""
        self._grace = _GRACE_SECONDS
        self._lost = False
        self._write_now = asyncio.Event()
        self._all_ended = False
        self._kept_at = tools.clock.monotonic()

    @property
    def has_ended(self) -> bool:
        """Whether the batch has ended."""
        return self._batch.status.is_terminal

    # From outside

    def look_up(self) -> None:
        """Look at the batch's status now; the next commit brings it."""
        self._write_now.set()

    def halt(self, grace: float) -> None:
        """Begin no further item; those under way may go on for so many seconds."""
        self._grace = grace
        self._halted.set()
        self._changed.set()
        self._lane.wake()

    async def keep(self) -> None:
        """Keep the lease where no commit did for a while: what is not stored is not lost."""
        now = self._tools.clock.monotonic()
        if now - self._kept_at < self._tools.keep_seconds:
            return
        if await self._tools.books.keep(self._leased):
            self._kept_at = now
        elif not self._all_ended:  # else it may be that the last commit gave it back
            self._lose()

    # The work

    async def work(self) -> None:
        """Give every item its result, or hand the chunk back."""
        pause = max(self._lane.pause_seconds, self._breaker.pause_seconds)
        if pause > _PATIENCE_SECONDS and self._closing_error() is None:
            await self._hand_back(timedelta(seconds=pause))
            return
        try:
            self._lines = await self._tools.books.input_of(self._leased)
        except (BlobMissing, Damaged) as error:
            await self._without_items(error)
            return
        except BlobsUnavailable as error:
            # It is no crash: nothing may be held against the chunk.
            _log.error("batch_items_not_read_yet", batch=self.batch_id, error=error.reason)
            await self._hand_back(_STORE_PAUSE)
            return
        writer = asyncio.create_task(self._write(), name="batch-writer")
        try:
            if self._closing_error() is None:
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
                if not await self._tools.books.excuse(self._leased):
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
        """Run items one by one: one of them ended the worker that had this chunk before.

        It may also have been one of another chunk: no item of any runs beside them, so that what
        ends the worker now is known.
        """
        for number in numbers:
            if self._retries.of(number).crashes >= MOST_CRASHES:
                _log.error("batch_item_given_up", batch=self.batch_id, item=number)
                self._take(self._failed(number, self._item_of(number), _CRASHED))
                continue
            if self._halted.is_set():
                return
            async with self._tools.lanes.alone():
                if not await self._enter_lane():
                    return
                await self._run_one(number)

    async def _run_one(self, number: int) -> None:
        """Run an item that has a place, and store what came of it; nothing else is under way."""
        books = self._tools.books
        # Not before: what ends the worker while nothing runs is nobody's fault.
        if not await books.suspect(self._leased, number):
            self._lane.leave(self._batch.account_id)
            self._lose()
            return
        self._begin(number)
        await self._until_all_ended()
        if number not in self._done and not await books.suspect(self._leased, None):
            self._lose()
        await self._commit()

    def _open_items(self) -> Iterator[int]:
        first = self._leased.lease.chunk.first
        return (at for at in range(first, first + len(self._lines)) if at not in self._done)

    def _item_of(self, number: int) -> Line:
        return read_line(self._lines[number - self._leased.lease.chunk.first])

    # Which item is next

    async def _next(self) -> int | None:
        """Wait until an item may be begun, and take a place for it.

        Returns:
            Its number; None where none can be begun soon, or all are done or under way.
        """
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
                self._lane.leave(self._batch.account_id)
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
            await self._tools.lanes.nobody_alone(self._is_wanted)
            if not await self._enter_lane():
                return False
            if not self._tools.lanes.is_somebody_alone:
                return True
            self._lane.leave(self._batch.account_id)

    async def _enter_lane(self) -> bool:
        return await self._lane.enter(self._batch.account_id, _PATIENCE_SECONDS, self._is_wanted)

    def _is_wanted(self) -> bool:
        return not self._halted.is_set()

    def _begin(self, number: int) -> None:
        self._held.add(number)
        # Now, and not when the task gets its turn: whoever is next sees a probe under way.
        sent = _Sent(self._lane, self._breaker)
        task = asyncio.create_task(self._item(number, sent))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, number, sent))

    def _ended(self, task: asyncio.Task[None], number: int, sent: _Sent) -> None:
        self._tasks.discard(task)
        sent.ended()
        self._held.discard(number)
        # Also of one that was cancelled before its first step.
        self._lane.leave(self._batch.account_id)
        self._changed.set()

    async def _until_all_ended(self) -> None:
        """Wait for the items under way; once halted, not for long."""
        while self._tasks and not self._halted.is_set():
            ended = asyncio.create_task(self._halted.wait())
            await asyncio.wait({*self._tasks, ended}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._grace)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # One item

    async def _item(self, number: int, sent: _Sent) -> None:
        """Try an item once: it has its result then, or waits for the next try."""
        item = self._item_of(number)
        try:
            outcome = await self._try(number, item, sent)
        except Exception:  # noqa: BLE001 - the edge of the task: it would happen again and again
            _log.exception("batch_item_failed", batch=self.batch_id, item=number)
            outcome = self._failed(number, item, outcomes.item_error(Bug("unexpected")))
        if outcome is not None:
            self._take(outcome)

    async def _try(self, number: int, item: Line, sent: _Sent) -> Outcome | None:
        """Ask once; return what became of the item, None where it is to be tried again."""
        answer = await self._ask(number, item)
        if answer.error is None:
            sent.answered()
            line = await self._tools.steps.run_for_reply(
                self._batch.account_id,
                len(answer.body),
                outcomes.response_line,
                self._batch,
                number,
                item.custom_id,
                answer.body,
            )
            return Outcome(number, line, answer.record)
        if not outcomes.passes(answer.error):
            if isinstance(answer.error, ProviderFailure):
                sent.answered()
        elif self._halted.is_set():
            # It may have failed because everything is being ended.
            return None
        elif not self._retries.failed(number, answer.error, sent.failed(number, answer.error)):
            return None
        failed = self._failed(number, item, outcomes.item_error(answer.error))
        return Outcome(number, failed.line, answer.record, failed.error)

    async def _ask(self, number: int, item: Line) -> Answer:
        tools, batch = self._tools, self._batch
        now = Now.by(tools.clock)
        try:
            call = await call_of(tools.steps, batch, self._model, self._subject, item.body, now)
        except TollhouseError as error:
            return Answer(error=without_frames(error))
        return await tools.asker.ask(call, outcomes.generation_id(batch, number))

    def _failed(self, number: int, item: Line, error: ItemError) -> Outcome:
        line = outcomes.error_line(self._batch, number, item.custom_id, error)
        return Outcome(number, line, error=error)

    def _take(self, outcome: Outcome) -> None:
        self._done.add(outcome.number)
        self._retries.ended(outcome.number)
        self._waiting.append(outcome)
        self._waiting_bytes += len(outcome.line)
        if self._waiting_bytes >= LARGEST_CHUNK:
            self._write_now.set()

    # The end of a batch that is closed early

    def _closing_error(self) -> str | None:
        return lifecycle.closing_error(self._batch)

    def _close_rest(self) -> None:
        """Give what has no result an error, where the batch is being closed."""
        word = self._closing_error()
        if word is None or self._lost:
            return
        for number in list(self._open_items()):
            error = outcomes.closing_error(word)
            self._take(self._failed(number, self._item_of(number), error))

    async def _without_items(self, error: Exception) -> None:
        """Go on without a chunk's items: nobody knows what they were."""
        _log.error(
            "batch_items_lost",
            batch=self.batch_id,
            chunk=self._leased.lease.chunk.number,
            error=type(error).__name__,
        )
        if self._closing_error() is None:
            await self._hand_back(_LOST_ITEMS_PAUSE)
        else:
            await self._tools.books.give_up(self._leased)

    # Commits

    async def _write(self) -> None:
        """Commit outcomes as they come, and keep the lease, until every item has ended."""
        while not self._all_ended and not self._lost:
            await wait_for_event(self._write_now, self._tools.part_seconds)
            self._write_now.clear()
            if not self._all_ended:
                await self._commit()
        if self._lost:
            return
        finished = len(self._done) == len(self._lines)
        await self._commit(finished=finished)
        if not finished and not self._lost:
            pause = max(self._lane.pause_seconds, self._seconds_to_next() or 0.0)
            await self._hand_back(timedelta(seconds=pause))

    async def _hand_back(self, pause: timedelta) -> None:
        """Give the chunk back, to be taken again after a pause."""
        ready_at = self._tools.clock.now() + pause
        await self._tools.books.hand_back(self._leased, ready_at, self._retries.stored())

    async def _commit(self, *, finished: bool = False) -> None:
        """Commit what there is, again and again until that succeeds; learn how the batch stands."""
        async with self._committing:
            await self._commit_now(finished=finished)

    async def _commit_now(self, *, finished: bool) -> None:
        results, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._parts += 1
        part, pause = self._parts, 0.1
        while not self._lost:
            try:
                batch = await self._tools.books.commit(
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
                continue
            self._kept_at = self._tools.clock.monotonic()
            self._learn(batch)
            return

    def _learn(self, batch: Batch | None) -> None:
        if batch is None:
            self._lose()
            return
        self._batch = batch
        if self._closing_error() is not None:
            self.halt(self._grace)

    def _lose(self) -> None:
        """Somebody else has the chunk now: what is not committed is theirs to do."""
        _log.warning("batch_lease_lost", batch=self.batch_id)
        self._lost = True
        self.halt(0)


class _Sent:
    """An item's request, as its lane and its batch's breaker count it."""

    def __init__(self, lane: Lane, breaker: CircuitBreaker) -> None:
        self._lane, self._in_lane = lane, lane.requests.begin()
        self._breaker, self._in_batch = breaker, breaker.begin()

    def ended(self) -> None:
        self._breaker.ended(self._in_batch)

    def answered(self) -> None:
        self._lane.answered(self._in_lane)
        self._breaker.answered(self._in_batch)

    def failed(self, number: int, error: TollhouseError) -> Requests:
        """Learn that it failed; return the requests whose answers speak against the item."""
        if error.kind == "rate_limited":
            self._lane.limited(error.retry_after)
        else:
            self._breaker.failed(self._in_batch, number, error)
        return self._lane.requests if isinstance(error, ProviderFailure) else self._breaker


def _first_provider(catalog: Catalog, batch: Batch, model: str) -> str:
    with suppress(TollhouseError):
        offers = policy.ranked(catalog.find(model).endpoints, policy.preferences(batch.wish))
        if offers:
            return offers[0].provider
    return ""

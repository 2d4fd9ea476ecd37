"""The driver for any provider: each item is a request of its own, through the ordinary pipeline.

    chunk ──> items without a result ──> lane ──> pipeline ──> outcome ──> part ──> books
                 (in their order)                               (as they come)

Outcomes are committed while others are under way, so that a kill costs only what was in flight.
What fails in passing is tried again: as long as nobody is answered at that provider it counts as
away and the chunk is handed back for later; where others are answered an item has `TRIES`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.batches import lifecycle, outcomes, policy
from tollhouse.batches.books import CAREFUL_FROM, GIVES_UP_AT
from tollhouse.batches.chunks import LARGEST_CHUNK, Damaged, read_lines
from tollhouse.batches.items import call_of, read_line
from tollhouse.batches.types import ItemError, Outcome
from tollhouse.kernel.clock import Now
from tollhouse.kernel.errors import Bug, TollhouseError
from tollhouse.kernel.waiting import happens_within
from tollhouse.storage.blobs.port import BlobMissing, BlobsUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tollhouse.batches.books import BatchBooks, Leased
    from tollhouse.batches.items import Line
    from tollhouse.batches.lanes import Lanes
    from tollhouse.batches.ports import Asker, Owners
    from tollhouse.batches.types import Batch
    from tollhouse.identity.types import Subject
    from tollhouse.inference.catalog import Catalog
    from tollhouse.kernel.clock import Clock

SINGLES: Final = 64
"""How many items are run alone of a chunk that ended its workers: about as many as may have been
under way. Should it be a later one, the next time begins nearer to it."""
TRIES: Final = 5
"""How often an item is tried that fails while others at its provider are answered."""
_PATIENCE_SECONDS: Final = 5.0
"""A longer pause of the provider is no reason to keep the chunk."""
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
        self._grace = _GRACE_SECONDS
        self._stopping = False

    async def run(self, leased: Leased) -> None:
        """Work on a chunk; see `Driver.run`."""
        batch = leased.batch
        subject = await self._tools.owners.owner(batch)
        run = _Run(leased, subject, self._tools)
        self._runs.add(run)
        if self._stopping:
            run.halt(self._grace)
        try:
            await run.work()
        finally:
            self._runs.discard(run)

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

    def __init__(self, leased: Leased, subject: Subject, tools: Tools) -> None:
        self.batch_id = leased.batch.id
        self._leased = leased
        self._batch: Batch = leased.batch
        self._subject = subject
        self._tools = tools
        self._model = policy.catalog_name(leased.batch.model)
        self._lane = tools.lanes.of(_first_provider(tools.catalog, leased.batch, self._model))
        self._is_careful = leased.lease.attempts >= CAREFUL_FROM
        """Its items run alone."""
        self._done = set(leased.lease.done)
        self._waiting: list[Outcome] = []
        self._waiting_bytes = 0
        self._parts = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._inside: set[int] = set()
        """Items that have a place in the lane."""
        self._halted = asyncio.Event()
        """No further item is begun; nor tried again."""
        self._grace = _GRACE_SECONDS
        self._lost = False
        self._write_now = asyncio.Event()
        self._all_ended = False
        self._kept_at = tools.clock.monotonic()

    # From outside

    def look_up(self) -> None:
        """Look at the batch's status now; the next commit brings it."""
        self._write_now.set()

    def halt(self, grace: float) -> None:
        """Begin no further item; those under way may go on for so many seconds."""
        self._grace = grace
        self._halted.set()
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
        try:
            lines = list(read_lines(await self._tools.books.input_of(self._leased)))
        except (BlobMissing, Damaged) as error:
            await self._without_items(error)
            return
        except BlobsUnavailable as error:
            # It is no crash: nothing may be held against the chunk.
            _log.error("batch_items_not_read_yet", batch=self.batch_id, error=error.reason)
            await self._tools.books.hand_back(self._leased, self._tools.clock.now() + _STORE_PAUSE)
            return
        writer = asyncio.create_task(self._write(len(lines)), name="batch-writer")
        try:
            if self._closing_error() is None:
                await self._run_items(lines)
            self._close_rest(lines)
        finally:
            self._all_ended = True
            self._write_now.set()
            await writer

    async def _run_items(self, lines: list[bytes]) -> None:
        if self._is_careful:
            await self._run_singly(lines)
            self._is_careful = False
        try:
            for number, line in self._open_items(lines):
                if not await self._enter():
                    break
                self._begin(number, line)
            await self._until_all_ended()
        finally:
            for task in self._tasks:
                task.cancel()

    async def _run_singly(self, lines: list[bytes]) -> None:
        """Run items one by one: one of them ended the workers that had this chunk before.

        It may also have been one of another chunk: no item of any runs beside them, so that what
        ends the worker now is known.
        """
        lease, books = self._leased.lease, self._tools.books
        attempts = lease.attempts
        if not await books.excuse(self._leased):
            self._lose()
        for number, line in islice(self._open_items(lines), SINGLES):
            if number == lease.suspect and lease.attempts >= GIVES_UP_AT:
                _log.error("batch_item_given_up", batch=self.batch_id, item=number)
                self._take(self._failed(number, read_line(line), _CRASHED))
                continue
            async with self._tools.lanes.alone():
                if self._halted.is_set():
                    break
                if not await books.suspect(self._leased, number, attempts):
                    self._lose()
                if not await self._enter():
                    break
                self._begin(number, line)
                await self._until_all_ended()
                await self._commit()
            attempts = CAREFUL_FROM - 1

    def _open_items(self, lines: list[bytes]) -> Iterator[tuple[int, bytes]]:
        first = self._leased.lease.chunk.first
        return ((at, line) for at, line in enumerate(lines, first) if at not in self._done)

    async def _enter(self) -> bool:
        """Take a place for an item; false where none is begun any more for now."""
        if self._is_careful:
            return await self._enter_lane()
        while True:
            await self._tools.lanes.nobody_alone(self._is_wanted)
            if not await self._enter_lane():
                return False
            if not self._tools.lanes.is_somebody_alone:
                return True
            self._lane.leave()

    async def _enter_lane(self) -> bool:
        return await self._lane.enter(_PATIENCE_SECONDS, self._is_wanted)

    def _is_wanted(self) -> bool:
        return not self._halted.is_set()

    def _begin(self, number: int, line: bytes) -> None:
        self._inside.add(number)
        task = asyncio.create_task(self._item(number, line))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, number))

    def _ended(self, task: asyncio.Task[None], number: int) -> None:
        self._tasks.discard(task)
        # Also of one that was cancelled before its first step.
        self._leave(number)

    def _leave(self, number: int) -> None:
        """Give an item's place in the lane back, if it has one."""
        if number in self._inside:
            self._inside.discard(number)
            self._lane.leave()

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

    async def _item(self, number: int, line: bytes) -> None:
        """Run an item until it has a result, or may not be tried now."""
        tries, item = 1, read_line(line)
        try:
            while True:
                answers = self._lane.answers
                outcome, passing = await self._try(number, item)
                if passing is None or tries >= TRIES:
                    self._take(outcome)
                    return
                self._leave(number)
                if not await self._enter():
                    return
                self._inside.add(number)
                # While nobody is answered it is the provider's fault and not the item's.
                tries += self._lane.answers > answers
        except Exception:  # noqa: BLE001 - the edge of the task: it would happen again and again
            _log.exception("batch_item_failed", batch=self.batch_id, item=number)
            self._take(self._failed(number, item, outcomes.item_error(Bug("unexpected"))))

    async def _try(self, number: int, item: Line) -> tuple[Outcome, TollhouseError | None]:
        """Ask once.

        Returns:
            What became of the item; and the error, where it may succeed later.
        """
        now = Now.by(self._tools.clock)
        try:
            call = call_of(self._batch, self._model, self._subject, item.body, now)
        except TollhouseError as error:
            return self._failed(number, item, outcomes.item_error(error)), None
        name = outcomes.generation_id(self._batch, number)
        answer = await self._tools.asker.ask(call, name)
        if answer.error is None:
            self._lane.answered()
            line = outcomes.response_line(self._batch, number, item.custom_id, answer.body)
            return Outcome(number, line, answer.record), None
        failed = self._failed(number, item, outcomes.item_error(answer.error))
        outcome = Outcome(number, failed.line, answer.record, failed.error)
        if outcomes.passes(answer.error):
            self._lane.failed(answer.error)
            return outcome, answer.error
        self._lane.answered()
        return outcome, None

    def _failed(self, number: int, item: Line, error: ItemError) -> Outcome:
        line = outcomes.error_line(self._batch, number, item.custom_id, error)
        return Outcome(number, line, error=error)

    def _take(self, outcome: Outcome) -> None:
        self._done.add(outcome.number)
        self._waiting.append(outcome)
        self._waiting_bytes += len(outcome.line)
        if self._waiting_bytes >= LARGEST_CHUNK:
            self._write_now.set()

    # The end of a batch that is closed early

    def _closing_error(self) -> str | None:
        return lifecycle.closing_error(self._batch)

    def _close_rest(self, lines: list[bytes]) -> None:
        """Give what has no result an error, where the batch is being closed."""
        word = self._closing_error()
        if word is None or self._lost:
            return
        for number, line in self._open_items(lines):
            self._take(self._failed(number, read_line(line), outcomes.closing_error(word)))

    async def _without_items(self, error: Exception) -> None:
        """Go on without a chunk's items: nobody knows what they were."""
        _log.error(
            "batch_items_lost",
            batch=self.batch_id,
            chunk=self._leased.lease.chunk.number,
            error=type(error).__name__,
        )
        books, now = self._tools.books, self._tools.clock.now()
        if self._closing_error() is None:
            await books.hand_back(self._leased, now + _LOST_ITEMS_PAUSE)
        else:
            await books.give_up(self._leased)

    # Commits

    async def _write(self, items: int) -> None:
        """Commit outcomes as they come, and keep the lease, until every item has ended."""
        while not self._all_ended and not self._lost:
            await happens_within(self._write_now, self._tools.part_seconds)
            self._write_now.clear()
            if not self._all_ended:
                await self._commit()
        if self._lost:
            return
        finished = len(self._done) == items
        await self._commit(finished=finished)
        if not finished and not self._lost:
            pause = timedelta(seconds=self._lane.pause_seconds)
            await self._tools.books.hand_back(self._leased, self._tools.clock.now() + pause)

    async def _commit(self, *, finished: bool = False) -> None:
        """Commit what there is, again and again until that succeeds; learn how the batch stands."""
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


def _first_provider(catalog: Catalog, batch: Batch, model: str) -> str:
    with suppress(TollhouseError):
        offers = policy.named(catalog.find(model).endpoints, batch.wish)
        if offers:
            return offers[0].provider
    return ""

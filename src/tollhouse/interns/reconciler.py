"""The reconciler: brings every intern of this machine where it is wanted, and keeps it there.

    ring, or a round's time is over ──> who waits? ──> lease ──> look after it ──> let go
                                                                  │ boot, keep running, suspend,
                                                                  └ destroy: see `journeys`

One task looks after one intern for as long as there is something to do or it runs. Its lease is
kept meanwhile; a reconciler that loses one takes down what it runs under it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.interns import repository
from tollhouse.interns.journeys import LeaseLost
from tollhouse.interns.lifecycle import BEGUN, JOURNEYS, RUNS, Journey
from tollhouse.interns.policy import nobody_there, restarts_that_count
from tollhouse.interns.presence import Presence
from tollhouse.kernel.waiting import wait_for_event

if TYPE_CHECKING:
    from datetime import datetime

    from tollhouse.interns.context import Context
    from tollhouse.interns.journeys import Journeys, Tools
    from tollhouse.interns.types import Lease
    from tollhouse.storage.transaction import Read

MOST_RESTARTS: Final = 3
"""How often a sandbox that ends by itself is started anew, until it has run well or somebody
provisions it again."""
_LEAVE_SECONDS: Final = 5.0
_FAULT_SECONDS: Final = 2.0
"""The pause after a fault of ours, before an intern is looked at again."""
_log = structlog.get_logger(__name__)


class Reconciler:
    """Brings interns where they are wanted; fulfils `ports.Crew`."""

    def __init__(  # noqa: PLR0913 - each says how long something is waited for
        self,
        context: Context,
        tools: Tools,
        journeys: Journeys,
        *,
        lease_seconds: float,
        away_seconds: float,
        round_seconds: float,
    ) -> None:
        """Take what it needs; nothing runs before `start`.

        Args:
            context: The slice's own.
            tools: What runs sandboxes.
            journeys: Who brings one intern somewhere.
            lease_seconds: After how long without a sign of life somebody else may act.
            away_seconds: After how long without a sign of life from another machine its interns
                are said not to run.
            round_seconds: How long no ring is needed for it to look.
        """
        self._context = context
        self._tools = tools
        self._journeys = journeys
        self._lease = timedelta(seconds=lease_seconds)
        machine, away = tools.workspaces.machine, timedelta(seconds=away_seconds)
        self._presence = Presence(machine, self._lease, away)
        self._keep_seconds = lease_seconds / 3
        self._round_seconds = round_seconds
        self._looked_after: dict[str, asyncio.Task[None]] = {}
        self._held: dict[str, Lease] = {}
        self._main: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._may_sweep = False
        self._stopping = False

    async def check_reachable(self, read: Read, machine: str | None) -> None:
        """Make sure that it is at work, or that others are who would do as well.

        Args:
            read: The transaction.
            machine: The machine that is needed; None where any would do.

        Raises:
            ServiceUnreachable: Nobody is.
        """
        at_work = self._main is not None and not self._main.done() and not self._stopping
        here = machine is not None and self.is_here(machine)
        if at_work and (here or machine is None):
            return
        if here:
            raise nobody_there()
        await self._presence.check_others(read, machine, self._context.clock.now())

    def is_here(self, machine: str) -> bool:
        """Tell whether what is on a machine is on this one."""
        return machine == self._presence.machine

    def expect_boot(self) -> None:
        """Begin what a boot would have to wait for: the start of the egress proxy."""
        self._tools.egress.make_ready()

    async def begin_alone(self) -> None:
        """Tidy what a killed server has left, and say of nobody any more that it runs.

        Files are left alone where the database has never heard of this machine: they may be
        another database's.

        For a start before anybody is answered, where no other server is on this machine.
        """
        now = self._context.clock.now()
        await self._tools.runtime.sweep()
        self._tools.sandboxes.sweep()
        async with self._context.database.writing() as write:
            self._may_sweep = await repository.is_known(write, self._presence.machine)
            await repository.begin_anew(write, self._presence.machine, now)
            words = await self._presence.stay(write, now)
            known = await repository.ids(write)
        self._presence.kept(words, self._context.clock.monotonic())
        workspaces = self._tools.workspaces
        await asyncio.to_thread(workspaces.bring_back, known)
        if self._may_sweep:
            await asyncio.to_thread(workspaces.put_aside, known, now)
            self._tools.logs.sweep(known)
        elif not workspaces.is_empty():
            _log.warning("intern_sweep_skipped", reason="the database does not know this machine")

    def start(self) -> None:
        """Begin to work."""
        self._main = asyncio.create_task(self._rounds(), name="intern-rounds")
        self._keeper = asyncio.create_task(self._keep(), name="intern-leases")
        if self._may_sweep:
            self._sweeper = asyncio.create_task(self._sweep(), name="intern-sweep")

    async def stop(self, seconds: float) -> None:
        """Take down what runs here, and say so; it is started again with the next server.

        Args:
            seconds: How long the programs in sandboxes have.
        """
        leaves = self._main is not None and not self._stopping
        self._stopping = True
        tasks = {*self._looked_after.values()}
        own = (self._main, self._keeper, self._sweeper)
        tasks |= {task for task in own if task is not None}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if leaves:
            await self._leave()
        running = self._tools.sandboxes.all()
        await asyncio.gather(*(self._tools.sandboxes.take_down(each, seconds) for each in running))

    async def _sweep(self) -> None:
        """Remove what nobody needs, once, beside all else: the store may be large or slow."""
        try:
            await self._tools.workspaces.sweep(self._known, self._context.clock.now())
        except Exception:  # noqa: BLE001 - the edge of the task: the next start tries again
            _log.exception("intern_sweep_failed")

    async def _known(self) -> frozenset[str]:
        async with self._context.database.reading() as read:
            return await repository.ids(read)

    async def _leave(self) -> None:
        """Say of nobody any more that it runs, and of this machine that it is not there."""
        now = self._context.clock.now()
        try:
            async with asyncio.timeout(_LEAVE_SECONDS), self._context.database.writing() as write:
                await repository.begin_anew(write, self._presence.machine, now)
                await self._presence.leave(write, now)
        except Exception:  # noqa: BLE001 - the edge: others find out when it stays away
            _log.exception("intern_leave_failed")

    async def _rounds(self) -> None:
        machine = self._presence.machine
        while True:
            try:
                now = self._context.clock.now()
                async with self._context.database.reading() as read:
                    waiting = await repository.waiting(read, machine, now)
                for intern_id in waiting:
                    if intern_id not in self._looked_after:
                        await self._take(intern_id, machine)
                await self._give_up_stranded(now)
            except Exception:  # noqa: BLE001 - the edge: the next round tries again
                _log.exception("intern_round_failed")
            await self._news_of_others()

    async def _news_of_others(self) -> None:
        """Wait for news of an intern that nobody looks after here, or until a round is over."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._round_seconds
        while (left := ends - loop.time()) > 0:
            rung = await self._context.news.any_rung(left)
            # Who looks after one hears of it, and `_let_go` rings again when that is over.
            if rung - self._looked_after.keys():
                return

    async def _give_up_stranded(self, now: datetime) -> None:
        """Say what is true of interns whose machines have been away for too long."""
        silent = self._presence.silent(self._context.clock.monotonic())
        if silent is None:
            return
        async with self._context.database.reading() as read:
            stranded = await repository.stranded(read, silent, now)
        for intern_id in stranded:
            async with self._context.database.writing() as write:
                held = await repository.lease_stranded(
                    write, intern_id, silent, now, now + self._lease
                )
            if held is not None:
                with suppress(LeaseLost):
                    await self._journeys.give_up(held)
                await self._give_back(held)

    async def _take(self, intern_id: str, machine: str) -> None:
        now = self._context.clock.now()
        async with self._context.database.writing() as write:
            held = await repository.lease(write, intern_id, machine, now, now + self._lease)
        if held is None:
            return
        self._held[intern_id] = held
        task = asyncio.create_task(self._look_after(held), name=f"intern-{intern_id}")
        self._looked_after[intern_id] = task
        task.add_done_callback(lambda _: self._let_go(intern_id))

    def _let_go(self, intern_id: str) -> None:
        """Look again at once: something may have been asked for at the very end."""
        self._looked_after.pop(intern_id, None)
        self._context.news.ring(intern_id)

    async def _keep(self) -> None:
        """Keep the leases of all that is looked after."""
        while True:
            await asyncio.sleep(self._keep_seconds)
            try:
                await self._extend()
            except Exception:  # noqa: BLE001 - the edge: the next one tries again
                _log.exception("intern_leases_not_kept")

    async def _extend(self) -> None:
        held = dict(self._held)
        now = self._context.clock.now()
        async with self._context.database.writing() as write:
            kept = await repository.extend(write, held.values(), now + self._lease)
            # Who is gone was not lost to anybody: its files may still be on their way out.
            missing = held.keys() - kept
            lost = await repository.ids(write, missing) if missing else frozenset[str]()
            words = await self._presence.stay(write, now)
        self._presence.kept(words, self._context.clock.monotonic())
        for intern_id in lost:
            task = self._looked_after.get(intern_id)
            if task is not None and self._held.get(intern_id) is held[intern_id]:
                task.cancel()

    async def _look_after(self, held: Lease) -> None:
        intern_id = held.intern.id
        try:
            with self._context.news.listening(intern_id) as heard:
                while await self._go_on(held, heard):
                    continue
            await self._give_back(held)
        except LeaseLost:
            await self._tools.sandboxes.take_down(intern_id, 0)
            await self._give_back(held)  # of no effect where somebody else has it
        except asyncio.CancelledError:
            if not self._stopping:
                await self._tools.sandboxes.take_down(intern_id, 0)
            raise
        except Exception:  # noqa: BLE001 - the edge of the task: its lease runs out
            _log.exception("intern_fault", intern=intern_id)
            await self._tools.sandboxes.take_down(intern_id, 0)
            await asyncio.sleep(_FAULT_SECONDS)
            await self._give_back(held)
        finally:
            self._held.pop(intern_id, None)

    async def _give_back(self, held: Lease) -> None:
        async with self._context.database.writing() as write:
            await repository.let_go(write, held)

    async def _go_on(self, held: Lease, heard: asyncio.Event) -> bool:
        """Do what is next with an intern; false where nothing is."""
        heard.clear()
        async with self._context.database.reading() as read:
            intern = await repository.get(read, held.intern.id)
        if intern is None:
            await self._tools.sandboxes.take_down(held.intern.id, 0)
            return False
        now = replace(held, intern=intern)
        match JOURNEYS.get(intern.state):
            case Journey.BOOT:
                await self._journeys.boot(now)
            case Journey.SUSPEND:
                await self._journeys.suspend(now)
            case Journey.DESTROY:
                await self._journeys.destroy(now)
            case None if intern.state == RUNS:
                await self._keep_running(now, heard)
            case None:
                # Nothing is left of it, unless others gave it up while this machine was away.
                await self._tools.sandboxes.take_down(intern.id, 0)
                return False
        return True

    async def _keep_running(self, held: Lease, heard: asyncio.Event) -> None:
        running = self._tools.sandboxes.get(held.intern.id)
        if running is None or running.ended is None:
            await self._restart(held)  # of a server before us
            return
        if not running.ended.done():
            await self._wait(heard, running.ended)
        if running.ended.done():
            reason = running.ended.result()
            _log.warning("intern_sandbox_ended", intern=held.intern.id, reason=reason)
            self._tools.logs.note(held.intern.id, f"its sandbox ended: {reason}")
            earlier = restarts_that_count(
                held.intern.restarts, running.since, self._context.clock.now()
            )
            if earlier >= MOST_RESTARTS:
                await self._journeys.fail(held, f"its sandbox ended: {reason}")
            else:
                await self._restart(held, restarts=earlier + 1)

    async def _wait(self, heard: asyncio.Event, ended: asyncio.Task[str]) -> None:
        """Wait until a sandbox has ended, or something may be asked of the intern."""
        asked = asyncio.ensure_future(wait_for_event(heard, self._round_seconds))
        try:
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()

    async def _restart(self, held: Lease, **facts: object) -> None:
        now = self._context.clock.now()
        async with self._context.database.writing() as write:
            arrived = await repository.arrive(write, held, BEGUN, now, step=1, **facts)
        if arrived is None:
            async with self._context.database.reading() as read:
                latest = await repository.get(read, held.intern.id)
            if latest is None or latest.state == RUNS:
                raise LeaseLost  # otherwise something else was asked for in this moment

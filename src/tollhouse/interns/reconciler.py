"""The reconciler: brings every intern of this machine where it is wanted, and keeps it there.

    notified, or a round is over ──> interns that are due ──> lease ──> look after it ──> release
                                                                         │ boot, keep running,
                                                                         └ suspend, destroy

One task looks after one intern for as long as there is something to do or it runs. Its lease is
kept meanwhile; a reconciler that loses one takes down what it runs under it.

    this machine ──every third of a lease──> present until now + a lease
    another one's word has not changed for `away` ──> it is away: its interns do not run

How long a word has not changed is measured here, so that the clocks of machines need not agree. A
server judges others only once it has kept its own word for as long: after a failure of the
database, or where all servers were down, the others need time to come back too.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from tollhouse.interns import policy, repository
from tollhouse.interns.actions import LeaseLost, ReconcilerActions, ReconcilerDependencies
from tollhouse.interns.lifecycle import ACTIONS, BOOTING, RUNNING, ReconcilerAction
from tollhouse.kernel.concurrency import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.interns.context import InternContext
    from tollhouse.interns.types import InternLease
    from tollhouse.storage.database import Read, Write

MOST_RESTARTS: Final = 3
"""How often a sandbox that ends by itself is started anew, until it has run well or somebody
provisions it again."""
_STABLE_AFTER: Final = timedelta(minutes=10)
"""After which a sandbox that ends is one that ends for the first time."""
_LEAVE_SECONDS: Final = 5.0
_FAULT_SECONDS: Final = 2.0
"""The pause after a fault of ours, before an intern is looked at again."""
_log = structlog.get_logger(__name__)


class Reconciler:
    """Brings interns where they are wanted."""

    def __init__(  # noqa: PLR0913 - each says how long something is waited for
        self,
        context: InternContext,
        tools: ReconcilerDependencies,
        actions: ReconcilerActions,
        *,
        lease_seconds: float,
        away_seconds: float,
        round_seconds: float,
    ) -> None:
        """Take what it needs; nothing runs before `start`.

        Somebody else may act after `lease_seconds` without a sign of life; after `away_seconds`
        without one, another machine's interns are stranded. Without a notification, it looks for
        interns every `round_seconds`.
        """
        self._context = context
        self._dependencies = tools
        self._actions = actions
        self._lease = timedelta(seconds=lease_seconds)
        machine, away = tools.workspaces.machine, timedelta(seconds=away_seconds)
        self._presence = Heartbeats(machine, self._lease, away)
        self._keep_seconds = lease_seconds / 3
        self._round_seconds = round_seconds
        self._looked_after: dict[str, asyncio.Task[None]] = {}
        self._held: dict[str, InternLease] = {}
        self._main: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._may_sweep = False
        self._stopping = False

    async def check_reachable(self, read: Read, machine: str | None) -> None:
        """See `ReconcilerStatus`; another machine's reconciler counts too."""
        at_work = self._main is not None and not self._main.done() and not self._stopping
        here = machine is not None and self.is_here(machine)
        if at_work and (here or machine is None):
            return
        if here:
            raise policy.no_reconciler()
        await self._presence.check_others(read, machine, self._context.clock.now())

    def is_here(self, machine: str) -> bool:
        """Tell whether what is on a machine is on this one."""
        return machine == self._presence.machine

    def expect_boot(self) -> None:
        """Begin what a boot would have to wait for: the start of the egress proxy."""
        self._dependencies.egress.make_ready()

    async def clean_up(self) -> None:
        """Remove what a killed server has left, and requeue the interns that it ran.

        Files stay where the database has never heard of this machine: they may be another
        database's. It is called before any request is answered, with no other server here.
        """
        now = self._context.clock.now()
        await self._dependencies.runtime.sweep()
        self._dependencies.sandboxes.sweep()
        async with self._context.database.writing() as write:
            self._may_sweep = await repository.is_known_machine(write, self._presence.machine)
            await repository.requeue_interns(write, self._presence.machine, now)
            words = await self._presence.stay(write, now)
            known = await repository.ids(write)
        self._presence.kept(words, self._context.clock.monotonic())
        workspaces = self._dependencies.workspaces
        await asyncio.to_thread(workspaces.bring_back, known)
        if self._may_sweep:
            await asyncio.to_thread(workspaces.put_aside, known, now)
            self._dependencies.logs.sweep(known)
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

        Programs in sandboxes have so many seconds.
        """
        leaves = self._main is not None and not self._stopping
        self._stopping = True
        own = (self._main, self._keeper, self._sweeper)
        tasks = {*self._looked_after.values(), *(task for task in own if task is not None)}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if leaves:
            await self._leave()
        running = self._dependencies.sandboxes.all()
        await asyncio.gather(
            *(self._dependencies.sandboxes.take_down(each, seconds) for each in running)
        )

    async def _sweep(self) -> None:
        """Remove what nobody needs, once, beside all else: the store may be large or slow."""
        try:
            await self._dependencies.workspaces.sweep(self._known, self._context.clock.now())
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
                await repository.requeue_interns(write, self._presence.machine, now)
                await self._presence.leave(write, now)
        except Exception:  # noqa: BLE001 - the edge: others find out when it stays away
            _log.exception("intern_leave_failed")

    async def _rounds(self) -> None:
        machine = self._presence.machine
        while True:
            try:
                now = self._context.clock.now()
                async with self._context.database.reading() as read:
                    due = await repository.due(read, machine, now)
                for intern_id in due:
                    if intern_id not in self._looked_after:
                        await self._take(intern_id, machine)
                await self._give_up_stranded(now)
            except Exception:  # noqa: BLE001 - the edge: the next round tries again
                _log.exception("intern_round_failed")
            await self._wait_for_others()

    async def _wait_for_others(self) -> None:
        """Wait for news of an intern that nobody looks after here, or until a round is over."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._round_seconds
        while (left := ends - loop.time()) > 0:
            notified = await self._context.notifications.wait_for_any(left)
            # Who looks after one hears of it, and `_let_go` notifies again when that is over.
            if notified - self._looked_after.keys():
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
                held = await repository.acquire_stranded_lease(
                    write, intern_id, silent, now, now + self._lease
                )
            if held is not None:
                with suppress(LeaseLost):
                    await self._actions.give_up(held)
                await self._give_back(held)

    async def _take(self, intern_id: str, machine: str) -> None:
        now = self._context.clock.now()
        async with self._context.database.writing() as write:
            held = await repository.acquire_lease(write, intern_id, machine, now, now + self._lease)
        if held is None:
            return
        self._held[intern_id] = held
        task = asyncio.create_task(self._look_after(held), name=f"intern-{intern_id}")
        self._looked_after[intern_id] = task
        task.add_done_callback(lambda _: self._let_go(intern_id))

    def _let_go(self, intern_id: str) -> None:
        """Look again at once: something may have been asked for at the very end."""
        self._looked_after.pop(intern_id, None)
        self._context.notifications.notify(intern_id)

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
            kept = await repository.extend_leases(write, held.values(), now + self._lease)
            # Who is gone was not lost to anybody: its files may still be on their way out.
            missing = held.keys() - kept
            lost = await repository.ids(write, missing) if missing else frozenset[str]()
            words = await self._presence.stay(write, now)
        self._presence.kept(words, self._context.clock.monotonic())
        for intern_id in lost:
            task = self._looked_after.get(intern_id)
            if task is not None and self._held.get(intern_id) is held[intern_id]:
                task.cancel()

    async def _look_after(self, held: InternLease) -> None:
        intern_id = held.intern.id
        try:
            with self._context.notifications.subscribe(intern_id) as heard:
                while await self._go_on(held, heard):
                    continue
            await self._give_back(held)
        except LeaseLost:
            await self._dependencies.sandboxes.take_down(intern_id, 0)
            await self._give_back(held)  # of no effect where somebody else has it
        except asyncio.CancelledError:
            if not self._stopping:
                await self._dependencies.sandboxes.take_down(intern_id, 0)
            raise
        except Exception:  # noqa: BLE001 - the edge of the task: its lease runs out
            _log.exception("intern_fault", intern=intern_id)
            await self._dependencies.sandboxes.take_down(intern_id, 0)
            await asyncio.sleep(_FAULT_SECONDS)
            await self._give_back(held)
        finally:
            self._held.pop(intern_id, None)

    async def _give_back(self, held: InternLease) -> None:
        async with self._context.database.writing() as write:
            await repository.release_lease(write, held)

    async def _go_on(self, held: InternLease, heard: asyncio.Event) -> bool:
        """Do what is next with an intern; false where nothing is."""
        heard.clear()
        async with self._context.database.reading() as read:
            intern = await repository.get(read, held.intern.id)
        if intern is None:
            await self._dependencies.sandboxes.take_down(held.intern.id, 0)
            return False
        now = replace(held, intern=intern)
        match ACTIONS.get(intern.state):
            case ReconcilerAction.BOOT:
                await self._actions.boot(now)
            case ReconcilerAction.SUSPEND:
                await self._actions.suspend(now)
            case ReconcilerAction.DESTROY:
                await self._actions.destroy(now)
            case None if intern.state == RUNNING:
                await self._keep_running(now, heard)
            case None:
                # Nothing is left of it, unless others gave it up while this machine was away.
                await self._dependencies.sandboxes.take_down(intern.id, 0)
                return False
        return True

    async def _keep_running(self, held: InternLease, heard: asyncio.Event) -> None:
        running = self._dependencies.sandboxes.get(held.intern.id)
        if running is None or running.ended is None:
            await self._restart(held)  # of a server before us
            return
        if not running.ended.done():
            await self._wait(heard, running.ended)
        if running.ended.done():
            reason = running.ended.result()
            _log.warning("intern_sandbox_ended", intern=held.intern.id, reason=reason)
            self._dependencies.logs.note(held.intern.id, f"its sandbox ended: {reason}")
            since, now = running.since, self._context.clock.now()
            ran_well = since is not None and now - since >= _STABLE_AFTER
            earlier = 0 if ran_well else held.intern.restarts
            if earlier >= MOST_RESTARTS:
                await self._actions.fail(held, f"its sandbox ended: {reason}")
            else:
                await self._restart(held, restarts=earlier + 1)

    async def _wait(self, heard: asyncio.Event, ended: asyncio.Task[str]) -> None:
        """Wait until a sandbox has ended, or something may be asked of the intern."""
        asked = asyncio.ensure_future(wait_for_event(heard, self._round_seconds))
        try:
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()

    async def _restart(self, held: InternLease, **facts: object) -> None:
        now = self._context.clock.now()
        async with self._context.database.writing() as write:
            arrived = await repository.enter_state(write, held, BOOTING, now, step=1, **facts)
        if arrived is None:
            async with self._context.database.reading() as read:
                latest = await repository.get(read, held.intern.id)
            if latest is None or latest.state == RUNNING:
                raise LeaseLost  # otherwise something else was asked for in this moment


class Heartbeat(NamedTuple):
    """What a machine has said last."""

    until: datetime
    """That it is there, by its own clock."""
    since: float
    """When that was new here, in seconds of the monotonic clock."""


class Heartbeats:
    """The word of this machine, and what it makes of others' words."""

    def __init__(self, machine: str, lease: timedelta, away: timedelta) -> None:
        self.machine = machine
        self._lease = lease
        self._away = away.total_seconds()
        self._words: Mapping[str, Heartbeat] = {}
        self._steady_since: float | None = None
        self._last: float | None = None

    async def stay(self, write: Write, now: datetime) -> Mapping[str, datetime]:
        """Say that this machine is there; return every machine's word, for `kept` after that."""
        await repository.save_heartbeat(write, self.machine, now + self._lease)
        return await repository.heartbeats(write)

    def kept(self, words: Mapping[str, datetime], at: float) -> None:
        """Learn that this machine has kept its word, and until when each says that it is there.

        `at` is the present, in seconds of the monotonic clock.
        """
        if self._is_late(at):
            self._steady_since = at
        self._last = at
        before = self._words
        self._words = {
            machine: before[machine]
            if machine in before and before[machine].until == until
            else Heartbeat(until, at)
            for machine, until in words.items()
        }

    async def leave(self, write: Write, now: datetime) -> None:
        """Say that this machine is not there from now on; it may come back at any time."""
        await repository.save_heartbeat(write, self.machine, now)

    def silent(self, at: float) -> Mapping[str, datetime] | None:
        """Return the words of machines that have been away; None while this server may not judge.

        It has to be there itself, and to have been for as long. `at` is as for `kept`.
        """
        steady = self._steady_since
        if self._is_late(at) or steady is None or at - steady < self._away:
            return None
        words = self._words.items()
        return {machine: word.until for machine, word in words if at - word.since >= self._away}

    async def check_others(self, read: Read, machine: str | None, now: datetime) -> None:
        """Raise `ServiceUnreachable` unless another machine is there; with None, any other."""
        if await repository.is_machine_alive(read, now, machine, self.machine):
            return
        if machine is None:
            raise policy.no_reconciler()
        message = "The machine that has the intern's files does not answer; try again later."
        raise policy.ServiceUnreachable(message)

    def _is_late(self, at: float) -> bool:
        return self._last is None or at - self._last > self._lease.total_seconds()

"""Which machines are there to run interns, as every server says of its own and sees of others.

    this machine ──every third of a lease──> present until now + a lease
    another one's word has not changed for `away` ──> it is away: its interns do not run

How long a word has not changed is measured here, so that the clocks of machines need not agree. A
server judges others only once it has kept its own word for as long: after a failure of the
database, or where all servers were down, the others need time to come back too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tollhouse.interns import policy, repository

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from tollhouse.storage.transaction import Read, Write


class Word(NamedTuple):
    """What a machine has said last."""

    until: datetime
    """That it is there, by its own clock."""
    since: float
    """When that was new here, in seconds of the monotonic clock."""


class Presence:
    """The word of this machine, and what it makes of others' words."""

    def __init__(self, machine: str, lease: timedelta, away: timedelta) -> None:
        """Begin without a word.

        Args:
            machine: This one.
            lease: How long a word is good for.
            away: For how long another machine may say nothing.
        """
        self.machine = machine
        self._lease = lease
        self._away = away.total_seconds()
        self._words: Mapping[str, Word] = {}
        self._steady_since: float | None = None
        self._last: float | None = None

    async def stay(self, write: Write, now: datetime) -> Mapping[str, datetime]:
        """Say that this machine is there.

        Returns:
            Every machine's word, for `kept` once the transaction is committed.
        """
        await repository.stay(write, self.machine, now + self._lease)
        return await repository.words(write)

    def kept(self, words: Mapping[str, datetime], at: float) -> None:
        """Learn that this machine has kept its word, and what the others said.

        Args:
            words: Until when each machine is there, by its own clock.
            at: The present, in seconds of the monotonic clock.
        """
        if self._is_late(at):
            self._steady_since = at
        self._last = at
        before = self._words
        self._words = {
            machine: before[machine]
            if machine in before and before[machine].until == until
            else Word(until, at)
            for machine, until in words.items()
        }

    async def leave(self, write: Write, now: datetime) -> None:
        """Say that this machine is not there from now on; it may come back at any time."""
        await repository.stay(write, self.machine, now)

    def silent(self, at: float) -> Mapping[str, datetime] | None:
        """Return the words of machines that have been away; None while this server may not judge.

        Args:
            at: The present, in seconds of the monotonic clock.
        """
        if self._is_late(at):
            return None  # it has to be there itself
        if self._steady_since is None or at - self._steady_since < self._away:
            return None
        words = self._words.items()
        return {machine: word.until for machine, word in words if at - word.since >= self._away}

    async def check_others(self, read: Read, machine: str | None, now: datetime) -> None:
        """Make sure that another machine is there.

        Args:
            read: The transaction.
            machine: The one that is needed; None where any would do.
            now: The present.

        Raises:
            ServiceUnreachable: It is not.
        """
        if not await repository.is_anybody_there(read, now, machine, self.machine):
            raise policy.nobody_there() if machine is None else policy.machine_away()

    def _is_late(self, at: float) -> bool:
        return self._last is None or at - self._last > self._lease.total_seconds()

"""Which machines are there to run interns, as every server says of its own and sees of others.

    this machine ──every third of a lease──> present until now + a lease
    another one's word is older than `away` ──> it is away: its interns do not run

A server judges others only once it has kept its own word for as long: after a failure of the
database, or where all servers were down, the others need time to come back too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.interns import policy, repository

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from tollhouse.storage.transaction import Read, Write


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
        self._away = away
        self._steady_since: datetime | None = None
        self._last: datetime | None = None

    async def stay(self, write: Write, now: datetime) -> None:
        """Say that this machine is there."""
        await repository.stay(write, self.machine, now + self._lease)
        write.after_commit(lambda: self._kept(now))

    async def leave(self, write: Write, now: datetime) -> None:
        """Say that this machine is not there from now on; it may come back at any time."""
        await repository.stay(write, self.machine, now)

    def away_since(self, now: datetime) -> datetime | None:
        """Return the last word that is too old; None while this server may not judge."""
        if self._last is None or now - self._last > self._lease:
            return None  # it has to be there itself
        if self._steady_since is None or now - self._steady_since < self._away:
            return None
        return now - self._away

    async def check_others(self, read: Read, machine: str | None, now: datetime) -> None:
        """Make sure that another machine is there.

        Args:
            read: The transaction.
            machine: The one that is needed; None where any would do.
            now: The present.

        Raises:
            ServiceUnreachable: It is not.
        """
        await check_there(read, now, machine, but=self.machine)

    def _kept(self, now: datetime) -> None:
        if self._last is None or now - self._last > self._lease:
            self._steady_since = now
        self._last = now


async def check_there(
    read: Read, now: datetime, machine: str | None, *, but: str | None = None
) -> None:
    """Make sure that a machine is there, or, without one, that any is.

    Raises:
        ServiceUnreachable: It is not.
    """
    if not await repository.is_anybody_there(read, now, machine, but):
        raise policy.nobody_there() if machine is None else policy.machine_away()

"""A shell of an intern on this terminal; or, where standard input is none, a script for one.

    code = await attach(access, renew=ask_the_gateway, session="main")

The connection may drop: the shell runs on, and this comes back to it, without a byte lost or sent
twice, for as long as the daemon keeps what was printed meanwhile.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.interns.connection import Talk
from tollhouse.cli.interns.local import Local
from tollhouse.cli.interns.outcomes import Dropped, Left
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.ids import RandomIds

if TYPE_CHECKING:
    from tollhouse.cli.interns.access import Access, Renew

GIVE_UP_SECONDS: Final = 600.0
"""Without a connection, before this gives up. The shell runs on."""
_FIRST_WAIT_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 10.0
_BY_SIGNAL: Final = 128


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long to wait before the next attempt."""

    first_seconds: float = _FIRST_WAIT_SECONDS
    longest_seconds: float = _LONGEST_WAIT_SECONDS
    give_up_seconds: float = GIVE_UP_SECONDS


async def attach(
    access: Access,
    *,
    name: str = "the intern",
    session: str | None = None,
    renew: Renew | None = None,
    pauses: Pauses | None = None,
) -> int:
    """Attach to a terminal of an intern until its shell ends, or Ctrl-] q is typed.

    Where standard input is a terminal it is made raw meanwhile, and is as before afterwards,
    however this ends. Where it is none, what stands in it is a script: a shell without a terminal
    reads it, and standard output gets what the script prints on either output, and nothing else.
    A script ends with this, a shell on a terminal does not.

    Args:
        access: Where the daemon is.
        name: The intern's, for what is said to people.
        session: Which terminal. None for `main`; for a script, for one of its own.
        renew: Asked for the way once more after a connection has failed. Without it the first way
            is tried again.
        pauses: Between attempts.

    Returns:
        The shell's exit code, 128 and the signal's number where one has ended it. 0 where it was
        left by Ctrl-] q. 128 and the signal's number where SIGTERM or SIGHUP ended this process.

    Raises:
        CommandFailed: It was refused, another client has taken the terminal, the intern has ended,
            or nobody could be reached for `give_up_seconds`.
    """
    local = Local()
    if session is None:
        session = "main" if local.is_terminal else f"script-{RandomIds().uuid()}"
    talk = Talk(local, session)
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(_BY_SIGNAL + number)

    with local.ended_by(end), local.raw(talk.resized):
        local.say(f"attached to {name}: Ctrl-] q leaves, and the shell runs on")
        talking = asyncio.ensure_future(_keep(talk, access, renew, pauses or Pauses()))
        typing = asyncio.ensure_future(talk.typed())
        try:
            await asyncio.wait([talking, typing, ended], return_when=asyncio.FIRST_COMPLETED)
            # The shell's end counts where several come at once.
            outcome = next(one for one in (talking, typing, ended) if one.done()).result()
        finally:
            for task in (talking, typing):
                task.cancel()
            await asyncio.gather(talking, typing, return_exceptions=True)
    if isinstance(outcome, Left):
        local.say("detached: the same command comes back")
        return 0
    return outcome


async def _keep(talk: Talk, access: Access, renew: Renew | None, pauses: Pauses) -> int:
    """Talk until the shell ends, on as many connections as it takes; return its exit code."""
    clock = SystemClock()
    wait, since = pauses.first_seconds, clock.monotonic()
    while True:
        try:
            return (await talk.over(access)).code
        except Dropped as dropped:
            if dropped.was_attached:
                wait, since = pauses.first_seconds, clock.monotonic()
                talk.local.say("the connection dropped; trying again")
            elif not talk.has_begun or clock.monotonic() - since > pauses.give_up_seconds:
                raise CommandFailed(str(dropped), passes=True) from None
        await asyncio.sleep(wait)
        wait = min(wait * 2, pauses.longest_seconds)
        if renew is not None:
            access = await _renewed(renew, access)


async def _renewed(renew: Renew, access: Access) -> Access:
    """Ask for the way; where that fails in a way that passes, keep the one there was."""
    try:
        return await renew()
    except CommandFailed as failed:
        if failed.passes:
            return access
        raise

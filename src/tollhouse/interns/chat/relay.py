"""From a daemon's answer to the caller: in time, alive while it is silent, ended in any case.

    silent for 30 s       `: keepalive`
    300 s                 error chunk `timeout`
    broken or garbage     error chunk `stream_severed`
    the caller leaves     nothing more; whoever holds the connection to the daemon closes it

Source: the public gateway's chat with interns: deadlines and disconnects.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tollhouse.interns.chat.daemon_client import Severed
from tollhouse.interns.chat.errors import SEVERED, TIMED_OUT
from tollhouse.interns.chat.grammar import KEEP_ALIVE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tollhouse.interns.chat.events import Event
    from tollhouse.interns.chat.grammar import Transcript

    Write = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Paces:
    """How long things may take, in seconds."""

    head: float = 60.0
    """Until a daemon begins to answer."""
    stream: float = 300.0
    """One stream, from its first chunk on."""
    silence: float = 30.0
    """Until the caller is told that the stream lives."""
    farewell: float = 5.0
    """For the end of a stream, where the caller does not read."""


class Events(Protocol):
    """A daemon's events, as they come."""

    async def events(self) -> Sequence[Event]:
        """Wait for the next ones; maybe none.

        Raises:
            Severed: There will be no more.
        """
        ...


async def relay(events: Events, transcript: Transcript, write: Write, paces: Paces) -> None:
    """Write a stream to its end.

    Raises:
        TimeoutError: The caller does not read; the stream has no end.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + paces.stream
    try:
        async with asyncio.timeout_at(ends + paces.farewell):
            await write(transcript.begin())
            written = loop.time()
            while transcript.outcome is None:
                limit = min(ends, written + paces.silence)
                told = await _next(events, transcript, limit)
                if told is None:
                    told = KEEP_ALIVE if limit < ends else transcript.fail(TIMED_OUT)
                if told:
                    await write(told)
                    written = loop.time()
    except asyncio.CancelledError:
        # The server stops.
        if told := transcript.fail(SEVERED):
            with suppress(TimeoutError):
                async with asyncio.timeout(paces.farewell):
                    await write(told)
        raise


async def _next(events: Events, transcript: Transcript, limit: float) -> bytes | None:
    """Return the chunks of the next events, maybe none; None where the limit passes before."""
    try:
        async with asyncio.timeout_at(limit):
            found = await events.events()
    except TimeoutError:
        return None
    except Severed:
        return transcript.fail(SEVERED)
    return b"".join([transcript.tell(event) for event in found])

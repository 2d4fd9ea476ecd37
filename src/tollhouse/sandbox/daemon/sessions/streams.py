"""Events as server-sent events.

Source: WHATWG HTML, "Server-sent events".
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from tollhouse.sandbox.daemon.sessions.file import LogFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from starlette.types import Receive, Scope, Send

    from tollhouse.sandbox.daemon.sessions.feed import Feed, Follower
    from tollhouse.sandbox.daemon.sessions.values import Event

    Read: TypeAlias = Callable[[str, int, int], list[Event]]
    """Returns so many events of a session that follow a number; raises `LogFailed`."""

COMMENT_SECONDS: Final = 10.0
"""Between two signs of life."""
_COMMENT: Final = b": still here\n\n"
_PAGE: Final = 128
_LAST: Final = frozenset(("question", "run.ended"))
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events."""

    session: str
    after: int
    """Beginning with the one after this."""
    follow: bool = True
    """Whether to wait for those that come."""
    of_run: bool = False
    """Whether the last one is a run's end, or its question."""


class EventStream(Response):
    """A session's events, as they are written down."""

    def __init__(
        self,
        read: Read,
        feed: Feed,
        wanted: Wanted,
        when_left: Callable[[], None] | None = None,
    ) -> None:
        """Take what is sent.

        Args:
            read: Returns them.
            feed: Says when there are more.
            wanted: Which ones.
            when_left: Called where the client leaves before the last one.
        """
        super().__init__()
        self._read = read
        self._feed = feed
        self._wanted = wanted
        self._after = wanted.after
        self._when_left = when_left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Send it."""
        left = asyncio.ensure_future(_left(receive))
        sending = asyncio.ensure_future(self._send(send))
        try:
            await asyncio.wait({left, sending}, return_when=asyncio.FIRST_COMPLETED)
            complete = sending.done() and not sending.cancelled() and sending.exception() is None
            if not complete and self._when_left is not None:
                self._when_left()
            if sending.done():
                # The client left, or the end cannot be told: what is sent has no end, too.
                with suppress(OSError, LogFailed):
                    sending.result()
        except asyncio.CancelledError:  # the daemon ends
            if self._when_left is not None:
                self._when_left()
            raise
        finally:
            for task in (left, sending):
                task.cancel()
            await asyncio.gather(left, sending, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        with self._feed.following(self._wanted.session) as follower:
            while not await self._send_written(send):
                if follower.news.is_set():  # perhaps the end, and a cut that came after it
                    follower.news.clear()
                    continue
                if follower.cut and self._wanted.of_run:
                    raise ConnectionAbortedError  # no end was told, so none is sent
                if follower.cut or not self._wanted.follow:
                    break
                await _wait(follower, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_written(self, send: Send) -> bool:
        """Send what is in the log; return whether that was the last of it."""
        is_more = True
        while is_more:
            events = self._read(self._wanted.session, self._after, _PAGE)
            is_more = len(events) == _PAGE
            for position, event in enumerate(events, 1):
                if self._wanted.of_run and event.kind in _LAST:
                    await _send_events(send, events[:position])
                    return True
            if events:
                await _send_events(send, events)
                self._after = events[-1].number
        return False


async def _send_events(send: Send, events: list[Event]) -> None:
    body = "".join(
        f"id: {event.number}\nevent: {event.kind}\ndata: {event.data}\n\n" for event in events
    )
    message = {
        "type": "http.response.body",
        "body": body.encode(errors="replace"),
        "more_body": True,
    }
    await send(message)


async def _wait(follower: Follower, send: Send) -> None:
    try:
        async with asyncio.timeout(COMMENT_SECONDS):
            await follower.news.wait()
    except TimeoutError:
        await send({"type": "http.response.body", "body": _COMMENT, "more_body": True})
    follower.news.clear()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

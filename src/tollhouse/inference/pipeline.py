"""The pipeline: from an authenticated, parsed request to a reply that is booked.

    parse -> route -> admit -> call -> relay -> settle
             (here)            (`generation`)

It knows every generation in flight, so that a stop can wait for them, and end those that last.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from tollhouse.inference.generation import Generation, Services
from tollhouse.inference.reply_buffer import ReplyBuffer
from tollhouse.kernel.clock import unix_seconds
from tollhouse.kernel.errors import Unavailable

if TYPE_CHECKING:
    from tollhouse.inference.call import Call
    from tollhouse.inference.catalog import Catalog
    from tollhouse.kernel.ids import IdSource

_log = structlog.get_logger(__name__)


class Pipeline:
    """Starts generations and keeps count of them."""

    def __init__(self, catalog: Catalog, services: Services, ids: IdSource) -> None:
        """Take the catalogue and what generations use."""
        self._catalog = catalog
        self._services = services
        self._ids = ids
        self._running: dict[asyncio.Task[None], Generation] = {}
        self._stopping = False

    @property
    def running(self) -> int:
        """How many generations are in flight."""
        return len(self._running)

    def begin(self, call: Call, generation_id: str | None = None) -> ReplyBuffer:
        """Start a generation; its reply is read from the exchange.

        Args:
            call: What is asked.
            generation_id: What the generation is called; a new name unless given.

        Raises:
            NotFound: No such model.
            Unavailable: The gateway is stopping.
        """
        if self._stopping:
            message = "The gateway is stopping; send the request again in a moment."
            raise Unavailable(message)
        models = self._catalog.wanted(call.request.model, call.preferences.models)
        exchange = ReplyBuffer(
            generation_id or self._ids.generation(unix_seconds(call.received_at))
        )
        generation = Generation(call, models, exchange, self._services)
        task = generation.start()
        self._running[task] = generation
        task.add_done_callback(lambda done: self._ended(done, exchange))
        return exchange

    def refuse_new(self) -> None:
        """Start no further generation."""
        self._stopping = True

    async def drain(self, seconds: float) -> None:
        """Wait for the generations in flight, then end those that last.

        Args:
            seconds: How long they may go on; then each gets its legal end, and is booked.
        """
        self.refuse_new()
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        self.interrupt_all()
        if self._running:
            await asyncio.wait(self._running)

    def interrupt_all(self) -> None:
        """End every generation in flight with an error that says why."""
        for generation in list(self._running.values()):
            generation.interrupt(Unavailable("The gateway is stopping."))

    def _ended(self, task: asyncio.Task[None], exchange: ReplyBuffer) -> None:
        generation = self._running.pop(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            _log.error("generation_ended_badly", generation=exchange.generation_id, exc_info=bug)
        if not exchange.ended:
            # A task that was cancelled before its first step never got to say so.
            exchange.fail(Unavailable("The request was cancelled before it was sent."))
        generation.report(generation.interruption)

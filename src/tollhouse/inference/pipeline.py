"""The pipeline: it takes parsed requests, and keeps count of the generations that they become."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import structlog

from tollhouse.inference.generation import Generation
from tollhouse.inference.reply_buffer import ReplyBuffer
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.eager_task import EagerTask
from tollhouse.kernel.errors import Unavailable

if TYPE_CHECKING:
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.dependencies import PipelineDependencies
    from tollhouse.inference.reply_buffer import Reply
    from tollhouse.inference.request import InferenceRequest
    from tollhouse.kernel.ids import IdSource

_log = structlog.get_logger(__name__)


class Pipeline:
    """Starts generations and keeps count of them, so that a stop can wait for them or end them."""

    def __init__(
        self,
        catalog: Catalog,
        services: PipelineDependencies,
        ids: IdSource,
        *,
        as_tasks: bool = False,
    ) -> None:
        """Start nothing; `as_tasks`: every generation is a task from its beginning."""
        self._catalog = catalog
        self._services = services
        self._ids = ids
        self._as_tasks = as_tasks
        self._running: set[Generation] = set()
        self._stopping = False
        self._all_ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        """That of all its generations; asked for once, since it costs a system call."""

    @property
    def running(self) -> int:
        """How many generations are in flight."""
        return len(self._running)

    def begin(self, request: InferenceRequest, generation_id: str | None = None) -> ReplyBuffer:
        """Start a generation of a parsed request; its reply is read from the buffer.

        Raises what `prepare` does.
        """
        self.prepare(request, generation_id)
        reply = ReplyBuffer(request.generation_id)
        self.run(request, reply)
        return reply

    def prepare(self, request: InferenceRequest, generation_id: str | None = None) -> None:
        """Give a parsed request its models and its generation's id.

        Raises:
            NotFound: No such model.
            Unavailable: The gateway is stopping.
        """
        if self._stopping:
            raise Unavailable("The gateway is stopping; send the request again in a moment.")
        request.models = self._catalog.wanted(request.parsed.model, request.preferences.models)
        request.generation_id = generation_id or self._ids.generation(request.created_ms // 1000)

    def run(self, request: InferenceRequest, reply: Reply) -> None:
        """Run the generation of a prepared request; the reply may have ended when this returns."""
        generation = Generation(request, reply, self._services)
        self._running.add(generation)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        ended = partial(self._ended, generation)
        generation.task = task = EagerTask(generation.run(), self._loop, ended)
        if self._as_tasks:
            task.start_task()
        else:
            task.start()

    def refuse_new(self) -> None:
        """Start no further generation."""
        self._stopping = True

    async def drain(self, seconds: float) -> None:
        """Wait for the generations in flight; end those that last longer, and book them."""
        self.refuse_new()
        if self._running:
            await wait_for_event(self._all_ended, seconds)
        self.interrupt_all()
        if self._running:
            await self._all_ended.wait()

    def interrupt_all(self) -> None:
        """End every generation in flight with an error that says why."""
        for generation in tuple(self._running):
            generation.interrupt(Unavailable("The gateway is stopping."))

    def _ended(self, generation: Generation, error: BaseException | None) -> None:
        self._running.discard(generation)
        if error is not None and not isinstance(error, asyncio.CancelledError):
            _log.error("generation_ended_badly", generation=generation.id, exc_info=error)
        generation.ended()
        if self._stopping and not self._running:
            self._all_ended.set()

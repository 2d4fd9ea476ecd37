"""The workers from the gateway's side: started when they are needed, one step at a time for each.

Accounts take turns: one that asks for a hundred steps does not hold up another's one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from tollhouse.inference.workers.frames import PIECE, pack, pieces, receive_frame, unpack
from tollhouse.kernel.errors import Bug, Unavailable
from tollhouse.kernel.fair_queue import FairQueue
from tollhouse.kernel.subprocesses import own_module, start

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable

R = TypeVar("R")
COMMAND: Final = own_module("tollhouse.inference.workers.child")
STEP_SECONDS: Final = 120.0
"""How long one step may take: many times what the largest body needs."""
_TRIES: Final = 2
_log = structlog.get_logger(__name__)


class WorkerGone(Unavailable):
    """A worker could not be started, took too long, or ended by itself."""

    def __init__(self) -> None:
        """Tell the caller to come back; why is in the log."""
        super().__init__("The request cannot be read at the moment; try again in a moment.")


class _Step:
    """One call of a function that somebody waits for."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class WorkerPool:
    """Some workers, and what waits for them."""

    def __init__(self, size: int, step_seconds: float = STEP_SECONDS) -> None:
        """Say how many there may be, and how long one step may take; none is started yet."""
        self._size = size
        self._seconds = step_seconds
        self._turns = FairQueue[_Step]()
        self._running: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._busy = 0
        """Workers that take what waits: a task that has ended is one of `_working` for longer."""
        self._working: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run(self, owner: str, function: Callable[..., R], *arguments: object) -> R:
        """Call a function in a worker and return its result, once it is its owner's turn.

        Args:
            owner: Who takes turns with the others.
            function: One of a module, without a state of its own.
            arguments: What it is called with. Long bytes among them are not copied back.

        Raises:
            WorkerGone: The worker did not answer.
            Exception: What the function raises, if it is one of `child`'s.
        """
        if self._closed:
            raise WorkerGone
        step = _Step(function, arguments)
        self._turns.add(owner, step)
        if self._busy < self._size:
            self._busy += 1
            task = asyncio.create_task(self._work())
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        try:
            result: R = await step.done
        finally:
            step.arguments = ()  # an error that is kept refers to the step
        return result

    async def close(self) -> None:
        """End every worker, whatever it is at."""
        self._closed = True
        working = tuple(self._working)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        while (step := self._turns.next()) is not None:
            _fail(step, WorkerGone())
        for worker in tuple(self._running):
            await self._stop(worker)

    async def _work(self) -> None:
        """Do what waits with one worker, then let it rest."""
        worker: _Worker | None = self._idle.pop() if self._idle else None
        step: _Step | None = None
        try:
            while (step := self._turns.next()) is not None:
                if step.done.done():
                    continue  # nobody waits for it any more
                worker = await self._do(step, worker)
                step = None
        except asyncio.CancelledError:
            if step is not None:
                _fail(step, WorkerGone())
            raise
        finally:
            self._busy -= 1
            if worker is not None:
                self._idle.append(worker)

    async def _do(self, step: _Step, worker: _Worker | None) -> _Worker | None:
        """Do a step, once more where its worker was killed; return the worker that can go on."""
        for _ in range(_TRIES):
            try:
                worker = worker or await self._start()
                async with asyncio.timeout(self._seconds):
                    succeeded, outcome, last = await worker.do(step)
            except (EOFError, OSError) as error:  # TimeoutError is one of these
                _log.error("worker_gone", reason=type(error).__name__)
                worker = None if worker is None else await self._stop(worker)
                if isinstance(error, TimeoutError):
                    break
            except Exception as error:  # noqa: BLE001 - whoever waits has to be told
                # No message and no trace: they could hold a part of the body.
                _log.error("worker_step_failed", reason=type(error).__name__)
                _fail(step, Bug("a step could not be passed to a worker or back"))
                return None if worker is None else await self._stop(worker)
            else:
                _tell(step, succeeded, outcome)
                return await self._stop(worker) if last else worker
        _fail(step, WorkerGone())
        return None

    async def _start(self) -> _Worker:
        worker = await _Worker.begin()
        self._running.add(worker)
        return worker

    async def _stop(self, worker: _Worker) -> None:
        await worker.stop()  # cancelled, it is done again by `close`
        self._running.discard(worker)


class _Worker:
    """A running worker."""

    def __init__(self, process: Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise Bug("a worker has no pipes")
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout

    @classmethod
    async def begin(cls) -> _Worker:
        process = await start(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # a trace could hold a part of the body
            limit=PIECE,
        )
        return cls(process)

    async def do(self, step: _Step) -> tuple[bool, Any, bool]:
        head, blobs = pack((step.function, step.arguments))
        for piece in pieces(head, blobs):
            self._stdin.write(piece)
            await self._stdin.drain()
        answer: tuple[bool, Any, bool] = unpack(*await receive_frame(self._stdout), blobs)
        return answer

    async def stop(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._stdin.close()
        with suppress(OSError):  # the pipe may have broken before
            await self._stdout.read()
        await self._process.wait()


def _tell(step: _Step, succeeded: bool, outcome: Any) -> None:  # noqa: ANN401, FBT001 - as it came
    if not succeeded:
        _fail(step, outcome)
    elif not step.done.done():
        step.done.set_result(outcome)


def _fail(step: _Step, error: Exception) -> None:
    if not step.done.done():
        step.done.set_exception(error)

"""The workers from the gateway's side: started when they are needed, one step at a time for each.

Accounts take turns: one that asks for a hundred steps does not hold up another's one. And however
long its steps take, one worker is left for the others. What the gateway and its workers say to each
other goes over a worker's standard streams:

    to the worker     (function, arguments)
    from the worker   (True, result, last) or (False, error, last); last: the worker ends now

    <number of blobs> <size of head> <size of each blob> <head> <blob> ...

The head is a pickle, in which long bytes are numbers of blobs: they are written as they are, and
what came with the question does not go back with its answer. Numbers are 8 bytes, big-endian.
Both sides are this program, and only they have the pipe: a pickle is no more than a call.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from tollhouse.kernel.concurrency import FairQueue
from tollhouse.kernel.errors import Bug, PayloadTooLarge, Unavailable
from tollhouse.kernel.subprocesses import own_module, start

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

R = TypeVar("R")
COMMAND: Final = own_module("tollhouse.inference.workers.child")
STEP_SECONDS: Final = 30.0
"""How long one step may take. A body of 32 MB in a million parts needs up to 11 seconds."""
_TRIES: Final = 2
_log = structlog.get_logger(__name__)


class WorkerGone(Unavailable):
    """A worker could not be started, or ended by itself."""

    def __init__(self) -> None:
        super().__init__("The request cannot be read at the moment; try again in a moment.")


class StepTooLong(PayloadTooLarge):
    """A step took too long, and would again."""

    def __init__(self) -> None:
        super().__init__("The body takes too long to read: it has too many parts.")


@dataclass(slots=True, eq=False, repr=False)
class _Step:
    """One call of a function that somebody waits for."""

    owner: str
    function: Callable[..., Any]
    arguments: tuple[object, ...]
    done: asyncio.Future[Any]


class WorkerPool:
    """Some workers, and what waits for them."""

    def __init__(self, size: int, step_seconds: float = STEP_SECONDS) -> None:
        self._size = size
        self._seconds = step_seconds
        self._turns = FairQueue[_Step]()
        self._held = Counter[str]()
        """Workers that each owner holds."""
        self._running: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._busy = 0
        """Workers that take what waits: a task that has ended is one of `_working` for longer."""
        self._working: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run(self, owner: str, function: Callable[..., R], *arguments: object) -> R:
        """Call a function in a worker and return its result, once it is its owner's turn.

        The function is one of a module, without a state of its own; what it raises is raised here,
        as far as `child` lets it. Long bytes among the arguments are not copied back.

        Raises:
            WorkerGone: The worker did not answer.
            StepTooLong: It did not answer in time.
        """
        if self._closed:
            raise WorkerGone
        step = _Step(owner, function, arguments, asyncio.get_running_loop().create_future())
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
            while (step := self._turns.next(self._may_have_more)) is not None:
                if step.done.done():
                    continue  # nobody waits for it any more
                self._held[step.owner] += 1
                try:
                    worker = await self._do(step, worker)
                finally:
                    self._held.subtract((step.owner,))
                    self._held += Counter()  # forget who holds none
                step = None
        except asyncio.CancelledError:
            if step is not None:
                _fail(step, WorkerGone())
            raise
        finally:
            self._busy -= 1
            if worker is not None:
                self._idle.append(worker)

    def _may_have_more(self, owner: str) -> bool:
        # Whoever may not is served again by the workers that it holds.
        return self._held[owner] < max(1, self._size - 1)

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
                    return _fail(step, StepTooLong())
            except Exception as error:  # noqa: BLE001 - whoever waits has to be told
                # No message and no trace: they could hold a part of the body.
                _log.error("worker_step_failed", reason=type(error).__name__)
                _fail(step, Bug("a step could not be passed to a worker or back"))
                return None if worker is None else await self._stop(worker)
            else:
                if not succeeded:
                    _fail(step, outcome)
                elif not step.done.done():
                    step.done.set_result(outcome)
                return await self._stop(worker) if last else worker
        _fail(step, WorkerGone())
        return None

    async def _start(self) -> _Worker:
        process = await start(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # a trace could hold a part of the body
            limit=PIECE,
        )
        worker = _Worker(process)
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


def _fail(step: _Step, error: Exception) -> None:
    if not step.done.done():
        step.done.set_exception(error)


# Messages

PIECE: Final = 256 * 1024
"""Most bytes that are written or read in one step."""
_LONG: Final = 32 * 1024
_NUMBER: Final = struct.Struct(">Q")
_START: Final = struct.Struct(">QQ")

Blobs = tuple[bytes, ...]


class _Pickler(pickle.Pickler):
    def __init__(self, file: BytesIO, known: Blobs) -> None:
        super().__init__(file, protocol=5)
        self._numbers = {id(blob): number for number, blob in enumerate(known)}
        self._known = len(known)
        self.blobs: list[bytes] = []

    def persistent_id(self, obj: object) -> int | None:
        if type(obj) is not bytes or len(obj) < _LONG:
            return None
        number = self._numbers.get(id(obj))
        if number is None:
            number = self._numbers[id(obj)] = self._known + len(self.blobs)
            self.blobs.append(obj)  # kept, so that its id stays its own
        return number


class _Unpickler(pickle.Unpickler):
    def __init__(self, head: bytes, blobs: Blobs) -> None:
        super().__init__(BytesIO(head))
        self._blobs = blobs

    def persistent_load(self, pid: int) -> bytes:
        return self._blobs[pid]


def pack(message: object, known: Blobs = ()) -> tuple[bytes, Blobs]:
    """Return the head and the blobs of a message; `known` are the blobs of the one it answers."""
    file = BytesIO()
    pickler = _Pickler(file, known)
    pickler.dump(message)
    return file.getvalue(), tuple(pickler.blobs)


def unpack(head: bytes, blobs: Blobs, known: Blobs = ()) -> Any:  # noqa: ANN401 - any message
    """Return a message."""
    return _Unpickler(head, known + blobs).load()


def pieces(head: bytes, blobs: Sequence[bytes]) -> Iterator[bytes | memoryview]:
    """Yield what is written of a message, at most `PIECE` bytes at a time."""
    sizes = b"".join(_NUMBER.pack(len(blob)) for blob in blobs)
    yield _START.pack(len(blobs), len(head)) + sizes
    for part in (head, *blobs):
        view = memoryview(part)
        for at in range(0, len(view), PIECE):
            yield view[at : at + PIECE]


def read_frame(stream: BinaryIO) -> tuple[bytes, Blobs]:
    """Return the head and the blobs of the next message; raises `EOFError` if there is none."""
    count, size = _START.unpack(_exactly(stream, _START.size))
    sizes = [_NUMBER.unpack(_exactly(stream, _NUMBER.size))[0] for _ in range(count)]
    return _exactly(stream, size), tuple(_exactly(stream, each) for each in sizes)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


async def receive_frame(stream: asyncio.StreamReader) -> tuple[bytes, Blobs]:
    """Return the same of a stream of the event loop."""
    count, size = _START.unpack(await stream.readexactly(_START.size))
    sizes = [_NUMBER.unpack(await stream.readexactly(_NUMBER.size))[0] for _ in range(count)]
    head = await _received(stream, size)
    return head, tuple([await _received(stream, each) for each in sizes])


async def _received(stream: asyncio.StreamReader, size: int) -> bytes:
    gathered: list[bytes] = []
    while size:
        piece = await stream.readexactly(min(size, PIECE))
        gathered.append(piece)
        size -= len(piece)
    return gathered[0] if len(gathered) == 1 else b"".join(gathered)

"""Coroutines that are driven by callbacks, and become asyncio's tasks only when they need one.

    EagerTask(coroutine, loop, on_end).start()   runs in the caller's stack until it waits
        await waiter                             ... and goes on in the stack of `waiter.wake()`
        await in_task()                          ... from here on it is an asyncio task

A task costs a turn of the event loop for each time that it waits, and its own objects. A request
that is relayed waits for nothing but its provider, which calls back from where it reads its
socket. What has to wait for anything else (a lock, a queue, a timeout of asyncio) becomes a task at
that point, so that both ways share every line of code.

Source: the idea is that of eager task execution,
https://docs.python.org/3.12/library/asyncio-task.html#eager-task-factory.
"""

from __future__ import annotations

import asyncio
import types
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

_BECOME_TASK: Final = object()


class Waiter:
    """What one coroutine waits for until somebody wakes it; may be awaited again after that."""

    __slots__ = ("_is_woken", "_loop", "on_wake")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_woken = False
        self.on_wake: Callable[[], None] | None = None
        """Called once it is woken; set by who waits."""

    def wake(self) -> None:
        """Let who waits go on, at once where it is no task; or let the next one not wait."""
        on_wake, self.on_wake = self.on_wake, None
        if on_wake is None:
            self._is_woken = True
        else:
            on_wake()

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until it is woken, if it was not since the last time."""
        if not self._is_woken:
            if asyncio.current_task(self._loop) is None:
                yield self
            else:
                yield from self._future().__await__()
        self._is_woken = False

    def _future(self) -> asyncio.Future[None]:
        woken: asyncio.Future[None] = self._loop.create_future()
        self.on_wake = lambda: None if woken.done() else woken.set_result(None)
        return woken


@types.coroutine
def in_task() -> Generator[Any, None, None]:
    """Make the running coroutine a task, unless it is one: what follows may need one."""
    if asyncio.current_task() is None:
        yield _BECOME_TASK


class EagerTask:
    """A coroutine that runs to its end whoever drives it."""

    __slots__ = (
        *("_coroutine", "_is_cancelled", "_is_over", "_loop", "_on_end"),
        *("_task", "_task_began", "_waiter"),
    )

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, None],
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        """Take it; `on_end` is called with what it raised, or with None."""
        self._coroutine = coroutine
        self._loop = loop
        self._on_end: Callable[[BaseException | None], None] | None = on_end
        self._task: asyncio.Task[None] | None = None
        self._task_began = False
        self._waiter: Waiter | None = None
        self._is_cancelled = False
        self._is_over = False

    def start(self) -> None:
        """Run until it waits; in the next turn of the loop where a task calls, which it is not."""
        if asyncio.current_task(self._loop) is None:
            self._step()
        else:
            self._loop.call_soon(self._step)

    def start_task(self) -> None:
        """Run as a task from the beginning."""
        self._task_began = True
        self._become_task(self._coroutine)

    def cancel(self) -> None:
        """Raise `CancelledError` where it waits, soon."""
        if self._task is not None and self._task_began:
            self._task.cancel()
        elif not self._is_over:
            # A task that is cancelled before its first step would never go on with the coroutine.
            self._is_cancelled = True
            if self._task is None:
                self._loop.call_soon(self._step)

    def _wake(self) -> None:
        self._waiter = None
        if asyncio.current_task(self._loop) is None:
            self._step()
        else:
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Run until it waits the next time."""
        if self._is_over or self._task is not None:
            return
        if self._waiter is not None:
            if not self._is_cancelled:
                return
            self._waiter.on_wake = None
            self._waiter = None
        try:
            if self._is_cancelled:
                self._is_cancelled = False
                waited = self._coroutine.throw(asyncio.CancelledError())
            else:
                waited = self._coroutine.send(None)
        except BaseException as error:  # noqa: BLE001 - whoever started it is told
            self._end(None if isinstance(error, StopIteration) else error)
            return
        if isinstance(waited, Waiter):
            self._waiter = waited
            waited.on_wake = self._wake
        else:
            self._become_task(cast("Coroutine[Any, Any, None]", self._rest(waited)))

    def _become_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._task = self._loop.create_task(coroutine)
        self._task.add_done_callback(self._task_ended)

    @types.coroutine
    def _rest(self, waited: Any) -> Generator[Any, Any, None]:  # noqa: ANN401
        """Drive the rest of the coroutine in a task, beginning with what it waits for."""
        self._task_began = True
        cancelled, self._is_cancelled = self._is_cancelled, False
        if cancelled and waited is not _BECOME_TASK and self._task is not None:
            self._task.cancel()
            cancelled = False
        while True:
            try:
                if cancelled:  # at once, and not where it waits for the next thing
                    cancelled = False
                    raise asyncio.CancelledError  # noqa: TRY301 - as the task raises it otherwise
                value = None if waited is _BECOME_TASK else (yield waited)
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's own to handle
                try:
                    waited = self._coroutine.throw(error)
                except StopIteration:
                    return
            else:
                try:
                    waited = self._coroutine.send(value)
                except StopIteration:
                    return

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._end(asyncio.CancelledError() if task.cancelled() else task.exception())

    def _end(self, error: BaseException | None) -> None:
        self._is_over = True
        self._task = None
        # Who listens refers to us, too: without it both go at once.
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(error)

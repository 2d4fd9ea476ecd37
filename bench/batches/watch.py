"""The memory of a process's children, which the kernel forgets when they end."""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from bench import cpu

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_PAUSE: Final = 0.02


class ChildWatch:
    """Polls the memory of a process's descendants during its context."""

    def __init__(self, pid: int) -> None:
        """Prepare to watch a process.

        Args:
            pid: The process whose descendants are meant.
        """
        self._pid = pid
        self._peaks: dict[int, int] = {}
        self._ended = Event()
        self._thread = Thread(target=self._look, name="child-watch")

    @property
    def peak(self) -> int:
        """The most resident memory of any of them, in bytes; 0 where there was none.

        Only what was seen last of each counts: before a child runs its own program it has its
        parent's memory.
        """
        return max(self._peaks.values(), default=0)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_PAUSE):
            self._peaks |= cpu.peaks_of_children(self._pid)

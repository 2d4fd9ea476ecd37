"""The processes of a server with interns: their memory, and their CPU time while nobody asks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Final

from bench import cpu
from bench.egress.session import find_proxy
from bench.interns.figures import Idling, Memory
from bench.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

_BUBBLEWRAP: Final = "bwrap"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The processes of one sandbox."""

    outer: int
    """The server's child, bubblewrap."""
    pids: tuple[int, ...]
    """All of them."""


class Watch:
    """Looks at a server's processes."""

    def __init__(self, server: int, proc: Path = cpu.PROC) -> None:
        """Take which server.

        Args:
            server: Its process id.
            proc: Where the kernel tells of processes.
        """
        self._server = server
        self._proc = proc

    def sandboxes(self) -> list[Sandbox]:
        """Return the sandboxes that run."""
        return [
            Sandbox(child, tuple(cpu.tree(child, self._proc)))
            for child in cpu.children(self._server, self._proc)
            if self._is_bubblewrap(child)
        ]

    def memory(self, running: int) -> Memory:
        """Return what everything holds.

        Args:
            running: How many sandboxes there have to be.

        Raises:
            BenchError: There are others, or the kernel does not tell.
        """
        found = self._counted(running)
        try:
            inner = [self._pss(each, bubblewrap=False) for each in found]
            outer = [self._pss(each, bubblewrap=True) for each in found]
        except PermissionError:
            raise BenchError("only root may see how much memory sandboxes hold") from None
        proxy = find_proxy(self._server, self._proc)
        return Memory(
            running=running,
            daemon=_mean(inner),
            bubblewrap=_mean(outer),
            most=max((a + b for a, b in zip(inner, outer, strict=True)), default=0),
            server=cpu.rss_alone(self._server, self._proc),
            proxy=0 if proxy is None else cpu.rss_alone(proxy, self._proc),
        )

    def idling(self, running: int, seconds: float) -> Idling:
        """Return the CPU time of everything while nobody asks for anything.

        Args:
            running: How many sandboxes there have to be.
            seconds: How long.

        Raises:
            BenchError: There are others.
        """
        sandboxes = [each.outer for each in self._counted(running)]
        proxy = find_proxy(self._server, self._proc)
        roots = [self._server, *sandboxes, *([] if proxy is None else [proxy])]
        began = perf_counter()
        before = [cpu.read(pid, self._proc) for pid in roots]
        sleep(seconds)
        after = [cpu.read(pid, self._proc) for pid in roots]
        passed = perf_counter() - began
        every, *parts = (cpu.cpu_time(*pair).seconds for pair in zip(before, after, strict=True))
        of_sandboxes, of_proxy = sum(parts[:running]), sum(parts[running:])
        # The server's tree holds the others, too.
        own = max(0.0, every - of_sandboxes - of_proxy)
        return Idling(running, passed, of_sandboxes, own, of_proxy)

    def _counted(self, running: int) -> list[Sandbox]:
        found = self.sandboxes()
        if len(found) != running:
            raise BenchError(f"{len(found)} sandboxes run in place of {running}")
        return found

    def _pss(self, sandbox: Sandbox, *, bubblewrap: bool) -> int:
        pids = [pid for pid in sandbox.pids if self._is_bubblewrap(pid) == bubblewrap]
        return sum(cpu.pss_alone(pid, self._proc) for pid in pids)

    def _is_bubblewrap(self, pid: int) -> bool:
        with suppress(FileNotFoundError, ProcessLookupError):
            words = (self._proc / str(pid) / "cmdline").read_bytes().split(b"\0")
            return Path(words[0].decode(errors="replace")).name == _BUBBLEWRAP
        return False


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0

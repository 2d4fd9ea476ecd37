"""From the setting's name to a runtime: one line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime
from tollhouse.interns.runtimes.process import ProcessRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tollhouse.interns.runtimes.base import Runtime
    from tollhouse.kernel.clock import Clock

DEFAULT: Final = BubblewrapRuntime.name


def build_runtime(name: str, data: Path, clock: Clock) -> Runtime:
    """Return a runtime.

    Args:
        name: As the settings spell it.
        data: The server's data folder.
        clock: For how often disks are looked at.

    Raises:
        KeyError: There is none of this name; `names()` says which there are.
    """
    return _BY_NAME[name](data, clock)


def names() -> tuple[str, ...]:
    """Return the names that there are, the default first."""
    return tuple(_BY_NAME)


_BY_NAME: Final[Mapping[str, Callable[[Path, Clock], Runtime]]] = {
    BubblewrapRuntime.name: BubblewrapRuntime,
    ProcessRuntime.name: lambda _, clock: ProcessRuntime(clock),
}

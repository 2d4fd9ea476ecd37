"""Waits until an intern has settled, and shows each step on the way; on standard error."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from tollhouse.cli.batches.meters import is_terminal
from tollhouse.cli.interns.views import SETTLED, status_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from tollhouse.cli.output import Item

_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0
_GROWTH: Final = 1.2


class Meter(Protocol):
    """Shows how far an intern came."""

    def show(self, intern: Item) -> None:
        """Show the intern as it stands."""
        ...


async def until_settled(
    look: Callable[[], Awaitable[dict[str, Any] | None]],
    meter: Meter,
    leaving: str | None = None,
) -> dict[str, Any] | None:
    """Return an intern once nothing is under way with it; None where it is gone.

    Args:
        look: Returns the intern as it stands.
        meter: Shows how far it came.
        leaving: A status that does not count: it is about to leave it.

    Raises:
        CommandFailed: The server refused to show it, or cannot be reached.
    """
    pause = _PAUSE
    while (intern := await look()) is not None:
        meter.show(intern)
        if intern["status"] in SETTLED and intern["status"] != leaving:
            return intern
        await asyncio.sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)
    return None


@contextmanager
def watching() -> Generator[Meter]:
    """Show how an intern goes on until the end of the block."""
    if not is_terminal():
        yield _Lines()
        return
    from rich.console import Console
    from rich.status import Status

    with Status("", console=Console(stderr=True)) as status:
        yield _Spinner(status)


class _Lines:
    """One line for each step."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, intern: Item) -> None:
        text = status_of(intern)
        if text != self._last:
            print(text, file=sys.stderr, flush=True)
        self._last = text


class _Spinner:
    """The step under way, in place."""

    def __init__(self, status: Any) -> None:  # noqa: ANN401 - rich is imported where it draws
        self._status = status

    def show(self, intern: Item) -> None:
        self._status.update(status_of(intern))

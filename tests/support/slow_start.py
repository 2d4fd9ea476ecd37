"""Child processes whose start takes as long as a test wants."""

import asyncio
import os
from asyncio.subprocess import Process
from typing import Any

import pytest


class SlowStart:
    """Starts children, and returns from a start only once the test allows it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_go_on = asyncio.Event(), asyncio.Event()
        self._child: Process | None = None
        self._start = asyncio.create_subprocess_exec
        patch.setattr(asyncio, "create_subprocess_exec", self)

    async def __call__(self, *command: str, **options: Any) -> Process:
        self._child = await self._start(*command, **options)
        self.begun.set()
        await self.may_go_on.wait()
        return self._child

    @property
    def child(self) -> Process:
        """The child that was started last."""
        assert self._child is not None
        return self._child


def is_gone(process: Process) -> bool:
    """Tell whether a child has ended and was reaped."""
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    return False

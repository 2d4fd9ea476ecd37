"""How far programs of a sandbox come beyond their limits at full speed, before they are stopped.

On an idle machine at most four times their bytes and eight times their names, as each test prints.
The bounds here are wider: on a busy one the watcher has to wait for its turn.
"""

# ruff: noqa: F821 - functions that run inside see what `inside.PRELUDE` imports
import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.component.interns.runtimes.sandbox_runner import SandboxRunner
from tests.support.waiting import until
from tollhouse.interns.workspaces.contents import DiskUsage, measure
from tollhouse.interns.workspaces.tree import ANY_NUMBER

pytestmark = [pytest.mark.sandbox, pytest.mark.soak]

_MIB = 1024 * 1024
_NAMES = 5_000
_SECONDS = 120


def write_large_files() -> None:
    while not Path("go").exists():
        time.sleep(0.01)
    with contextlib.suppress(OSError):
        for number in range(1 << 30):
            with Path(f"f{number}").open("wb", buffering=0) as file:
                file.writelines([b"x" * 1024 * 1024] * 48)


def write_small_files() -> None:
    while not Path("go").exists():
        time.sleep(0.01)
    with contextlib.suppress(OSError):
        for number in range(1 << 30):
            Path(f"f{number}").write_bytes(b"x" * 65536)


def make_empty_files() -> None:
    while not Path("go").exists():
        time.sleep(0.01)
    for number in range(1 << 30):
        os.close(os.open(f"e{number}", os.O_CREAT | os.O_WRONLY))


async def held_at_the_end(
    boxes: SandboxRunner, function: Callable[..., None], looks: int
) -> DiskUsage:
    """Let a program write once it was looked at so often; return what it has written."""
    launch = boxes.launch(function, files=_NAMES)
    go = launch.workspace / "go"
    if not looks:
        go.touch()
    inside = await boxes.start(launch)
    watch: Any = inside.sandbox
    for _ in range(looks):
        before = watch._watch._looked  # noqa: SLF001 - nothing else shows it
        await until(lambda before=before: watch._watch._looked != before)  # noqa: SLF001
    go.touch()
    ended = asyncio.ensure_future(inside.sandbox.wait())
    async with asyncio.timeout(_SECONDS):
        while not (inside.sandbox.disk_full or ended.done()):
            await asyncio.sleep(0.1)
        await asyncio.wait({ended}, timeout=20)  # one that only writes is stopped and stays
    await inside.sandbox.stop(0)
    held = measure(inside.workspace, ANY_NUMBER)
    figures = f"{held.disk_bytes // _MIB} MiB, {held.names} names"
    print(f"{function.__name__} after {looks} looks: {figures}")  # noqa: T201 - the figures of a run
    return held


@pytest.mark.parametrize("looks", [0, 50])
@pytest.mark.parametrize("function", [write_large_files, write_small_files])
async def test_a_writer_is_stopped_beyond_its_limit(
    boxes: SandboxRunner, function: Callable[..., None], looks: int
) -> None:
    limit = boxes.limits.disk_bytes
    assert limit < (await held_at_the_end(boxes, function, looks)).disk_bytes < 16 * limit


@pytest.mark.parametrize("looks", [0, 50])
async def test_who_makes_empty_files_is_stopped_beyond_its_limit(
    boxes: SandboxRunner, looks: int
) -> None:
    held = await held_at_the_end(boxes, make_empty_files, looks)
    assert _NAMES < held.names < 64 * _NAMES

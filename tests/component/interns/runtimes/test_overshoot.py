"""How far programs of a sandbox come beyond their limits at full speed, before they are stopped.

On an idle machine at most four times their bytes and eight times their names, as each test prints.
The bounds here are wider: on a busy one the watcher has to wait for its turn.
"""

# ruff: noqa: F821 - functions that run inside see what `inside.PRELUDE` imports
import asyncio
from collections.abc import Callable

import pytest

from tests.component.interns.runtimes.sandbox_runner import SandboxRunner
from tollhouse.interns.workspaces.contents import DiskUsage, measure
from tollhouse.interns.workspaces.tree import ANY_NUMBER

pytestmark = [pytest.mark.sandbox, pytest.mark.soak]

_MIB = 1024 * 1024
_NAMES = 5_000
_SECONDS = 120


def write_large_files(wait: float) -> None:
    time.sleep(wait)
    with contextlib.suppress(OSError):
        for number in range(1 << 30):
            with Path(f"f{number}").open("wb", buffering=0) as file:
                file.writelines([b"x" * 1024 * 1024] * 48)


def write_small_files(wait: float) -> None:
    time.sleep(wait)
    with contextlib.suppress(OSError):
        for number in range(1 << 30):
            Path(f"f{number}").write_bytes(b"x" * 65536)


def make_empty_files(wait: float) -> None:
    time.sleep(wait)
    for number in range(1 << 30):
        os.close(os.open(f"e{number}", os.O_CREAT | os.O_WRONLY))


async def held_at_the_end(
    boxes: SandboxRunner, function: Callable[..., None], wait: float
) -> DiskUsage:
    inside = await boxes.run(function, wait, files=_NAMES)
    ended = asyncio.ensure_future(inside.sandbox.wait())
    async with asyncio.timeout(_SECONDS):
        while not (inside.sandbox.disk_full or ended.done()):
            await asyncio.sleep(0.1)
        await asyncio.wait({ended}, timeout=20)  # one that only writes is stopped and stays
    await inside.sandbox.stop(0)
    held = measure(inside.workspace, ANY_NUMBER)
    figures = f"{held.disk_bytes // _MIB} MiB, {held.names} names"
    print(f"{function.__name__} after {wait} s: {figures}")  # noqa: T201 - the figures of a run
    return held


@pytest.mark.parametrize("wait", [0.0, 3.3])
@pytest.mark.parametrize("function", [write_large_files, write_small_files])
async def test_a_writer_is_stopped_beyond_its_limit(
    boxes: SandboxRunner, function: Callable[..., None], wait: float
) -> None:
    limit = boxes.limits.disk_bytes
    assert limit < (await held_at_the_end(boxes, function, wait)).disk_bytes < 16 * limit


@pytest.mark.parametrize("wait", [0.0, 3.3])
async def test_who_makes_empty_files_is_stopped_beyond_its_limit(
    boxes: SandboxRunner, wait: float
) -> None:
    held = await held_at_the_end(boxes, make_empty_files, wait)
    assert _NAMES < held.names < 64 * _NAMES

"""What the limits of a sandbox by bubblewrap hold against."""

# ruff: noqa: S108 - the /tmp of a sandbox is its own
# ruff: noqa: F821 - functions that run inside see what `inside.PRELUDE` imports
import asyncio
import re
from pathlib import Path

import pytest

from tests.component.interns.runtimes.sandbox_runner import SandboxedCall, SandboxRunner
from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime

pytestmark = pytest.mark.sandbox

_MIB = 1024 * 1024
_SECONDS = 60


def keeps(inside: SandboxedCall, limit: str) -> None:
    if limit not in inside.sandbox.limits_enforced:
        pytest.skip(f"this machine does not keep {limit}")


async def test_a_fork_bomb_stays_in_its_sandbox(boxes: SandboxRunner) -> None:
    def bomb() -> int:
        made = 0
        try:
            for _ in range(1000):
                if os.fork() == 0:
                    time.sleep(1000)
                made += 1
        except BlockingIOError:
            return made
        return made

    inside = await boxes.run(bomb)
    assert "processes" in inside.sandbox.limits_enforced
    other = await boxes.run(bomb)
    for each in (inside, other):  # one does not take from the other
        assert 32 < await each.result() <= 64
        await each.sandbox.stop(0)


async def test_threads_count_as_processes(boxes: SandboxRunner) -> None:
    def spin() -> int:
        threads = []
        ended = threading.Event()
        try:
            for _ in range(1000):
                threads.append(threading.Thread(target=ended.wait))
                threads[-1].start()
        except RuntimeError:
            threads.pop()
        ended.set()
        for each in threads:
            each.join()
        return len(threads)

    assert await boxes.call(spin) < 64


async def test_a_memory_eater_is_killed_and_the_reason_told(boxes: SandboxRunner) -> None:
    def eat() -> None:
        held = []
        while True:
            held.append(b"x" * 1024 * 1024 * 4)

    inside = await boxes.run(eat, memory_bytes=64 * _MIB)
    keeps(inside, "memory_bytes")
    assert await inside.sandbox.wait() == "it was killed: out of memory"


async def test_what_a_child_eats_does_not_end_the_daemon(boxes: SandboxRunner) -> None:
    def feed() -> int:
        eater = "held = []\nwhile True: held.append(b'x' * 1024 * 1024 * 4)"
        return subprocess.run([sys.executable, "-c", eater], check=False).returncode

    inside = await boxes.run(feed, memory_bytes=96 * _MIB)
    keeps(inside, "memory_bytes")
    assert await inside.result() == -9


async def test_files_in_memory_count_and_are_small(boxes: SandboxRunner) -> None:
    def fill() -> str:
        try:
            with Path("/tmp/filler").open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 1024 * 1024)
        except OSError as error:
            return errno.errorcode[error.errno]

    assert await boxes.call(fill) in {"ENOSPC", "EFBIG"}


async def test_one_file_is_no_larger_than_the_workspace_may_be(boxes: SandboxRunner) -> None:
    def fill() -> str:
        try:
            os.truncate(os.open("large", os.O_CREAT | os.O_WRONLY), 1 << 40)
        except OSError as error:
            return errno.errorcode[error.errno]
        return "made"

    assert await boxes.call(fill) == "EFBIG"


async def until(inside: SandboxedCall, *, full: bool) -> None:
    async with asyncio.timeout(_SECONDS):
        while inside.sandbox.disk_full is not full:
            await asyncio.sleep(0.05)


async def test_a_disk_filler_is_stopped_loses_nothing_and_may_go_on_after_deleting(
    boxes: SandboxRunner,
) -> None:
    def fill() -> list[str]:
        number, told = 0, ["never"]
        try:
            while number < 1_000:
                Path(f"filler-{number}").write_bytes(b"x" * 1024 * 1024)
                number += 1
                time.sleep(0.05)
        except OSError:
            told = ["stopped"]
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        except (OSError, ValueError) as error:
            told.append(type(error).__name__)
        for each in Path().glob("filler-*"):
            each.unlink()
        while True:
            with contextlib.suppress(OSError):
                Path("after").write_text("written")
                return told
            time.sleep(0.05)

    inside = await boxes.run(fill, disk_bytes=16 * _MIB)
    (inside.workspace / "before").write_text("kept")
    assert "disk_bytes" in inside.sandbox.limits_enforced
    await until(inside, full=True)
    assert await inside.result() == ["stopped", "ValueError"]
    await until(inside, full=False)
    assert (inside.workspace / "before").read_text() == "kept"
    assert (inside.workspace / "after").read_text() == "written"


async def test_space_is_taken_by_writing_and_never_reserved(boxes: SandboxRunner) -> None:
    def reserve() -> list[object]:
        told: list[object] = []
        with Path("file").open("wb") as file:
            libc = ctypes.CDLL(None, use_errno=True)
            size = ctypes.c_long(1 << 20)
            told.append(libc.fallocate(file.fileno(), 0, ctypes.c_long(0), size))
            told.append(ctypes.get_errno() == errno.EOPNOTSUPP)
            os.posix_fallocate(file.fileno(), 0, 1 << 20)  # the library writes instead
            told.append(os.fstat(file.fileno()).st_size)
            punch = 0x02 | 0x01
            told.append(libc.fallocate(file.fileno(), punch, ctypes.c_long(0), size))
            told.append(os.fstat(file.fileno()).st_blocks)
        return told

    assert await boxes.call(reserve) == [-1, True, 1 << 20, 0, 0]


async def test_processor_time_is_limited(
    boxes: SandboxRunner, bubblewrap: BubblewrapRuntime
) -> None:
    def spin() -> None:
        Path(".answer").write_text("0")
        Path(".answer").rename("answer")
        while True:
            pass

    inside = await boxes.run(spin, cpus=0.1)
    keeps(inside, "cpus")
    await inside.result()
    groups = list(bubblewrap._cgroups.existing())  # noqa: SLF001 - only a test asks
    async with asyncio.timeout(_SECONDS):
        while not any(throttled(group / "cpu.stat") for group in groups):
            await asyncio.sleep(0.05)


def throttled(file: Path) -> bool:
    text = file.read_text() if file.exists() else ""
    return bool(re.search(r"^nr_throttled [1-9]", text, re.MULTILINE))

"""`kill -9` of a process that writes blobs: visible blobs are whole, reported ones stay."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.component.storage.blob_writer import content
from tests.support.disk import files_in
from tollhouse.storage.blobs import LocalBlobs

WRITER = str(Path(__file__).with_name("blob_writer.py"))
PROJECT = Path(__file__).parents[3]
KILLS = 4
KILLS_IN_SOAK = 40
POINTS = [(call, number) for call in ("write", "fsync", "link", "mkdir") for number in (1, 2, 8)]


def start(root: Path, *point: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", WRITER, str(root), *point]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT)


async def assert_whole(root: Path, said: set[str]) -> None:
    blobs = LocalBlobs(root)
    seen = await blobs.list("")
    assert said <= set(seen)
    for key in seen:
        assert await blobs.get(key) == content(key)


async def assert_swept(root: Path) -> None:
    blobs = LocalBlobs(root)
    seen = await blobs.list("")
    await blobs.sweep()
    assert await blobs.list("") == seen
    assert files_in(root) == seen


def said_by(process: subprocess.Popen[str]) -> set[str]:
    """Return the keys of a killed writer; its last line may be cut."""
    assert process.stdout is not None
    lines = process.stdout.read().splitlines(keepends=True)
    return {line.strip() for line in lines if line.endswith("\n")} - {"ready"}


@pytest.mark.parametrize(("call", "number"), POINTS)
async def test_a_writer_that_dies_at_a_point_leaves_no_half_blob(
    tmp_path: Path, call: str, number: int
) -> None:
    root = tmp_path / "blobs"
    with start(root, call, str(number)) as process:
        said = said_by(process)
    assert process.returncode == -9
    await assert_whole(root, said)
    await assert_swept(root)


async def kill_at_random(root: Path, kills: int) -> None:
    said: set[str] = set()
    for _ in range(kills):
        with start(root) as process:
            assert process.stdout is not None
            for _ in range(random.randint(1, 8)):
                said.add(process.stdout.readline().strip())
            await asyncio.sleep(random.uniform(0, 0.02))
            process.kill()
            said |= said_by(process)
        said.discard("ready")
        await assert_whole(root, said)
    await assert_swept(root)


async def test_kills_at_random_leave_no_half_blob(tmp_path: Path) -> None:
    await kill_at_random(tmp_path / "blobs", KILLS)


@pytest.mark.soak
async def test_many_kills_leave_no_half_blob(tmp_path: Path, soak_factor: int) -> None:
    await kill_at_random(tmp_path / "blobs", KILLS_IN_SOAK * soak_factor)

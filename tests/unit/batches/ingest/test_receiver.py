"""From pieces of a body to stored chunks, in a thread and in a child process."""

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.child_processes import own_children
from tests.support.memory_blobs import MemoryBlobs
from tests.support.seams.batches import (
    MOST_LINES,
    BatchDemand,
    BatchEndpoint,
    BatchLimits,
    BatchReceiver,
    IngestChildGone,
    StoredChunk,
    Submission,
    read_lines,
)
from tests.support.seams.batches import receiver as receiver_module
from tests.unit.batches.ingest.bodies import in_pieces, item, items, submitted
from tollhouse.kernel.errors import Bug, Invalid, Unprocessable
from tollhouse.storage.blobs import BlobsFull, BlobsUnavailable

FOLDER = "batches/1"
THREAD = 1 << 30
CHILD = 0
"""So many bytes need no child."""
LIMITS = BatchLimits(body_bytes=6_000_000, items=10_000, item_bytes=100_000)
MIB = 1_048_576
LARGE = submitted(*items(2_200))
SECRET = "not for any log"


class Gone(Exception):
    """The sender went away."""


def receiver(blobs: MemoryBlobs, in_process_bytes: int = CHILD, **limits: int) -> BatchReceiver:
    chosen = BatchLimits(**limits) if limits else LIMITS
    return BatchReceiver(blobs, chosen, in_process_bytes=in_process_bytes)


def staged_files(blobs: MemoryBlobs) -> list[str]:
    """Return what lies in the folder that a child writes to."""
    return sorted(path.name for path in blobs.staging().iterdir())


async def stored_items(blobs: MemoryBlobs, chunks: tuple[StoredChunk, ...]) -> list[Any]:
    """Return the items in the store, after a look at whether the chunks follow each other."""
    found: list[Any] = []
    for number, chunk in enumerate(chunks):
        data = await blobs.get(f"{FOLDER}/input/{number:05}.jsonl")
        assert chunk == StoredChunk(number, len(found), chunk.lines)
        found += map(json.loads, read_lines(data))
        assert len(found) == chunk.first + chunk.lines
    assert len(blobs.blobs) == len(chunks)
    return found


async def never_ending(body: bytes) -> AsyncIterator[bytes]:
    async for piece in in_pieces(body):
        yield piece
    await asyncio.Event().wait()


async def breaking(body: bytes, error: Exception) -> AsyncIterator[bytes]:
    async for piece in in_pieces(body):
        yield piece
    raise error


@pytest.mark.parametrize("in_process_bytes", [THREAD, CHILD])
async def test_items_are_stored_and_counted(blobs: MemoryBlobs, in_process_bytes: int) -> None:
    entries = items(MOST_LINES + 1, size=10)
    entries[3] = item("large", max_tokens=50, text="y" * 800)
    entries[4] = item("open", messages=[{"content": [{"type": "image_url"}]}])
    preferences: dict[str, object] = {"only": ["acme"], "max_price": {"prompt": 1 << 70}}
    body = submitted(*entries, endpoint="/v1/messages", provider=preferences)
    received = await receiver(blobs, in_process_bytes).receive(in_pieces(body, 1_000), FOLDER)
    assert received.submission == Submission(BatchEndpoint.MESSAGES, "acme/large", preferences)
    assert await stored_items(blobs, received.chunks) == entries
    assert received.digest == hashlib.sha256(body).hexdigest()
    demand = received.demand
    assert demand == BatchDemand(
        items=MOST_LINES + 1,
        input_tokens=demand.input_tokens,
        largest_input=demand.largest_input,
        output_tokens=(MOST_LINES - 1) * 100 + 50,
        unlimited=1,
        images=1,
    )
    assert 1_600 < demand.largest_input < demand.input_tokens


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_a_body_of_any_size_is_whole(blobs: MemoryBlobs, more: int) -> None:
    entries = items(300)
    body = submitted(*entries).ljust(MIB + more)
    received = await BatchReceiver(blobs, LIMITS).receive(in_pieces(body), FOLDER)
    assert await stored_items(blobs, received.chunks) == entries
    assert received.digest == hashlib.sha256(body).hexdigest()


async def test_only_a_body_above_the_bound_needs_a_child(
    blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "COMMAND", ("/nowhere/python",))
    body = submitted(item())
    await receiver(blobs, len(body)).receive(in_pieces(body), FOLDER)
    with pytest.raises(IngestChildGone), capture_logs() as logs:
        await receiver(blobs, len(body) - 1).receive(in_pieces(body), "batches/2")
    assert [(each["event"], each["log_level"]) for each in logs] == [("ingest_child_gone", "error")]


async def test_several_are_received_at_once(blobs: MemoryBlobs) -> None:
    receives = BatchReceiver(blobs, LIMITS, in_process_bytes=CHILD, most_children=2)
    every = await asyncio.gather(
        *(receives.receive(in_pieces(LARGE), f"batches/{number}") for number in range(3))
    )
    assert [each.demand.items for each in every] == [2_200] * 3
    assert every[0] == every[1] == every[2]


class TestRefusals:
    @pytest.mark.parametrize(
        "body",
        [
            b"[]",
            submitted(item(text="?")).replace(b"?", b"\xff"),
            submitted(item("é\n"), item("é\n")),
            submitted(*items(10_001, size=1)),
            submitted(item()).ljust(6_000_001),
        ],
        ids=["no batch", "no UTF-8", "an id twice", "too many items", "too large"],
    )
    async def test_are_the_same_from_a_thread_and_from_a_child(
        self, blobs: MemoryBlobs, body: bytes
    ) -> None:
        said: set[tuple[type[Invalid], str]] = set()
        for in_process_bytes in (THREAD, CHILD):
            with pytest.raises(Invalid) as caught:
                await receiver(blobs, in_process_bytes).receive(in_pieces(body), FOLDER)
            said.add((type(caught.value), caught.value.message))
        assert len(said) == 1
        assert blobs.blobs == {}

    async def test_of_one_item_too_many_come_while_the_sender_waits(
        self, blobs: MemoryBlobs
    ) -> None:
        body = submitted(*items(7_500, size=1))
        with pytest.raises(Unprocessable, match="more than 5000 items"):
            await receiver(blobs, items=5_000).receive(never_ending(body), FOLDER)
        assert blobs.blobs == {}


class TestWhatBreaks:
    @pytest.mark.parametrize("error", [Gone(), EOFError()], ids=repr)
    @pytest.mark.parametrize("in_process_bytes", [THREAD, CHILD])
    async def test_a_sender_that_goes_away_leaves_nothing(
        self, blobs: MemoryBlobs, in_process_bytes: int, error: Exception
    ) -> None:
        with pytest.raises(type(error)) as caught:
            await receiver(blobs, in_process_bytes).receive(breaking(LARGE[:-9], error), FOLDER)
        assert caught.value is error
        assert blobs.blobs == {}

    @pytest.mark.parametrize("in_process_bytes", [THREAD, CHILD])
    async def test_one_that_is_cancelled_while_a_chunk_is_written_leaves_nothing(
        self, blobs: MemoryBlobs, in_process_bytes: int
    ) -> None:
        blobs.may_put.clear()
        receiving = receiver(blobs, in_process_bytes).receive(in_pieces(LARGE), FOLDER)
        task = asyncio.create_task(receiving)
        await blobs.has_put.wait()
        task.cancel()
        await asyncio.sleep(0)
        blobs.may_put.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert blobs.puts == 1
        assert blobs.blobs == {}

    async def test_one_that_is_cancelled_while_its_child_starts_leaves_none(
        self, blobs: MemoryBlobs
    ) -> None:
        before = own_children()
        task = asyncio.create_task(receiver(blobs).receive(never_ending(b"{"), FOLDER))
        while own_children() <= before:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    @pytest.mark.parametrize("in_process_bytes", [THREAD, CHILD])
    @pytest.mark.parametrize("error", [BlobsFull("full"), BlobsUnavailable("gone")], ids=repr)
    async def test_a_store_that_fails_holds_nothing(
        self, blobs: MemoryBlobs, in_process_bytes: int, error: BlobsUnavailable
    ) -> None:
        blobs.failures[2] = error
        with pytest.raises(type(error)):
            await receiver(blobs, in_process_bytes).receive(in_pieces(LARGE), FOLDER)
        assert blobs.puts == 3
        assert blobs.blobs == {}
        assert staged_files(blobs) == []

    async def test_a_file_that_a_child_cannot_write_is_a_store_that_fails(
        self, blobs: MemoryBlobs
    ) -> None:
        taken = blobs.staging() / "~batches-1-00002"
        taken.mkdir()
        with pytest.raises(BlobsUnavailable) as refused:
            await receiver(blobs).receive(in_pieces(LARGE), "batches/1")
        assert "File exists" in refused.value.reason
        assert blobs.blobs == {}

    async def test_what_cannot_be_deleted_is_logged(self, blobs: MemoryBlobs) -> None:
        blobs.failures[2] = BlobsFull("full")
        blobs.failing_deletion = BlobsUnavailable("read-only")
        with pytest.raises(BlobsFull), capture_logs() as logs:
            await receiver(blobs).receive(in_pieces(LARGE), FOLDER)
        assert logs == [
            {
                "event": "batch_items_not_deleted",
                "log_level": "warning",
                "folder": FOLDER,
                "reason": "read-only",
            }
        ]

    @pytest.mark.parametrize(
        ("program", "reason"),
        [
            (f"raise SystemExit({SECRET!r})", "it ended with code 1"),
            ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it ended with code -9"),
            ("import sys; sys.stdout.buffer.write(bytes(3))", "it ended with code 0"),
        ],
    )
    @pytest.mark.parametrize("sender", [in_pieces, never_ending])
    async def test_a_child_that_ends_by_itself_is_logged(
        self,
        blobs: MemoryBlobs,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
        program: str,
        reason: str,
        sender: Any,
    ) -> None:
        monkeypatch.setattr(receiver_module, "COMMAND", (sys.executable, "-c", program))
        with pytest.raises(IngestChildGone, match="try again later"), capture_logs() as logs:
            await receiver(blobs).receive(sender(LARGE), FOLDER)
        assert logs == [{"event": "ingest_child_gone", "log_level": "error", "reason": reason}]
        assert SECRET not in "".join(capfd.readouterr())

    async def test_a_child_that_breaks_the_protocol_is_a_bug(
        self, blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = "import sys; sys.stdout.buffer.write(bytes(3) + bytes((1, 0)))"
        monkeypatch.setattr(receiver_module, "COMMAND", (sys.executable, "-c", program))
        with pytest.raises(Bug, match="the ingest child: Expected `object`, got `int`"):
            await receiver(blobs).receive(in_pieces(LARGE), FOLDER)
        assert blobs.blobs == {}

    async def test_a_child_with_a_fault_is_a_bug(
        self, blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = (
            "import tollhouse.batches.ingest.reader as reader\n"
            "del reader.estimate_raw_demand\n"
            "import tollhouse.batches.ingest.child as child\n"
            "child.main()"
        )
        monkeypatch.setattr(receiver_module, "COMMAND", (sys.executable, "-c", program))
        with pytest.raises(Bug, match=r"NameError in tollhouse\.batches\.ingest\.reader, line"):
            await receiver(blobs).receive(in_pieces(LARGE), FOLDER)
        assert blobs.blobs == {}

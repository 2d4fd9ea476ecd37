"""One batch: submitted, looked up, watched, its results written; how it is shown; exit codes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from tollhouse.cli.batches.reading import (
    BatchReplyReader,
    JsonValue,
    MalformedReply,
    json_lines,
    read_without_results,
)
from tollhouse.cli.client import Server
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.output import Column, Item, LineWriter, Record, Report
from tollhouse.cli.progress import BatchBar, LineProgress, show_batch_progress, show_upload
from tollhouse.cli.values import one_line, path_segment
from tollhouse.kernel.clock import Clock, SystemClock, iso_utc_seconds
from tollhouse.kernel.ids import RandomIds

if TYPE_CHECKING:
    from tollhouse.cli.batches.upload import BatchUpload

COMPLETED: Final = "completed"
FINAL_STATUSES: Final = frozenset((COMPLETED, "failed", "expired", "cancelled"))
"""Statuses that nothing follows."""
EXIT_SOME_FAILED: Final = 3
EXIT_NOT_COMPLETED: Final = 4
EXIT_UNFINISHED: Final = 5
GIVE_UP_SECONDS: Final = 300.0
"""How long a server may be away."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
_GROWTH: Final = 1.3
_SECONDS: Final = 600.0
"""The server has read all of a batch before it answers."""
_WITHHELD: Final = 402
"""The status of a batch whose results are withheld; the reply is the batch."""


def batch_report(batch: Item, *, exit_code: int = 0) -> Report:
    """Return what is shown of a batch."""
    return Report(batch, Record(_summary(batch), note=_next_step(batch)), exit_code)


def batch_exit_code(batch: Item) -> int:
    """Return how a command ends that waited for a batch's end."""
    if batch["status"] != COMPLETED:
        return EXIT_NOT_COMPLETED
    return EXIT_SOME_FAILED if batch["request_counts"]["failed"] else 0


def batch_columns() -> list[Column | str]:
    """Return the columns of a list of batches."""
    return [
        *("id", "status", "model", "endpoint"),
        Column("completed", lambda batch: batch["request_counts"]["completed"]),
        Column("failed", lambda batch: batch["request_counts"]["failed"]),
        Column("total", lambda batch: batch["request_counts"]["total"]),
        Column("cost", _cost),
        Column("created", lambda batch: _when(batch["created_at"])),
    ]


def _summary(batch: Item) -> Item:
    usage = _usage(batch)
    return {
        **{name: batch.get(name) for name in ("id", "status", "model", "endpoint", "provider")},
        **{name: batch["request_counts"][name] for name in ("total", "completed", "failed")},
        "input tokens": usage.get("prompt_tokens"),
        "output tokens": usage.get("completion_tokens"),
        "cost": _cost(batch),
        "created": _when(batch["created_at"]),
        "expires": _when(batch["expires_at"]),
        "ended": _when(batch["finalized_at"]),
        "error": batch_error(batch),
    }


def batch_error(batch: Item) -> str | None:
    """Return why all of a batch failed, or why its results are withheld; None where neither is."""
    error: Mapping[str, Any] = batch.get("error") or {}
    return error.get("message")


def _next_step(batch: Item) -> str | None:
    results = f"Its results:  tollhouse batch results {batch['id']} -o results.jsonl"
    if batch["status"] not in FINAL_STATUSES:
        return f"Follow it:    tollhouse batch show {batch['id']} --watch\n{results}"
    return results if batch_error(batch) is None else None


def _cost(batch: Item) -> float | None:
    return _usage(batch).get("cost")


def _usage(batch: Item) -> Mapping[str, Any]:
    return batch.get("usage") or {}


def _when(seconds: int | None) -> str | None:
    return None if seconds is None else iso_utc_seconds(datetime.fromtimestamp(seconds, UTC))


def pauses() -> Iterator[float]:
    """Yield the seconds between two looks, without end: 0.5 at first, 5 in the long run."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)


async def poll_until_ended(
    look: Callable[[], Awaitable[dict[str, Any]]],
    progress: LineProgress | BatchBar,
    clock: Clock,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> dict[str, Any]:
    """Return a batch, which `look` fetches, once it has ended; CommandFailed as `watch_batch`."""
    waits = pauses()
    away_since: float | None = None
    while True:
        try:
            batch = await look()
        except CommandFailed as error:
            away_since = _away_since(away_since, error, clock.monotonic(), progress)
        else:
            if away_since is not None:
                progress.say("The server is back.")
            away_since = None
            progress.show(batch)
            if batch["status"] in FINAL_STATUSES:
                return batch
        await sleep(next(waits))


def _away_since(
    before: float | None, error: CommandFailed, now: float, progress: LineProgress | BatchBar
) -> float:
    """Return since when the server is away; raise the error unless it may still come back."""
    if not error.retryable:
        raise error
    if before is None:
        progress.say(f"{error}. Trying again for {GIVE_UP_SECONDS / 60:.0f} minutes.")
        return now
    if now - before >= GIVE_UP_SECONDS:
        raise error
    return before


async def submit_batch(
    server: Server, upload: BatchUpload, idempotency_key: str | None
) -> dict[str, Any]:
    """Submit a batch; a key is made unless one is given, for a repetition of the command."""
    key = idempotency_key or RandomIds().uuid()
    is_sent = False

    def pieces() -> Iterator[bytes]:
        nonlocal is_sent
        yield from upload.pieces()
        is_sent = True

    def advice() -> str:
        if not is_sent:
            return "No batch was made: not all of it was sent."
        return (
            "It is not known whether the batch was made: repeat the command with "
            f"--idempotency-key {key}, which makes no second one."
        )

    with _advised(advice), show_upload(upload.size) as counted:
        return await server.upload(
            "/batches",
            counted(pieces()),
            size=upload.size,
            headers={"Idempotency-Key": key},
            seconds=_SECONDS,
        )


async def get_batch(server: Server, batch_id: str) -> dict[str, Any]:
    """Return a batch without its results; one whose results are withheld says so in `error`."""
    path = f"/batches/{path_segment(batch_id)}"
    async with server.download(path, also=[_WITHHELD]) as pieces:
        try:
            batch = await read_without_results(pieces)
        except MalformedReply:
            batch = {}
    _require_batch(batch)
    return batch


async def watch_batch(server: Server, batch_id: str) -> Report:
    """Return what is shown of a batch once it has ended, and show meanwhile how far it came.

    CommandFailed where the server refuses to show it, or is away for too long.
    """
    advice = f"The batch goes on. Come back with: tollhouse batch show {batch_id} --watch"
    with _advised(lambda: advice), show_batch_progress() as progress:
        look = partial(get_batch, server, batch_id)
        ended = await poll_until_ended(look, progress, SystemClock())
    return batch_report(ended, exit_code=batch_exit_code(ended))


@contextmanager
def _advised(advice: Callable[[], str]) -> Generator[None]:
    """Add what to do now to a failure that may pass, and to Ctrl-C."""
    try:
        yield
    except asyncio.CancelledError:
        print(advice(), file=sys.stderr)
        raise
    except CommandFailed as error:
        if not error.retryable:
            raise
        raise CommandFailed(f"{str(error).rstrip('.')}. {advice()}") from None


ResultFormat = Literal["tollhouse", "openai"]
"""As the server sends them, or as in OpenAI's output files."""


def result_line(result: JsonValue, form: ResultFormat) -> str:
    """Return a result as one line.

    Source: OpenAI's batch output object, whose errors have a `code` and a `message`.
    """
    if form == "tollhouse" or not is_failed(result.value):
        return result.text
    error: dict[str, Any] = result.value["error"]
    code = error.get("error_type") or error.get("type")
    shown = {**result.value, "error": {"code": code, "message": error.get("message")}}
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def is_failed(result: Any) -> bool:  # noqa: ANN401 - whatever the server sends
    """Tell whether a result is an error."""
    return isinstance(result, dict) and isinstance(result.get("error"), dict)  # pyright: ignore[reportUnknownMemberType]


_GATHERED: Final = 256 * 1024


class NoResults(CommandFailed):
    """The batch ended without any."""

    exit_code = EXIT_NOT_COMPLETED


async def write_results(
    server: Server, batch_id: str, form: ResultFormat, sink: LineWriter
) -> tuple[int, int, dict[str, Any]]:
    """Write a batch's results, a line each: those that there are so far, where it still runs.

    Returns how many were written, how many of those failed, and the batch beside its results as it
    stood before they were read.
    CommandFailed where it has no results, or not all of them came.
    """
    path = f"/batches/{path_segment(batch_id)}"
    try:
        async with server.download(path) as pieces:
            reader = BatchReplyReader(pieces)
            counts = await _written_of(reader.results(), form, sink)
        if reader.has_results:
            return *counts, reader.batch
        _require_running(reader.batch)
        async with server.download(f"{path}/results") as pieces:
            return *await _written_of(json_lines(pieces), form, sink), reader.batch
    except MalformedReply as error:
        raise CommandFailed(
            f"the server sent something else than a batch ({error}): try again"
        ) from None


async def _written_of(
    values: AsyncGenerator[JsonValue], form: ResultFormat, sink: LineWriter
) -> tuple[int, int]:
    gathered: list[str] = []
    size = count = failed = 0
    async with aclosing(values) as results:
        async for result in results:
            line = f"{result_line(result, form)}\n"
            gathered.append(line)
            count, failed, size = count + 1, failed + is_failed(result.value), size + len(line)
            if size >= _GATHERED:
                if not sink("".join(gathered)):
                    return count, failed
                gathered, size = [], 0
    sink("".join(gathered))
    return count, failed


def _require_running(batch: dict[str, Any]) -> None:
    """Raise CommandFailed, which says why there are no results, unless the batch runs."""
    _require_batch(batch)
    name, status = batch["id"], batch["status"]
    if status in FINAL_STATUSES:
        why = one_line(batch_error(batch) or "the server says no reason")
        raise NoResults(f"{name} is {status} and has no results: {why}")


def _require_batch(reply: dict[str, Any]) -> None:
    if reply.get("object") != "batch":
        raise CommandFailed("the server did not answer with a batch: check the address")

"""The results of a batch on their way to a sink."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tollhouse.cli.batches.formats import is_failed, line_of
from tollhouse.cli.batches.reading import BatchReader, Broken
from tollhouse.cli.batches.views import ENDED, ENDED_OTHERWISE, error_of
from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tollhouse.cli.batches.formats import Format
    from tollhouse.cli.sinks import Sink

_GATHERED: Final = 256 * 1024


class NoResults(CommandFailed):
    """The batch ended without any."""

    exit_code = ENDED_OTHERWISE


class Tally(NamedTuple):
    """What was written."""

    results: int
    failed: int


async def write_results(pieces: AsyncIterator[bytes], form: Format, sink: Sink) -> Tally:
    """Write a batch's results, a line each.

    Args:
        pieces: The batch, as the server sends it.
        form: How they look.
        sink: Takes the lines.

    Raises:
        CommandFailed: The batch has no results, or not yet; or not all of it came.
    """
    reader = BatchReader(pieces)
    try:
        tally = await _written_of(reader, form, sink)
    except Broken as error:
        message = f"the server sent something else than a batch ({error}): try again"
        raise CommandFailed(message) from None
    if not reader.has_results:
        raise _without_results(reader.batch)
    return tally


async def _written_of(reader: BatchReader, form: Format, sink: Sink) -> Tally:
    gathered: list[str] = []
    size = count = failed = 0
    async with aclosing(reader.results()) as results:
        async for result in results:
            line = f"{line_of(result, form)}\n"
            gathered.append(line)
            count, failed, size = count + 1, failed + is_failed(result.value), size + len(line)
            if size >= _GATHERED:
                if not sink("".join(gathered)):
                    return Tally(count, failed)
                gathered, size = [], 0
    sink("".join(gathered))
    return Tally(count, failed)


def _without_results(batch: dict[str, Any]) -> CommandFailed:
    if batch.get("object") != "batch":
        return CommandFailed("the server did not answer with a batch: check the address")
    name, status = batch["id"], batch["status"]
    why = one_line(error_of(batch) or "the server says no reason")
    if status in ENDED:
        return NoResults(f"{name} is {status} and has no results: {why}")
    return CommandFailed(
        f"{name} is {status} and has no results yet: wait with `tollhouse batch show {name} "
        "--watch`"
    )

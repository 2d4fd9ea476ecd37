"""The results of a batch on their way to a sink."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tollhouse.cli.batches.formats import is_failed, line_of
from tollhouse.cli.batches.reading import BatchReader, Broken, lines_of
from tollhouse.cli.batches.views import ENDED, ENDED_OTHERWISE, error_of
from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.output import one_line
from tollhouse.cli.values import segment

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tollhouse.cli.batches.formats import Format
    from tollhouse.cli.batches.reading import Value
    from tollhouse.cli.client import Server
    from tollhouse.cli.sinks import Sink

_GATHERED: Final = 256 * 1024


class NoResults(CommandFailed):
    """The batch ended without any."""

    exit_code = ENDED_OTHERWISE


class Tally(NamedTuple):
    """What was written."""

    results: int
    failed: int


async def write_results(
    server: Server, batch_id: str, form: Format, sink: Sink
) -> tuple[Tally, dict[str, Any]]:
    """Write a batch's results, a line each: those that there are so far, where it still runs.

    Args:
        server: Whose batch it is.
        batch_id: Its id.
        form: How they look.
        sink: Takes the lines.

    Returns:
        What was written, and the batch beside its results, as it stood before they were read.

    Raises:
        CommandFailed: The batch has no results; or not all of them came.
    """
    path = f"/batches/{segment(batch_id)}"
    try:
        async with server.download(path) as pieces:
            reader = BatchReader(pieces)
            tally = await _written_of(reader.results(), form, sink)
        if reader.has_results:
            return tally, reader.batch
        if (ended := _without_results(reader.batch)) is not None:
            raise ended
        async with server.download(f"{path}/results") as pieces:
            return await _written_of(lines_of(pieces), form, sink), reader.batch
    except Broken as error:
        message = f"the server sent something else than a batch ({error}): try again"
        raise CommandFailed(message) from None


async def _written_of(values: AsyncGenerator[Value], form: Format, sink: Sink) -> Tally:
    gathered: list[str] = []
    size = count = failed = 0
    async with aclosing(values) as results:
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


def _without_results(batch: dict[str, Any]) -> CommandFailed | None:
    """Return why there are no results; None where the batch runs."""
    if batch.get("object") != "batch":
        return CommandFailed("the server did not answer with a batch: check the address")
    name, status = batch["id"], batch["status"]
    why = one_line(error_of(batch) or "the server says no reason")
    if status in ENDED:
        return NoResults(f"{name} is {status} and has no results: {why}")
    return None

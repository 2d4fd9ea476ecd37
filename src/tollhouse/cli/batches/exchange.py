"""What a server is asked about one batch."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tollhouse.cli.batches.meters import sending, watching
from tollhouse.cli.batches.reading import Broken, without_results
from tollhouse.cli.batches.watch import until_ended
from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.values import segment
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.ids import RandomIds

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from tollhouse.cli.batches.upload import Upload
    from tollhouse.cli.client import Server

_SECONDS: Final = 600.0
"""The server has read all of a batch before it answers."""
_WITHHELD: Final = 402
"""The status of a batch whose results are withheld; the reply is the batch."""


async def send(server: Server, upload: Upload, idempotency_key: str | None) -> dict[str, Any]:
    """Submit a batch.

    Args:
        server: To whom.
        upload: Its body.
        idempotency_key: Names it; a new one unless given, for whoever has to repeat the command.

    Raises:
        CommandFailed: It was refused, or nobody answered.
    """
    key = idempotency_key or RandomIds().uuid()
    body = _Body(upload.pieces())

    def advice() -> str:
        if not body.is_sent:
            return "No batch was made: not all of it was sent."
        return (
            "It is not known whether the batch was made: repeat the command with "
            f"--idempotency-key {key}, which makes no second one."
        )

    with _advised(advice), sending(upload.size) as counted:
        return await server.upload(
            "/batches",
            counted(body),
            size=upload.size,
            headers={"Idempotency-Key": key},
            seconds=_SECONDS,
        )


async def look(server: Server, batch_id: str) -> dict[str, Any]:
    """Return a batch without its results; one whose results are withheld says so in `error`.

    Raises:
        CommandFailed: It was refused, or nobody answered.
    """
    path = f"/batches/{segment(batch_id)}"
    async with server.download(path, also=[_WITHHELD]) as pieces:
        try:
            batch = await without_results(pieces)
        except Broken:
            batch = {}
    if batch.get("object") != "batch":
        message = "the server did not answer with a batch: check the address"
        raise CommandFailed(message)
    return batch


async def watched(server: Server, batch_id: str) -> dict[str, Any]:
    """Return a batch once it has ended, and show meanwhile how far it came.

    Raises:
        CommandFailed: It was refused, or the server was away for too long.
    """
    advice = f"The batch goes on. Come back with: tollhouse batch show {batch_id} --watch"
    with _advised(lambda: advice), watching() as meter:
        return await until_ended(lambda: look(server, batch_id), meter, SystemClock())


class _Body:
    """Pieces that remember whether all of them were taken."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.is_sent = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        self.is_sent = True


@contextmanager
def _advised(advice: Callable[[], str]) -> Generator[None]:
    """Add what to do now to a failure that may pass, and to Ctrl-C."""
    try:
        yield
    except asyncio.CancelledError:
        print(advice(), file=sys.stderr)
        raise
    except CommandFailed as error:
        if not error.passes:
            raise
        raise CommandFailed(f"{str(error).rstrip('.')}. {advice()}") from None

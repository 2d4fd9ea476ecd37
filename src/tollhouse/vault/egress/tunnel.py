"""Bytes that pass both ways, each way until it ends by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tollhouse.vault.egress.pace import in_slices

if TYPE_CHECKING:
    from tollhouse.vault.egress.pace import Pace
    from tollhouse.vault.egress.websocket import FrameRedactor
    from tollhouse.vault.egress.wire import Wire


async def tunnel(
    client: Wire, host: Wire, pace: Pace, redactor: FrameRedactor | None = None
) -> None:
    """Pass bytes on until both ways have ended.

    Args:
        client: One end; when it says that nothing follows, the host is told, and the other way
            round.
        host: The other end.
        pace: What both directions use.
        redactor: Takes values out of what the host says.

    Raises:
        Gone: One of them left without a word.
    """
    out = asyncio.create_task(_pass_on(client, host, pace, None))
    back = asyncio.create_task(_pass_on(host, client, pace, redactor))
    try:
        await _both(out, back)
    finally:
        for task in (out, back):
            task.cancel()
        await asyncio.gather(out, back, return_exceptions=True)


async def _both(*tasks: asyncio.Task[None]) -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


async def _pass_on(source: Wire, sink: Wire, pace: Pace, redactor: FrameRedactor | None) -> None:
    while data := await source.receive():
        await pace.pay(len(data))
        await sink.send(data if redactor is None else await in_slices(redactor.feed, data))
    if redactor is not None:
        await sink.send(redactor.flush())
    sink.end()

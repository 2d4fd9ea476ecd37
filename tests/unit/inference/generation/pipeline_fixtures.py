"""Pipelines over fake providers, and what those answer."""

import asyncio

from tests.support.seams.accounting import Usage, cost
from tests.unit.inference.fakes import (
    PRICE,
    FakeProvider,
    FakeReply,
    PipelineFixture,
    stream_reply,
    whole_reply,
)
from tollhouse.kernel.errors import (
    ProviderUnavailable,
    Unavailable,
)

USAGE = Usage(input_tokens=15, cache_read_tokens=4, output_tokens=10, reasoning_tokens=3)
COST = cost(USAGE, PRICE).total_nano
UNREACHABLE = ProviderUnavailable("Acme cannot be reached.", provider_name="Acme")
CUT = ProviderUnavailable("Acme closed the connection.", provider_name="Acme", ambiguous=True)
STOP = Unavailable("The gateway is stopping.")


def make_pipeline(*replies_: FakeReply | BaseException, **fields: object) -> PipelineFixture:
    return PipelineFixture([FakeProvider(each) for each in replies_], **fields)  # type: ignore[arg-type]


def abandoned_pipeline(
    *, stream: bool, on_disconnect: str = "cancel"
) -> tuple[PipelineFixture, FakeReply, asyncio.Event]:
    """Return a pipeline whose provider has sent half a reply, and the event for the rest."""
    reply = stream_reply() if stream else whole_reply()
    reply.body.insert(2 if stream else 0, rest := asyncio.Event())
    provider = FakeProvider(reply, on_disconnect=on_disconnect)  # type: ignore[arg-type]
    return PipelineFixture([provider]), reply, rest

"""A stream whose provider never said how its reply ended: it failed, and costs nothing."""

from __future__ import annotations

import pytest

from tests.unit.inference import replies
from tests.unit.inference.fakes import FakeProvider, FakeReply, PipelineFixture, outcome, received
from tests.unit.inference.replies import DONE, ROLE, USAGE_CHUNK, chunk
from tollhouse.kernel.errors import ProviderUnavailable, TollhouseError

FORMS = ["/chat/completions", "/responses", "/messages", "/completions"]
SAID = {
    "said": [chunk(ROLE), chunk({"content": "Half"}), USAGE_CHUNK, DONE],
    "empty": [chunk(ROLE), USAGE_CHUNK, DONE],
    "no choices": [USAGE_CHUNK, DONE],
    "done alone": [DONE],
}


@pytest.mark.parametrize("events", SAID.values(), ids=SAID)
@pytest.mark.parametrize("form", FORMS)
async def test_a_stream_without_a_finish_reason_fails_and_costs_nothing(
    form: str, events: list[bytes]
) -> None:
    w = PipelineFixture([FakeProvider(FakeReply(list(events)))])
    said = await outcome(w.ask(form, stream=True))
    if isinstance(said, TollhouseError):
        assert isinstance(said, ProviderUnavailable)
    else:
        assert b'"error"' in said
    [record] = w.settler.booked
    assert (record.cost_nano, record.finish_reason) == (0, "error")


@pytest.mark.parametrize("form", FORMS)
async def test_a_stream_that_says_how_it_ended_is_charged(form: str) -> None:
    events = [chunk(ROLE), chunk({"content": "All"}), chunk({}, "stop"), USAGE_CHUNK, DONE]
    w = PipelineFixture([FakeProvider(FakeReply(list(events)))])
    said = await received(w.ask(form, stream=True))
    assert b'"error":{' not in said
    [record] = w.settler.booked
    assert record.usage.output_tokens == replies.USAGE["completion_tokens"]
    assert (record.cost_nano > 0, record.finish_reason) == (True, "stop")

"""What this format writes, its own reader understands: nothing of a reply is lost between them."""

import json
from typing import Any

from hypothesis import given, settings

from tests.unit.inference.formats.responses.response_fixtures import (
    CUT,
    IDENTITY,
    LISTENER,
    charge,
    events_of,
    read_stream,
    replies,
    unpacked,
    written,
)
from tests.unit.inference.formats.responses.responses_stream_checks import (
    check_response,
    check_stream,
)
from tollhouse.inference.formats.canonical.blocks import ToolCall
from tollhouse.inference.formats.canonical.response import CanonicalResponse
from tollhouse.inference.formats.responses.provider_format import ResponsesProviderFormat

SPEAKER = ResponsesProviderFormat()


def expected_finish(told: CanonicalResponse) -> str:
    choice = told.choices[0]
    calls = any(isinstance(block, ToolCall) for block in choice.blocks)
    return "tool_calls" if calls and choice.finish_reason == "stop" else choice.finish_reason


@settings(max_examples=60)
@given(replies)
def test_a_whole_reply_that_is_written_and_read_again_is_the_same(told: CanonicalResponse) -> None:
    again = SPEAKER.parse_response(LISTENER.render_response(told, IDENTITY, charge()))
    assert unpacked(again.choices[0].blocks) == told.choices[0].blocks
    assert again.choices[0].finish_reason == expected_finish(told)
    assert again.usage == told.usage


@settings(max_examples=60)
@given(replies)
def test_a_stream_that_is_written_and_read_again_is_the_same(told: CanonicalResponse) -> None:
    stream = written(*events_of(told))
    check_stream(stream)
    again = read_stream(stream)
    assert unpacked(again.choices[0].blocks) == told.choices[0].blocks
    assert again.choices[0].finish_reason == expected_finish(told)
    assert again.usage == told.usage


@settings(max_examples=30)
@given(replies)
def test_a_stream_ends_in_the_response_that_a_whole_reply_is(told: CanonicalResponse) -> None:
    whole = json.loads(LISTENER.render_response(told, IDENTITY, charge()))
    check_response(whole)
    streamed = check_stream(written(*events_of(told))).response
    assert without_proofs(streamed) == without_proofs(whole)


def without_proofs(response: dict[str, Any]) -> dict[str, Any]:
    """Return a response without what differs: in a stream an id is shown before the proof comes."""
    output = [
        {**item, "id": None, "encrypted_content": None} if item["type"] == "reasoning" else item
        for item in response["output"]
    ]
    return {**response, "output": output}


@settings(max_examples=20)
@given(replies)
def test_wherever_a_stream_is_cut_the_client_gets_a_legal_one(told: CanonicalResponse) -> None:
    events = events_of(told)
    for cut in range(len(events) + 1):
        writer = LISTENER.stream_encoder(IDENTITY)
        broken = b"".join([*map(writer.write, events[:cut]), writer.fail(CUT)])
        assert check_stream(broken).failed
        assert check_stream(written(*events[:cut])).failed == (cut <= len(events) - 1)

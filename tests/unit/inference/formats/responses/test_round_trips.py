"""Round trips of responses and streams through the responses format."""

import json
from typing import Any

from hypothesis import given, settings

from tests.support.stream_checks.responses import (
    check_response,
    check_stream,
)
from tests.unit.inference.formats.responses.response_fixtures import (
    CUT,
    IDENTITY,
    SOURCE,
    charge,
    events_of,
    read_stream,
    replies,
    unpacked,
    written,
)
from tollhouse.inference.formats.canonical.types import CanonicalResponse, ToolCall
from tollhouse.inference.formats.responses.client_stream import RESPONSES_CLIENT
from tollhouse.inference.formats.responses.provider_request import RESPONSES_PROVIDER

PROVIDER_FORMAT = RESPONSES_PROVIDER


def expected_finish(reply: CanonicalResponse) -> str:
    choice = reply.choices[0]
    calls = any(isinstance(block, ToolCall) for block in choice.blocks)
    return "tool_calls" if calls and choice.finish_reason == "stop" else choice.finish_reason


@settings(max_examples=60)
@given(replies)
def test_a_complete_response_survives_a_round_trip(reply: CanonicalResponse) -> None:
    again = PROVIDER_FORMAT.parse_response(
        RESPONSES_CLIENT.render_response(SOURCE, reply, IDENTITY, charge())
    )
    assert unpacked(again.choices[0].blocks) == reply.choices[0].blocks
    assert again.choices[0].finish_reason == expected_finish(reply)
    assert again.usage == reply.usage


@settings(max_examples=60)
@given(replies)
def test_a_stream_survives_a_round_trip(reply: CanonicalResponse) -> None:
    stream = written(*events_of(reply))
    check_stream(stream)
    again = read_stream(stream)
    assert unpacked(again.choices[0].blocks) == reply.choices[0].blocks
    assert again.choices[0].finish_reason == expected_finish(reply)
    assert again.usage == reply.usage


@settings(max_examples=30)
@given(replies)
def test_a_stream_ends_with_the_same_response_as_a_complete_reply(reply: CanonicalResponse) -> None:
    whole = json.loads(RESPONSES_CLIENT.render_response(SOURCE, reply, IDENTITY, charge()))
    check_response(whole)
    streamed = check_stream(written(*events_of(reply))).response
    assert without_encrypted_content(streamed) == without_encrypted_content(whole)


def without_encrypted_content(response: dict[str, Any]) -> dict[str, Any]:
    """Return a response without fields that differ: a stream sends ids before encrypted content."""
    output = [
        {**item, "id": None, "encrypted_content": None} if item["type"] == "reasoning" else item
        for item in response["output"]
    ]
    return {**response, "output": output}


@settings(max_examples=20)
@given(replies)
def test_a_stream_cut_anywhere_is_legal_for_the_client(reply: CanonicalResponse) -> None:
    events = events_of(reply)
    for cut in range(len(events) + 1):
        encoder = RESPONSES_CLIENT.stream_encoder(SOURCE, IDENTITY)
        broken = b"".join([*map(encoder.write, events[:cut]), encoder.fail(CUT)])
        assert check_stream(broken).failed
        assert check_stream(written(*events[:cut])).failed == (cut <= len(events) - 1)

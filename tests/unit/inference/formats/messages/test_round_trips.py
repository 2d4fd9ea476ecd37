"""Round trips of responses and streams through the messages format."""

import json

from hypothesis import given, settings

from tests.support.stream_checks.messages import check_stream
from tests.unit.inference.formats.messages.conversations import replies, restored, tellings
from tests.unit.inference.formats.messages.samples import CHARGE, ENDPOINT, IDENTITY, USED, request
from tollhouse.inference.formats.canonical.stream import ResponseBuilder
from tollhouse.inference.formats.canonical.translation import TranslationSource
from tollhouse.inference.formats.canonical.types import (
    CanonicalEvent,
    CanonicalRequest,
    CanonicalResponse,
    ReasoningBlock,
    TextBlock,
    Turn,
)
from tollhouse.inference.formats.messages.client_response import MESSAGES_CLIENT
from tollhouse.inference.formats.messages.provider_request import MESSAGES_PROVIDER
from tollhouse.inference.sse import EventParser

SOURCE = TranslationSource(request(), MESSAGES_CLIENT)
PROVIDER_FORMAT = MESSAGES_PROVIDER


def written(events: list[CanonicalEvent]) -> bytes:
    encoder = MESSAGES_CLIENT.stream_encoder(SOURCE, IDENTITY)
    return b"".join(map(encoder.write, events)) + encoder.end(CHARGE)


def reread(stream: bytes) -> CanonicalResponse:
    decoder, builder = PROVIDER_FORMAT.stream_decoder(), ResponseBuilder()
    for data in EventParser().feed(stream):
        for event in decoder.feed(data):
            builder.add(event)
    assert decoder.done
    return builder.build()


@settings(max_examples=50)
@given(replies())
def test_a_complete_response_survives_a_round_trip(reply: CanonicalResponse) -> None:
    got = PROVIDER_FORMAT.parse_response(
        MESSAGES_CLIENT.render_response(SOURCE, reply, IDENTITY, CHARGE)
    )
    assert restored(got) == restored(reply)
    assert (got.usage, got.upstream_id) == (USED, "gen-1")


@settings(max_examples=50)
@given(tellings())
def test_a_stream_survives_a_round_trip(
    telling: tuple[CanonicalResponse, list[CanonicalEvent]],
) -> None:
    reply, events = telling
    stream = written(events)
    check_stream(stream)
    got = reread(stream)
    assert restored(got) == restored(reply)
    assert (got.usage, got.upstream_id) == (USED, "gen-1")


@settings(max_examples=40)
@given(replies())
def test_a_response_sent_back_by_the_client_is_unchanged(reply: CanonicalResponse) -> None:
    content = json.loads(MESSAGES_CLIENT.render_response(SOURCE, reply, IDENTITY, CHARGE))[
        "content"
    ]
    messages = [{"role": "assistant", "content": content}]
    turns = MESSAGES_CLIENT.parse_request(request(messages=messages)).turns
    said = turns[0].blocks if turns else ()
    assert said == reply.choices[0].blocks


@settings(max_examples=40)
@given(replies())
def test_a_provider_gets_back_only_its_own_reasoning(reply: CanonicalResponse) -> None:
    turns = (Turn("user", (TextBlock("a"),)), Turn("assistant", reply.choices[0].blocks))
    messages = json.loads(PROVIDER_FORMAT.render_request(CanonicalRequest(turns), ENDPOINT))[
        "messages"
    ]
    sent = [block for message in messages for block in message["content"]]
    thoughts = [block for block in reply.choices[0].blocks if isinstance(block, ReasoningBlock)]
    proofs = [each.signature or each.encrypted for each in thoughts if each.format is not None]
    own = [block.get("signature") or block.get("data") for block in sent if "input" not in block]
    assert set(own) - {None} <= set(proofs)
    assert len([each for each in own if each]) == len(
        [each for each in thoughts if each.format == "anthropic-claude-v1"]
    )

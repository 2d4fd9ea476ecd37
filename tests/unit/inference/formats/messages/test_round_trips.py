"""What a client of this format gets is what was said, whichever way it is told."""

import json

from hypothesis import given, settings

from tests.unit.inference.formats.messages.conversations import replies, restored, tellings
from tests.unit.inference.formats.messages.messages_stream_checks import check_stream
from tests.unit.inference.formats.messages.samples import CHARGE, ENDPOINT, IDENTITY, USED, request
from tollhouse.inference.formats.canonical.blocks import ReasoningBlock, TextBlock, Turn
from tollhouse.inference.formats.canonical.events import CanonicalEvent
from tollhouse.inference.formats.canonical.request import CanonicalRequest
from tollhouse.inference.formats.canonical.response import CanonicalResponse
from tollhouse.inference.formats.canonical.response_builder import ResponseBuilder
from tollhouse.inference.formats.messages.client_format import MessagesClientFormat
from tollhouse.inference.formats.messages.provider_format import MessagesProviderFormat
from tollhouse.inference.sse import EventParser

LISTENER = MessagesClientFormat(request())
SPEAKER = MessagesProviderFormat()


def written(events: list[CanonicalEvent]) -> bytes:
    writer = LISTENER.stream_encoder(IDENTITY)
    return b"".join(map(writer.write, events)) + writer.end(CHARGE)


def reread(stream: bytes) -> CanonicalResponse:
    reader, gathering = SPEAKER.stream_decoder(), ResponseBuilder()
    for data in EventParser().feed(stream):
        for event in reader.feed(data):
            gathering.add(event)
    assert reader.done
    return gathering.build()


@settings(max_examples=50)
@given(replies())
def test_a_whole_reply_is_read_again_as_it_was(reply: CanonicalResponse) -> None:
    got = SPEAKER.parse_response(LISTENER.render_response(reply, IDENTITY, CHARGE))
    assert restored(got) == restored(reply)
    assert (got.usage, got.upstream_id) == (USED, "gen-1")


@settings(max_examples=50)
@given(tellings())
def test_a_stream_is_read_again_as_it_was(
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
def test_a_reply_that_is_sent_back_is_the_same_again(reply: CanonicalResponse) -> None:
    content = json.loads(LISTENER.render_response(reply, IDENTITY, CHARGE))["content"]
    messages = [{"role": "assistant", "content": content}]
    turns = MessagesClientFormat(request(messages=messages)).parse_request().turns
    said = turns[0].blocks if turns else ()
    assert said == reply.choices[0].blocks


@settings(max_examples=40)
@given(replies())
def test_a_provider_gets_back_its_own_thoughts_alone(reply: CanonicalResponse) -> None:
    turns = (Turn("user", (TextBlock("a"),)), Turn("assistant", reply.choices[0].blocks))
    messages = json.loads(SPEAKER.render_request(CanonicalRequest(turns), ENDPOINT))["messages"]
    sent = [block for message in messages for block in message["content"]]
    thoughts = [block for block in reply.choices[0].blocks if isinstance(block, ReasoningBlock)]
    proofs = [each.signature or each.encrypted for each in thoughts if each.format is not None]
    own = [block.get("signature") or block.get("data") for block in sent if "input" not in block]
    assert set(own) - {None} <= set(proofs)
    assert len([each for each in own if each]) == len(
        [each for each in thoughts if each.format == "anthropic-claude-v1"]
    )

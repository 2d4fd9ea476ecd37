"""What a client of this format gets is what was said, whichever way it is told."""

import json

from hypothesis import given, settings

from tests.unit.inference.formats.messages.conversations import replies, restored, tellings
from tests.unit.inference.formats.messages.messages_stream_checks import check_stream
from tests.unit.inference.formats.messages.samples import CHARGE, ENDPOINT, IDENTITY, USED, request
from tollhouse.inference.formats.hub.events import Event
from tollhouse.inference.formats.hub.gather import Gathering
from tollhouse.inference.formats.hub.parts import Reasoning, Text, Turn
from tollhouse.inference.formats.hub.prompt import Prompt
from tollhouse.inference.formats.hub.reply import Reply
from tollhouse.inference.formats.messages.listener import MessagesListener
from tollhouse.inference.formats.messages.speaker import MessagesSpeaker
from tollhouse.inference.sse import EventParser

LISTENER = MessagesListener(request())
SPEAKER = MessagesSpeaker()


def written(events: list[Event]) -> bytes:
    writer = LISTENER.writer(IDENTITY)
    return b"".join(map(writer.write, events)) + writer.end(CHARGE)


def reread(stream: bytes) -> Reply:
    reader, gathering = SPEAKER.reader(), Gathering()
    for data in EventParser().feed(stream):
        for event in reader.feed(data):
            gathering.take(event)
    assert reader.done
    return gathering.reply()


@settings(max_examples=50)
@given(replies())
def test_a_whole_reply_is_read_again_as_it_was(reply: Reply) -> None:
    got = SPEAKER.read(LISTENER.render(reply, IDENTITY, CHARGE))
    assert restored(got) == restored(reply)
    assert (got.usage, got.upstream_id) == (USED, "gen-1")


@settings(max_examples=50)
@given(tellings())
def test_a_stream_is_read_again_as_it_was(telling: tuple[Reply, list[Event]]) -> None:
    reply, events = telling
    stream = written(events)
    check_stream(stream)
    got = reread(stream)
    assert restored(got) == restored(reply)
    assert (got.usage, got.upstream_id) == (USED, "gen-1")


@settings(max_examples=40)
@given(replies())
def test_a_reply_that_is_sent_back_is_the_same_again(reply: Reply) -> None:
    content = json.loads(LISTENER.render(reply, IDENTITY, CHARGE))["content"]
    messages = [{"role": "assistant", "content": content}]
    turns = MessagesListener(request(messages=messages)).parse().turns
    said = turns[0].blocks if turns else ()
    assert said == reply.choices[0].blocks


@settings(max_examples=40)
@given(replies())
def test_a_provider_gets_back_its_own_thoughts_alone(reply: Reply) -> None:
    turns = (Turn("user", (Text("a"),)), Turn("assistant", reply.choices[0].blocks))
    messages = json.loads(SPEAKER.ask(Prompt(turns), ENDPOINT))["messages"]
    sent = [block for message in messages for block in message["content"]]
    thoughts = [block for block in reply.choices[0].blocks if isinstance(block, Reasoning)]
    proofs = [each.signature or each.encrypted for each in thoughts if each.format is not None]
    own = [block.get("signature") or block.get("data") for block in sent if "input" not in block]
    assert set(own) - {None} <= set(proofs)
    assert len([each for each in own if each]) == len(
        [each for each in thoughts if each.format == "anthropic-claude-v1"]
    )

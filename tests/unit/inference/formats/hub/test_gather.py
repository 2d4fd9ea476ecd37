import msgspec
from hypothesis import given

from tests.unit.inference.formats.hub.conversations import replies, told
from tollhouse.inference.formats.hub.events import TextDelta
from tollhouse.inference.formats.hub.gather import Gathering
from tollhouse.inference.formats.hub.parts import Reasoning, Text
from tollhouse.inference.formats.hub.reasoning import pack, unpack
from tollhouse.inference.formats.hub.reply import Reply


@given(replies(most_choices=3))
def test_the_events_of_a_reply_are_gathered_into_it(reply: Reply) -> None:
    gathering = Gathering()
    for event in told(reply):
        gathering.take(event)
    assert gathering.reply() == reply


def test_a_choice_that_did_not_finish_failed() -> None:
    gathering = Gathering()
    gathering.take(TextDelta(0, 0, "a"))
    assert gathering.reply().choices[0].finish_reason == "error"


def test_log_probabilities_of_the_pieces_are_joined() -> None:
    gathering = Gathering()
    for number in (1, 2):
        piece = msgspec.json.encode({"content": [{"token": number}], "refusal": None})
        gathering.take(TextDelta(0, 0, "a", msgspec.Raw(piece)))
    [choice] = gathering.reply().choices
    assert choice.logprobs is not None
    assert msgspec.json.decode(choice.logprobs)["content"] == [{"token": 1}, {"token": 2}]


def test_parts_show_nothing_of_what_they_hold() -> None:
    assert "secret" not in repr(Text("secret"))
    assert "secret" not in repr([Reasoning("secret", signature="secret")])


def test_thoughts_come_out_of_an_opaque_text_as_they_went_in() -> None:
    block = Reasoning("a", is_summary=True, encrypted="x", id="rs_1", format="f")
    assert unpack(pack(block)) == block


def test_a_text_that_holds_no_thoughts_is_no_such_text() -> None:
    for text in ("", "EqRk", "th1.", "th1.!!", "th1.e30", pack(Reasoning("a"))[:-8]):
        assert unpack(text) in (None, Reasoning())

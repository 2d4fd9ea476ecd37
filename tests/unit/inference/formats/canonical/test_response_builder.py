import msgspec
from hypothesis import given

from tests.unit.inference.formats.canonical.response_fixtures import events_of, replies
from tollhouse.inference.formats.canonical.blocks import ReasoningBlock, TextBlock
from tollhouse.inference.formats.canonical.events import TextDelta
from tollhouse.inference.formats.canonical.reasoning import pack, unpack
from tollhouse.inference.formats.canonical.response import CanonicalResponse
from tollhouse.inference.formats.canonical.response_builder import ResponseBuilder


@given(replies(most_choices=3))
def test_the_events_of_a_reply_are_gathered_into_it(reply: CanonicalResponse) -> None:
    gathering = ResponseBuilder()
    for event in events_of(reply):
        gathering.add(event)
    assert gathering.build() == reply


def test_a_choice_that_did_not_finish_failed() -> None:
    gathering = ResponseBuilder()
    gathering.add(TextDelta(0, 0, "a"))
    assert gathering.build().choices[0].finish_reason == "error"


def test_log_probabilities_of_the_pieces_are_joined() -> None:
    gathering = ResponseBuilder()
    for number in (1, 2):
        piece = msgspec.json.encode({"content": [{"token": number}], "refusal": None})
        gathering.add(TextDelta(0, 0, "a", msgspec.Raw(piece)))
    [choice] = gathering.build().choices
    assert choice.logprobs is not None
    assert msgspec.json.decode(choice.logprobs)["content"] == [{"token": 1}, {"token": 2}]


def test_parts_show_nothing_of_what_they_hold() -> None:
    assert "secret" not in repr(TextBlock("secret"))
    assert "secret" not in repr([ReasoningBlock("secret", signature="secret")])


def test_thoughts_come_out_of_an_opaque_text_as_they_went_in() -> None:
    block = ReasoningBlock("a", is_summary=True, encrypted="x", id="rs_1", format="f")
    assert unpack(pack(block)) == block


def test_a_text_that_holds_no_thoughts_is_no_such_text() -> None:
    for text in ("", "EqRk", "th1.", "th1.!!", "th1.e30", pack(ReasoningBlock("a"))[:-8]):
        assert unpack(text) in (None, ReasoningBlock())

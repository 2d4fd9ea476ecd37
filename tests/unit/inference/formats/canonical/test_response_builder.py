import msgspec
from hypothesis import given

from tests.unit.inference.formats.canonical.response_fixtures import events_of, replies
from tollhouse.inference.formats.canonical.stream import ResponseBuilder
from tollhouse.inference.formats.canonical.types import (
    CanonicalResponse,
    ReasoningBlock,
    TextBlock,
    TextDelta,
    pack,
    unpack,
)


@given(replies(most_choices=3))
def test_the_events_of_a_response_build_it(reply: CanonicalResponse) -> None:
    builder = ResponseBuilder()
    for event in events_of(reply):
        builder.add(event)
    assert builder.build() == reply


def test_a_choice_without_a_finish_reason_failed() -> None:
    builder = ResponseBuilder()
    builder.add(TextDelta(0, 0, "a"))
    assert builder.build().choices[0].finish_reason == "error"


def test_log_probabilities_of_deltas_are_joined() -> None:
    builder = ResponseBuilder()
    for number in (1, 2):
        piece = msgspec.json.encode({"content": [{"token": number}], "refusal": None})
        builder.add(TextDelta(0, 0, "a", msgspec.Raw(piece)))
    [choice] = builder.build().choices
    assert choice.logprobs is not None
    assert msgspec.json.decode(choice.logprobs)["content"] == [{"token": 1}, {"token": 2}]


def test_the_repr_of_a_block_hides_its_content() -> None:
    assert "secret" not in repr(TextBlock("secret"))
    assert "secret" not in repr([ReasoningBlock("secret", signature="secret")])


def test_packed_reasoning_is_unpacked_unchanged() -> None:
    block = ReasoningBlock("a", is_summary=True, encrypted="x", id="rs_1", format="f")
    assert unpack(pack(block)) == block


def test_other_text_is_not_unpacked() -> None:
    for text in ("", "EqRk", "th1.", "th1.!!", "th1.e30", pack(ReasoningBlock("a"))[:-8]):
        assert unpack(text) in (None, ReasoningBlock())

from random import Random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.inference.formats.canonical.response_fixtures import calls
from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.stream import (
    BlockSequencer,
    ResponseBuilder,
    arguments_object,
)
from tollhouse.inference.formats.canonical.types import (
    BlockEnded,
    CanonicalEvent,
    ChoiceFinished,
    StreamStarted,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
)

END = ChoiceFinished(0, "tool_calls")


def ordered(*events: CanonicalEvent) -> list[CanonicalEvent]:
    sequence = BlockSequencer()
    return [out for event in events for out in sequence.feed(event)]


def call(block: int) -> ToolCallStarted:
    return ToolCallStarted(0, block, f"call_{block}", "f")


def test_a_block_ends_when_another_begins() -> None:
    a, b = TextDelta(0, 0, "a"), TextDelta(0, 1, "b")
    assert ordered(a, b, END) == [a, BlockEnded(0, 0), b, BlockEnded(0, 1), END]


def test_a_block_that_was_ended_is_not_ended_twice() -> None:
    a = TextDelta(0, 0, "a")
    assert ordered(a, BlockEnded(0, 0), END) == [a, BlockEnded(0, 0), END]


def test_interleaved_calls_are_sent_one_after_the_other() -> None:
    first, second = (
        [ToolCallDelta(0, 0, "{"), ToolCallDelta(0, 0, "}")],
        [ToolCallDelta(0, 1, "{}")],
    )
    told_ = ordered(call(0), call(1), first[0], second[0], first[1], END)
    assert told_ == [
        call(0),
        *first,
        BlockEnded(0, 0),
        call(1),
        *second,
        BlockEnded(0, 1),
        END,
    ]


JSON_PIECES = st.lists(
    st.sampled_from(["{", "}", "[", "]", '"', "\\", '\\"', '"a":', "1", ",", " ", "\xa0", "x"])
    | st.sampled_from(['{"a":"{', '\\\\"}', '{"a":{"b":[1]}}']),
    max_size=12,
)


@given(JSON_PIECES)
@example(['{"a":"\\', '"', '}"', "}"])
@example(["{}", " ", "x", "{}"])
def test_a_call_is_complete_as_soon_as_its_arguments_are_an_object(pieces: list[str]) -> None:
    sequence, arguments = BlockSequencer(), ""
    for event in (call(0), call(1)):
        sequence.feed(event)
    for piece in pieces:
        sequence.feed(ToolCallDelta(0, 0, piece))
        arguments += piece
        ended = BlockEnded(0, 0) in sequence.feed(ToolCallDelta(0, 1, "1"))
        assert ended == is_object(arguments)
        if ended:
            break


def is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        return False


def test_a_call_is_sent_at_once_if_no_other_precedes_it() -> None:
    sequence = BlockSequencer()
    assert sequence.feed(call(0)) == [call(0)]
    assert sequence.feed(ToolCallDelta(0, 0, "{}")) == [ToolCallDelta(0, 0, "{}")]
    assert sequence.feed(call(1)) == [BlockEnded(0, 0), call(1)]


def test_a_call_without_arguments_waits_for_an_end() -> None:
    sequence = BlockSequencer()
    sequence.feed(call(0))
    assert sequence.feed(call(1)) == []
    assert sequence.feed(BlockEnded(0, 0)) == [BlockEnded(0, 0), call(1)]


def test_waiting_blocks_are_sent_before_the_end() -> None:
    assert ordered(call(0), call(1), END) == [
        call(0),
        BlockEnded(0, 0),
        call(1),
        BlockEnded(0, 1),
        END,
    ]


def test_other_choices_than_the_first_are_left_out() -> None:
    assert ordered(TextDelta(1, 0, "a"), ChoiceFinished(1, "stop")) == []


def test_events_outside_of_blocks_pass_through() -> None:
    assert ordered(StreamStarted("x")) == [StreamStarted("x")]


@pytest.mark.parametrize("late", [TextDelta(0, 0, "more"), BlockEnded(0, 0)])
def test_more_output_of_an_ended_block_is_malformed(late: CanonicalEvent) -> None:
    with pytest.raises(MalformedResponse):
        ordered(TextDelta(0, 0, "a"), TextDelta(0, 1, "b"), late)


@pytest.mark.parametrize("late", [TextDelta(0, 1, "more"), BlockEnded(0, 1)])
def test_more_output_of_an_ended_waiting_block_is_malformed(late: CanonicalEvent) -> None:
    with pytest.raises(MalformedResponse):
        ordered(call(0), TextDelta(0, 1, "a"), BlockEnded(0, 1), late)


def test_events_after_the_end_are_malformed() -> None:
    with pytest.raises(MalformedResponse):
        ordered(END, TextDelta(0, 0, "a"))


@given(st.lists(calls, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_calls_with_interleaved_pieces_are_sent_completely(
    made: list[ToolCall], random: Random
) -> None:
    runs = [
        [ToolCallStarted(0, number, each.id, each.name)]
        + [ToolCallDelta(0, number, piece) for piece in each.arguments]
        for number, each in enumerate(made)
    ]
    builder = ResponseBuilder()
    for event in ordered(*merged(runs, random), END):
        builder.add(event)
    told = builder.build().choices[0].blocks
    assert sorted(map(repr_of, told)) == sorted(map(repr_of, made))


def merged(runs: list[list[CanonicalEvent]], random: Random) -> list[CanonicalEvent]:
    """Interleave the events of several runs, each in its own order."""
    owners = [number for number, run in enumerate(runs) for _ in run]
    random.shuffle(owners)
    waiting = [iter(run) for run in runs]
    return [next(waiting[owner]) for owner in owners]


def repr_of(call: object) -> str:
    assert isinstance(call, ToolCall)
    return f"{call.id} {call.name} {call.arguments}"


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [('{"a": 1}', ["a"]), ("", []), (" ", []), ("[1]", ["input"]), ("not json", ["input"])],
)
def test_arguments_that_are_not_an_object_become_one(arguments: str, keys: list[str]) -> None:
    assert list(arguments_object(arguments)) == keys

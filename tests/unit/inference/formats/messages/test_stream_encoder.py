"""Encoding canonical streams and responses in the messages format."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.stream_checks.messages import (
    CheckedStream,
    check_stream,
    check_usage,
)
from tests.unit.inference.formats.messages.conversations import tellings
from tests.unit.inference.formats.messages.samples import CHARGE, CUT, IDENTITY, USED, request
from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.translation import TranslationSource
from tollhouse.inference.formats.canonical.types import (
    ANTHROPIC,
    OPENAI,
    Block,
    BlockEnded,
    CanonicalEvent,
    CanonicalResponse,
    Choice,
    ChoiceFinished,
    ReasoningBlock,
    ReasoningDelta,
    ReasoningSignature,
    RefusalBlock,
    RefusalDelta,
    StreamStarted,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    pack,
)
from tollhouse.inference.formats.messages.client_response import (
    MESSAGES_CLIENT,
    MessagesStreamEncoder,
)
from tollhouse.kernel.errors import Bug

SOURCE = TranslationSource(request(), MESSAGES_CLIENT)
STOP = ChoiceFinished(0, "stop")


def new_encoder() -> MessagesStreamEncoder:
    return MessagesStreamEncoder(SOURCE, IDENTITY)


def seen(*events: CanonicalEvent) -> CheckedStream:
    encoder = new_encoder()
    return check_stream(b"".join(map(encoder.write, events)) + encoder.end(CHARGE))


def rendered(*blocks: Block, **fields: Any) -> dict[str, Any]:
    choice = Choice(blocks, fields.pop("finish_reason", "stop"), **fields)
    return json.loads(
        MESSAGES_CLIENT.render_response(SOURCE, CanonicalResponse((choice,)), IDENTITY, CHARGE)
    )


def test_message_start_is_sent_with_the_first_event() -> None:
    encoder = new_encoder()
    got = check_stream(encoder.write(StreamStarted("up-1", Usage(input_tokens=5))), whole=False)
    assert got.message is not None
    assert (got.message["id"], got.message["model"]) == ("gen-1", "acme/large")
    assert got.message["usage"]["input_tokens"] == 5
    assert encoder.write(StreamStarted("up-2")) == b""


def test_unknown_input_tokens_are_zero_at_the_start() -> None:
    message = seen(TextDelta(0, 0, "a"), STOP).message or {}
    assert message["usage"]["input_tokens"] == 0


def test_the_end_has_the_final_usage_and_its_cost() -> None:
    end = seen(TextDelta(0, 0, "a"), STOP, UsageReported(Usage(output_tokens=99))).last or {}
    assert end["usage"]["output_tokens"] == USED.output_tokens
    assert end["usage"]["cost"] == pytest.approx(24e-9)


@pytest.mark.parametrize(
    ("finished", "reason", "sequence"),
    [
        (ChoiceFinished(0, "stop"), "end_turn", None),
        (ChoiceFinished(0, "stop", stop_sequence="END"), "stop_sequence", "END"),
        (ChoiceFinished(0, "length"), "max_tokens", None),
        (ChoiceFinished(0, "tool_calls", stop_sequence="END"), "tool_use", None),
        (ChoiceFinished(0, "content_filter"), "refusal", None),
        (ChoiceFinished(0, "error"), None, None),
    ],
)
def test_the_stop_reason_is_rendered(finished: ChoiceFinished, reason: Any, sequence: Any) -> None:
    expected = {
        "stop_reason": reason,
        "stop_sequence": sequence,
        "stop_details": None,
        "container": None,
    }
    assert (seen(finished).last or {})["delta"] == expected
    whole = rendered(finish_reason=finished.finish_reason, stop_sequence=finished.stop_sequence)
    assert {name: whole[name] for name in expected} == expected


def test_a_refusal_becomes_text_with_a_refusal_stop_reason() -> None:
    got = seen(RefusalDelta(0, 0, "No."), STOP)
    assert got.text == "No."
    assert (got.last or {})["delta"]["stop_reason"] == "refusal"
    whole = rendered(RefusalBlock("No."))
    assert whole["content"] == [{"type": "text", "text": "No."}]
    assert whole["stop_reason"] == "refusal"


def test_interleaved_calls_are_sent_one_after_the_other() -> None:
    got = seen(
        ToolCallStarted(0, 0, "a", "look"),
        ToolCallStarted(0, 1, "b", "wait"),
        ToolCallDelta(0, 0, "{"),
        ToolCallDelta(0, 1, "{}"),
        ToolCallDelta(0, 0, "}"),
        ChoiceFinished(0, "tool_calls"),
    )
    assert [block["id"] for block in got.blocks] == ["a", "b"]
    assert [text["partial_json"] for text in got.texts] == ["{}", "{}"]


def test_an_empty_piece_opens_no_block() -> None:
    assert seen(TextDelta(0, 0, ""), ReasoningDelta(0, 1, ""), STOP).blocks == []
    assert rendered(TextBlock(""))["content"] == []


def test_only_the_first_choice_is_shown() -> None:
    got = seen(TextDelta(1, 0, "b"), TextDelta(0, 0, "a"), ChoiceFinished(1, "length"), STOP)
    assert got.text == "a"


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (
            ReasoningBlock(text="Hm.", signature="s", format=ANTHROPIC),
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        ),
        (
            ReasoningBlock(text="Hm.", format=ANTHROPIC),
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
        ),
        (
            ReasoningBlock(encrypted="e", format=ANTHROPIC),
            {"type": "redacted_thinking", "data": "e"},
        ),
    ],
)
def test_native_reasoning_stays_native(block: ReasoningBlock, shown: dict[str, str]) -> None:
    assert rendered(block)["content"] == [shown]


@pytest.mark.parametrize(
    "block",
    [
        ReasoningBlock(text="Hm."),
        ReasoningBlock(text="Hm.", is_summary=True, encrypted="e", id="rs_1", format=OPENAI),
        ReasoningBlock(encrypted="e", format=OPENAI),
    ],
)
def test_other_providers_reasoning_is_packed_into_the_signature(block: ReasoningBlock) -> None:
    shown = {"type": "thinking", "thinking": block.text, "signature": pack(block)}
    assert rendered(block)["content"] == [shown]


def test_a_signature_alone_is_a_block() -> None:
    got = seen(
        ReasoningSignature(0, 0, encrypted="e", format=ANTHROPIC), TextDelta(0, 1, "a"), STOP
    )
    assert got.blocks[0] == {"type": "redacted_thinking", "data": "e"}
    got = seen(ReasoningSignature(0, 0, encrypted="e", format=OPENAI), TextDelta(0, 1, "a"), STOP)
    packed = pack(ReasoningBlock(encrypted="e", format=OPENAI))
    assert got.texts[0] == {"signature": packed}
    assert got.text == "a"


def test_arguments_that_are_not_an_object_become_one() -> None:
    content = rendered(ToolCall("t", "look", "free"), ToolCall("u", "wait", ""))["content"]
    assert [block["input"] for block in content] == [{"input": "free"}, {}]


def test_a_complete_response_has_every_required_field() -> None:
    got = rendered(TextBlock("a"))
    assert (got["id"], got["type"], got["role"]) == ("gen-1", "message", "assistant")
    assert (got["model"], got["provider"]) == ("acme/large", "Acme")
    check_usage(got["usage"])
    assert got["usage"]["cost_details"]["upstream_inference_cost"] is None


@pytest.mark.parametrize(
    ("tier", "shown"), [("default", "standard"), ("priority", "priority"), ("flex", None)]
)
def test_the_service_tier_has_the_formats_name(tier: str, shown: str | None) -> None:
    reply = CanonicalResponse((Choice((), "stop"),), service_tier=tier)
    assert (
        json.loads(MESSAGES_CLIENT.render_response(SOURCE, reply, IDENTITY, CHARGE))["usage"][
            "service_tier"
        ]
        == shown
    )


# Legality


def test_arguments_without_a_call_are_left_out() -> None:
    assert (
        seen(ToolCallDelta(0, 0, "{}"), TextDelta(0, 1, "a"), ToolCallDelta(0, 1, "{}")).text == "a"
    )


@pytest.mark.parametrize(
    "events",
    [
        [TextDelta(0, 0, "a"), BlockEnded(0, 0), TextDelta(0, 0, "b")],
        [STOP, TextDelta(0, 0, "a")],
        [STOP, STOP],
    ],
)
def test_events_after_the_end_are_malformed(events: list[CanonicalEvent]) -> None:
    *before, after = events
    encoder = new_encoder()
    written = b"".join(map(encoder.write, before))
    with pytest.raises(MalformedResponse):
        encoder.write(after)
    assert check_stream(written + encoder.fail(CUT)).error is not None


def test_a_failure_before_the_first_event_is_a_legal_stream() -> None:
    error = check_stream(new_encoder().fail(CUT)).error
    assert error is not None
    assert error["request_id"] == "gen-1"


def test_an_end_before_the_first_event_is_a_legal_stream() -> None:
    assert check_stream(new_encoder().end(CHARGE)).blocks == []


def test_ending_closes_open_and_waiting_blocks() -> None:
    got = seen(ToolCallStarted(0, 0, "a", "look"), ToolCallDelta(0, 0, "{"), TextDelta(0, 1, "b"))
    assert [block["type"] for block in got.blocks] == ["tool_use", "text"]


def test_a_stream_ends_once() -> None:
    encoder = new_encoder()
    encoder.end(CHARGE)
    with pytest.raises(Bug):
        encoder.fail(CUT)
    with pytest.raises(Bug):
        encoder.end(CHARGE)


@settings(max_examples=40)
@given(tellings(), st.data())
def test_a_stream_cut_after_any_event_is_legal(telling: Any, data: Any) -> None:
    events = telling[1][: data.draw(st.integers(0, len(telling[1])))]
    failing = new_encoder()
    failed = check_stream(b"".join(map(failing.write, events)) + failing.fail(CUT))
    assert failed.error is not None
    assert seen(*events).last is not None


pieces = st.sampled_from(["", "a", "{", "}"])
anything = st.integers(0, 2).flatmap(
    lambda block: (
        st.sampled_from(
            [
                StreamStarted(),
                TextDelta(1, block, "b"),
                ReasoningDelta(0, block, "a"),
                ReasoningSignature(0, block, format=ANTHROPIC),
                ReasoningSignature(0, block, encrypted="e", format=OPENAI),
                RefusalDelta(0, block, "a"),
                ToolCallStarted(0, block, "t", "look"),
                BlockEnded(0, block),
                UsageReported(USED),
                STOP,
            ]
        )
        | pieces.map(lambda piece: TextDelta(0, block, piece))
        | pieces.map(lambda piece: ToolCallDelta(0, block, piece))
    )
)


@settings(max_examples=100)
@given(st.lists(anything, max_size=10))
def test_any_sequence_of_events_gives_a_legal_stream(events: list[CanonicalEvent]) -> None:
    encoder = new_encoder()
    out: list[bytes] = []
    try:
        out.extend(map(encoder.write, events))
    except MalformedResponse:
        check_stream(b"".join([*out, encoder.fail(CUT)]))
    else:
        check_stream(b"".join([*out, encoder.end(CHARGE)]))

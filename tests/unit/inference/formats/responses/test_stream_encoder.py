"""Encoding canonical events as a responses stream."""

import json
from typing import Any

import pytest

from tests.support.stream_checks.responses import (
    CheckedStream,
    check_stream,
)
from tests.unit.inference.formats.responses.response_fixtures import (
    CUT,
    IDENTITY,
    SOURCE,
    charge,
    reply,
    request,
    written,
)
from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.translation import TranslationSource
from tollhouse.inference.formats.canonical.types import (
    ANTHROPIC,
    OPENAI,
    BlockEnded,
    CanonicalEvent,
    ChoiceFinished,
    ReasoningBlock,
    ReasoningDelta,
    ReasoningSignature,
    RefusalDelta,
    StreamStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    unpack,
)
from tollhouse.inference.formats.responses.client_stream import RESPONSES_CLIENT
from tollhouse.inference.formats.wire import raw
from tollhouse.kernel.errors import Bug, Invalid

STOP = ChoiceFinished(0, "stop")
OPENING = ["created", "in_progress"]


def seen(*events: CanonicalEvent) -> CheckedStream:
    return check_stream(written(*events))


def inner(*events: CanonicalEvent) -> list[str]:
    """Return the types of all events except the first two and the last."""
    types = seen(*events).types
    assert types[:2] == OPENING
    return types[2:-1]


def output(*events: CanonicalEvent) -> list[dict[str, Any]]:
    return seen(*events).response["output"]


def test_text_becomes_a_message_with_one_part() -> None:
    assert inner(StreamStarted("up-1"), TextDelta(0, 0, "Hel"), TextDelta(0, 0, "lo"), STOP) == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]


def test_consecutive_text_and_refusals_are_one_message() -> None:
    (item,) = output(TextDelta(0, 0, "a"), RefusalDelta(0, 1, "b"), TextDelta(0, 2, "c"), STOP)
    assert item["content"] == [
        {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "b"},
        {"type": "output_text", "text": "c", "annotations": [], "logprobs": []},
    ]


def test_text_after_another_item_is_a_new_message() -> None:
    told = (TextDelta(0, 0, "a"), ReasoningDelta(0, 1, "b"), TextDelta(0, 2, "c"), STOP)
    items = output(*told)
    assert [item["type"] for item in items] == ["message", "reasoning", "message"]
    assert [item["id"] for item in items] == ["msg_gen-1_0", "rs_gen-1_1", "msg_gen-1_2"]
    assert seen(*told).response["output_text"] == "ac"


def test_log_probabilities_are_sent_with_their_text() -> None:
    token = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    logprobs = raw({"content": [token], "refusal": None})
    (item,) = output(TextDelta(0, 0, "a", logprobs), STOP)
    assert item["content"][0]["logprobs"] == [token]


def test_a_summary_has_its_own_events() -> None:
    told = [
        ReasoningDelta(0, 0, "a", is_summary=True),
        ReasoningSignature(0, 0, format=OPENAI),
        STOP,
    ]
    assert inner(*told) == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    assert output(*told)[0]["summary"] == [{"type": "summary_text", "text": "a"}]


def test_reasoning_text_is_content() -> None:
    told = [ReasoningDelta(0, 0, "a"), STOP]
    assert inner(*told) == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
    ]
    (item,) = output(*told)
    assert (item["summary"], item["content"]) == ([], [{"type": "reasoning_text", "text": "a"}])


def test_another_providers_signature_is_packed() -> None:
    (item,) = output(
        ReasoningDelta(0, 0, "a"), ReasoningSignature(0, 0, signature="s", format=ANTHROPIC), STOP
    )
    assert unpack(item["encrypted_content"]) == ReasoningBlock("a", signature="s", format=ANTHROPIC)


def test_openais_encrypted_content_is_native_if_its_id_was_sent() -> None:
    proof = ReasoningSignature(0, 0, encrypted="gA", id="rs_1", format=OPENAI)
    (alone,) = output(proof, STOP)
    assert (alone["id"], alone["encrypted_content"]) == ("rs_1", "gA")
    (late,) = output(ReasoningDelta(0, 0, "a", is_summary=True), proof, STOP)
    packed = unpack(late["encrypted_content"])
    assert packed is not None
    assert (packed.id, packed.encrypted) == ("rs_1", "gA")


def test_arguments_are_streamed_as_they_arrive() -> None:
    told = [
        ToolCallStarted(0, 0, "c1", "get_weather"),
        ToolCallDelta(0, 0, '{"a"'),
        ToolCallDelta(0, 0, ":1}"),
        ChoiceFinished(0, "tool_calls"),
    ]
    assert inner(*told) == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    (item,) = output(*told)
    assert (item["call_id"], item["arguments"], item["status"]) == ("c1", '{"a":1}', "completed")


def test_a_call_without_arguments_has_an_empty_object() -> None:
    (item,) = output(ToolCallStarted(0, 0, "c1", "get_weather"), STOP)
    assert item["arguments"] == "{}"


def test_the_input_of_a_freeform_call_is_unwrapped() -> None:
    told = [
        ToolCallStarted(0, 0, "c1", "apply_patch"),
        ToolCallDelta(0, 0, '{"input":"a\\n"}'),
        STOP,
    ]
    assert inner(*told) == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    assert output(*told)[0]["input"] == "a\n"


@pytest.mark.parametrize("odd", ["a\n", '{"patch":"a"}', '{"input":5}', "[1]"])
def test_a_freeform_tool_gets_the_raw_arguments_if_they_have_no_input(
    odd: str,
) -> None:
    (item,) = output(ToolCallStarted(0, 0, "c1", "apply_patch"), ToolCallDelta(0, 0, odd), STOP)
    assert item["input"] == odd


def test_interleaved_calls_are_sent_one_after_the_other() -> None:
    items = output(
        ToolCallStarted(0, 0, "c1", "get_weather"),
        ToolCallStarted(0, 1, "c2", "get_weather"),
        ToolCallDelta(0, 1, "{}"),
        ToolCallDelta(0, 0, '{"a":1}'),
        ChoiceFinished(0, "tool_calls"),
    )
    assert [(item["call_id"], item["arguments"]) for item in items] == [
        ("c1", '{"a":1}'),
        ("c2", "{}"),
    ]


@pytest.mark.parametrize(
    ("finish_reason", "status", "details"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
        ("error", "failed", None),
    ],
)
def test_each_finish_reason_has_its_status(finish_reason: Any, status: str, details: Any) -> None:
    shown = seen(TextDelta(0, 0, "a"), ChoiceFinished(0, finish_reason)).response
    assert (shown["status"], shown["incomplete_details"]) == (status, details)


def test_the_truncated_item_is_incomplete() -> None:
    items = output(ReasoningDelta(0, 0, "a"), TextDelta(0, 1, "b"), ChoiceFinished(0, "length"))
    assert [item["status"] for item in items] == ["completed", "incomplete"]


def test_other_choices_are_left_out() -> None:
    told = (TextDelta(0, 0, "a"), TextDelta(1, 0, "b"), STOP, ChoiceFinished(1, "length"))
    shown = seen(*told).response
    assert (shown["output_text"], shown["status"]) == ("a", "completed")


def test_the_usage_is_that_of_the_charge() -> None:
    usage = seen(STOP, UsageReported(charge().usage)).response["usage"]
    assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) == (19, 4)


def test_the_end_of_an_unknown_block_is_ignored() -> None:
    assert inner(BlockEnded(0, 3), STOP) == []


def test_a_stream_without_a_finish_reason_fails_legally() -> None:
    stream = seen(TextDelta(0, 0, "a"))
    assert stream.failed
    assert stream.types[-2] == "output_item.done"


def test_a_failure_before_the_first_event_is_a_legal_stream() -> None:
    stream = check_stream(RESPONSES_CLIENT.stream_encoder(SOURCE, IDENTITY).fail(CUT))
    assert stream.types == [*OPENING, "failed"]
    assert stream.response["error_type"] == "provider_unavailable"


def test_events_after_the_end_are_malformed_and_the_client_gets_a_legal_end() -> None:
    encoder = RESPONSES_CLIENT.stream_encoder(SOURCE, IDENTITY)
    begun = encoder.write(TextDelta(0, 0, "a")) + encoder.write(BlockEnded(0, 0))
    with pytest.raises(MalformedResponse):
        encoder.write(TextDelta(0, 0, "b"))
    assert check_stream(begun + encoder.fail(CUT)).failed


def test_arguments_without_a_call_are_malformed_and_the_client_gets_a_legal_end() -> None:
    encoder = RESPONSES_CLIENT.stream_encoder(SOURCE, IDENTITY)
    begun = encoder.write(TextDelta(0, 0, "a"))
    with pytest.raises(MalformedResponse):
        encoder.write(ToolCallDelta(0, 1, "{}"))
    assert check_stream(begun + encoder.fail(CUT)).failed


def test_a_stream_ends_once() -> None:
    encoder = RESPONSES_CLIENT.stream_encoder(SOURCE, IDENTITY)
    encoder.end(charge())
    with pytest.raises(Bug):
        encoder.fail(Invalid("no"))


def test_the_message_of_a_bug_is_masked() -> None:
    broken = RESPONSES_CLIENT.stream_encoder(SOURCE, IDENTITY).fail(Bug("secret"))
    assert b"secret" not in broken
    assert json.loads(broken.split(b"data: ")[-2])["response"]["error"]["code"] == "server_error"


@pytest.mark.parametrize("summary", ["auto", "concise", "detailed", "none", None])
def test_reasoning_is_rendered_as_a_summary_if_one_is_requested(summary: str | None) -> None:
    source = TranslationSource(request(reasoning={"summary": summary}), RESPONSES_CLIENT)
    thought = ReasoningBlock("Hm", signature="s", format=ANTHROPIC)
    told = (
        ReasoningDelta(0, 0, "Hm"),
        ReasoningSignature(0, 0, signature="s", format=ANTHROPIC),
        STOP,
    )
    streamed = check_stream(written(*told, source=source))
    whole = json.loads(RESPONSES_CLIENT.render_response(source, reply(thought), IDENTITY, charge()))
    asked = summary not in {"none", None}
    assert ("reasoning_summary_text.delta" in streamed.types) is asked
    for item in (streamed.response["output"][0], whole["output"][0]):
        shown = item["summary"] if asked else item["content"]
        kind = "summary_text" if asked else "reasoning_text"
        assert shown == [{"type": kind, "text": "Hm"}]
        assert bool(item["summary"]) is asked
        # What comes back from the client is what the model thought.
        assert unpack(item["encrypted_content"]) == thought

"""A stream in no one's format, as a client gets it."""

import json
from typing import Any

import pytest

from tests.unit.inference.formats.responses.response_fixtures import (
    CUT,
    IDENTITY,
    LISTENER,
    charge,
    reply,
    request,
    written,
)
from tests.unit.inference.formats.responses.responses_stream_checks import (
    CheckedStream,
    check_stream,
)
from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.blocks import ReasoningBlock
from tollhouse.inference.formats.canonical.events import (
    BlockEnded,
    CanonicalEvent,
    ChoiceFinished,
    ReasoningDelta,
    ReasoningSignature,
    RefusalDelta,
    StreamStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from tollhouse.inference.formats.canonical.reasoning import ANTHROPIC, OPENAI, unpack
from tollhouse.inference.formats.raw_json import raw
from tollhouse.inference.formats.responses.client_format import ResponsesClientFormat
from tollhouse.kernel.errors import Bug, Invalid

STOP = ChoiceFinished(0, "stop")
OPENING = ["created", "in_progress"]


def seen(*events: CanonicalEvent) -> CheckedStream:
    return check_stream(written(*events))


def inner(*events: CanonicalEvent) -> list[str]:
    """Return the types of all events but the first two and the last."""
    types = seen(*events).types
    assert types[:2] == OPENING
    return types[2:-1]


def output(*events: CanonicalEvent) -> list[dict[str, Any]]:
    return seen(*events).response["output"]


def test_a_text_is_a_message_with_a_part() -> None:
    assert inner(StreamStarted("up-1"), TextDelta(0, 0, "Hel"), TextDelta(0, 0, "lo"), STOP) == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]


def test_texts_and_refusals_in_a_row_are_one_message() -> None:
    (item,) = output(TextDelta(0, 0, "a"), RefusalDelta(0, 1, "b"), TextDelta(0, 2, "c"), STOP)
    assert item["content"] == [
        {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "b"},
        {"type": "output_text", "text": "c", "annotations": [], "logprobs": []},
    ]


def test_a_text_after_something_else_is_another_message() -> None:
    told = (TextDelta(0, 0, "a"), ReasoningDelta(0, 1, "b"), TextDelta(0, 2, "c"), STOP)
    items = output(*told)
    assert [item["type"] for item in items] == ["message", "reasoning", "message"]
    assert [item["id"] for item in items] == ["msg_gen-1_0", "rs_gen-1_1", "msg_gen-1_2"]
    assert seen(*told).response["output_text"] == "ac"


def test_log_probabilities_are_shown_with_their_text() -> None:
    token = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    logprobs = raw({"content": [token], "refusal": None})
    (item,) = output(TextDelta(0, 0, "a", logprobs), STOP)
    assert item["content"][0]["logprobs"] == [token]


def test_a_summary_has_events_of_its_own() -> None:
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


def test_thoughts_are_content() -> None:
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


def test_another_providers_proof_is_packed() -> None:
    (item,) = output(
        ReasoningDelta(0, 0, "a"), ReasoningSignature(0, 0, signature="s", format=ANTHROPIC), STOP
    )
    assert unpack(item["encrypted_content"]) == ReasoningBlock("a", signature="s", format=ANTHROPIC)


def test_openais_proof_is_native_where_its_id_could_be_shown() -> None:
    proof = ReasoningSignature(0, 0, encrypted="gA", id="rs_1", format=OPENAI)
    (alone,) = output(proof, STOP)
    assert (alone["id"], alone["encrypted_content"]) == ("rs_1", "gA")
    (late,) = output(ReasoningDelta(0, 0, "a", is_summary=True), proof, STOP)
    packed = unpack(late["encrypted_content"])
    assert packed is not None
    assert (packed.id, packed.encrypted) == ("rs_1", "gA")


def test_a_calls_arguments_come_as_they_are_written() -> None:
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


def test_the_text_for_a_tool_is_taken_out_of_the_object() -> None:
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
def test_a_tool_that_takes_a_text_gets_all_that_came_where_there_is_no_such_object(
    odd: str,
) -> None:
    (item,) = output(ToolCallStarted(0, 0, "c1", "apply_patch"), ToolCallDelta(0, 0, odd), STOP)
    assert item["input"] == odd


def test_calls_that_overlap_come_one_after_the_other() -> None:
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
def test_each_way_to_end_is_said(finish_reason: Any, status: str, details: Any) -> None:
    shown = seen(TextDelta(0, 0, "a"), ChoiceFinished(0, finish_reason)).response
    assert (shown["status"], shown["incomplete_details"]) == (status, details)


def test_the_item_in_which_the_model_was_cut_off_is_incomplete() -> None:
    items = output(ReasoningDelta(0, 0, "a"), TextDelta(0, 1, "b"), ChoiceFinished(0, "length"))
    assert [item["status"] for item in items] == ["completed", "incomplete"]


def test_other_choices_are_left_out() -> None:
    told = (TextDelta(0, 0, "a"), TextDelta(1, 0, "b"), STOP, ChoiceFinished(1, "length"))
    shown = seen(*told).response
    assert (shown["output_text"], shown["status"]) == ("a", "completed")


def test_the_usage_is_that_of_the_charge() -> None:
    usage = seen(STOP, UsageReported(charge().usage)).response["usage"]
    assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) == (19, 4)


def test_the_end_of_a_block_that_never_began_is_nothing() -> None:
    assert inner(BlockEnded(0, 3), STOP) == []


def test_a_stream_that_never_finished_has_failed_and_is_legal() -> None:
    stream = seen(TextDelta(0, 0, "a"))
    assert stream.failed
    assert stream.types[-2] == "output_item.done"


def test_a_failure_before_the_first_event_is_a_legal_stream() -> None:
    stream = check_stream(LISTENER.stream_encoder(IDENTITY).fail(CUT))
    assert stream.types == [*OPENING, "failed"]
    assert stream.response["error_type"] == "provider_unavailable"


def test_what_goes_on_after_its_end_is_unreadable_and_the_client_gets_a_legal_end() -> None:
    writer = LISTENER.stream_encoder(IDENTITY)
    begun = writer.write(TextDelta(0, 0, "a")) + writer.write(BlockEnded(0, 0))
    with pytest.raises(MalformedResponse):
        writer.write(TextDelta(0, 0, "b"))
    assert check_stream(begun + writer.fail(CUT)).failed


def test_arguments_without_a_call_are_unreadable_and_the_client_gets_a_legal_end() -> None:
    writer = LISTENER.stream_encoder(IDENTITY)
    begun = writer.write(TextDelta(0, 0, "a"))
    with pytest.raises(MalformedResponse):
        writer.write(ToolCallDelta(0, 1, "{}"))
    assert check_stream(begun + writer.fail(CUT)).failed


def test_a_stream_ends_once() -> None:
    writer = LISTENER.stream_encoder(IDENTITY)
    writer.end(charge())
    with pytest.raises(Bug):
        writer.fail(Invalid("no"))


def test_a_bugs_text_is_never_shown() -> None:
    broken = LISTENER.stream_encoder(IDENTITY).fail(Bug("secret"))
    assert b"secret" not in broken
    assert json.loads(broken.split(b"data: ")[-2])["response"]["error"]["code"] == "server_error"


@pytest.mark.parametrize("summary", ["auto", "concise", "detailed", "none", None])
def test_thoughts_are_shown_as_a_summary_where_one_is_asked_for(summary: str | None) -> None:
    listener = ResponsesClientFormat(request(reasoning={"summary": summary}))
    thought = ReasoningBlock("Hm", signature="s", format=ANTHROPIC)
    told = (
        ReasoningDelta(0, 0, "Hm"),
        ReasoningSignature(0, 0, signature="s", format=ANTHROPIC),
        STOP,
    )
    streamed = check_stream(written(*told, listener=listener))
    whole = json.loads(listener.render_response(reply(thought), IDENTITY, charge()))
    asked = summary not in {"none", None}
    assert ("reasoning_summary_text.delta" in streamed.types) is asked
    for item in (streamed.response["output"][0], whole["output"][0]):
        shown = item["summary"] if asked else item["content"]
        kind = "summary_text" if asked else "reasoning_text"
        assert shown == [{"type": kind, "text": "Hm"}]
        assert bool(item["summary"]) is asked
        # What comes back from the client is what the model thought.
        assert unpack(item["encrypted_content"]) == thought

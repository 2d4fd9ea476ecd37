import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chat_grammar import check_stream
from tests.support.fake_chat_gateway import (
    DONE,
    KEEP_ALIVE,
    ChunkBuilder,
    error_body,
    form,
    permission,
    reasoning,
    stream,
)
from tollhouse.cli.interns.chat_stream import (
    ChatEvent,
    ChatQuestion,
    ClosingEvent,
    FormField,
    FormQuestion,
    InternChatDecoder,
    InvalidStream,
    PermissionQuestion,
    ReasoningEvent,
    RunErrorEvent,
    TextEvent,
)


def read(data: bytes) -> tuple[list[ChatEvent], bool]:
    reader = InternChatDecoder()
    return reader.feed(data), reader.ended


def whole(*pieces: Any, **further: Any) -> bytes:
    return b"".join(stream(*pieces, **further).pieces)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "further",
    [
        {},
        {"usage": None},
        {"ask": permission("c", None, ["allow_once"])},
        {"ask": form("c", {"name": "n", "type": "integer"}, {"name": "t", "type": "string"})},
        {"error": error_body(502, "turn_failed", "No.", retryable=True), "session_id": None},
    ],
    ids=["said", "no usage", "permission", "form", "error"],
)
def test_what_clients_are_tested_with_is_legal(further: dict[str, Any]) -> None:
    told = check_stream(whole(reasoning("hm"), KEEP_ALIVE, "Hi", **further))
    assert (told.reasoning, told.content, told.keep_alives) == ("hm", "Hi", 1)


def test_a_stream_is_what_was_said_and_a_closing() -> None:
    events, ended = read(whole(reasoning("hm"), "Hi", usage=None))
    assert events == [
        ReasoningEvent("hm"),
        TextEvent("Hi"),
        ClosingEvent("session-of-the-server", None),
    ]
    assert ended


def test_a_stream_without_its_end_has_not_ended() -> None:
    assert not read(whole("Hi").removesuffix(DONE))[1]


def test_what_follows_the_end_is_passed_over() -> None:
    assert read(DONE + ChunkBuilder().delta(content="more") + b"data: {garbage\n\n") == ([], True)


@given(cuts=st.lists(st.integers(0, 3000), max_size=8))
def test_it_does_not_matter_where_the_bytes_were_cut(cuts: list[int]) -> None:
    data = whole("Hé ", KEEP_ALIVE, reasoning("…"), "x", ask=permission())
    reader, events, start = InternChatDecoder(), list[ChatEvent](), 0
    for cut in [*sorted(cuts), len(data)]:
        events += reader.feed(data[start:cut])
        start = max(start, cut)
    assert events == read(data)[0]


def test_a_permission_has_what_may_be_answered() -> None:
    (asked, closing), _ = read(whole(ask=permission("c", None, ["allow_once"]), session_id=None))
    assert isinstance(asked, ChatQuestion)
    assert asked.call_id == "c"
    assert asked.asks == PermissionQuestion(["allow_once"], None)
    assert closing == ClosingEvent(None, None)


def test_a_form_has_its_fields() -> None:
    field = {"name": "n", "type": "integer", "required": True, "options": [1, 2], "later": 1}
    asked = read(whole(ask=form("c", field, message="How many?")))[0][0]
    assert isinstance(asked, ChatQuestion)
    fields = [FormField("n", "integer", required=True, options=[1, 2])]
    assert asked.asks == FormQuestion("How many?", fields)


def test_an_error_has_its_reason() -> None:
    error = error_body(410, "run_ended", "It ended.")
    (event, _), ended = read(whole(error=error))
    assert event == RunErrorEvent(410, "It ended.", "run_ended", retryable=False)
    assert ended


def test_an_error_finish_that_says_nothing_is_a_failure_too() -> None:
    assert isinstance(read(ChunkBuilder().delta("error"))[0][0], RunErrorEvent)


def test_unknown_fields_and_finishes_are_passed_over() -> None:
    chunk = {"choices": [{"delta": {"content": "a", "audio": {}}, "finish_reason": "new"}], "x": 1}
    assert read(f"data: {json.dumps(chunk)}\n\n".encode())[0] == [TextEvent("a")]


@pytest.mark.parametrize(
    "data",
    [
        b"data: {\n\n",
        b"data: []\n\n",
        b"data: \xff\n\n",
        b'data: {"choices": 1}\n\n',
        b'data: {"choices": [], "usage": {"prompt_tokens": "x"}}\n\n',
    ],
    ids=["no-json", "a-list", "no-utf-8", "no-choices", "usage"],
)
def test_garbage_is_garbled(data: bytes) -> None:
    with pytest.raises(InvalidStream):
        read(data)


@pytest.mark.parametrize("arguments", ["", "{}", '{"kind": "plan"}', '{"kind": "permission"}'])
def test_a_question_that_nobody_knows_is_garbled(arguments: str) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    with pytest.raises(InvalidStream):
        read(ChunkBuilder().delta(tool_calls=[call]))

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fake_chat_gateway import (
    DONE,
    KEEP_ALIVE,
    ChunkBuilder,
    permission,
    reasoning,
    stream,
)
from tollhouse.cli.interns.chat_stream import (
    ChatEvent,
    InternChatDecoder,
    InvalidStream,
    RunErrorEvent,
    TextEvent,
)


def read(data: bytes) -> tuple[list[ChatEvent], bool]:
    reader = InternChatDecoder()
    return reader.feed(data), reader.ended


def whole(*pieces: Any, **further: Any) -> bytes:
    return b"".join(stream(*pieces, **further).pieces)  # type: ignore[arg-type]


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

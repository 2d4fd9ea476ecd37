"""The checker of streams finds what is not legal; without that it would show nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.chat_grammar import DONE, TOOL, IllegalStream, check_stream

if TYPE_CHECKING:
    from collections.abc import Callable

Chunks = list[dict[str, Any]]
BASE = {
    "id": "chatcmpl-00000000-0000-4000-8000-000000000001",
    "object": "chat.completion.chunk",
    "created": 1_700_000_000,
    "model": "openrouter/intern",
}


def chunk(delta: dict[str, Any], finish: str | None = None, **beside: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**BASE, "choices": [choice], **beside}


def legal() -> Chunks:
    return [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "x"}),
        chunk({}, "stop"),
        {**BASE, "choices": [], "session_id": "s", "usage": None},
    ]


def asking() -> Chunks:
    arguments = json.dumps({"kind": "permission", "operation": None, "options": ["allow_once"]})
    function = {"name": TOOL, "arguments": arguments}
    call = {"index": 0, "id": "i", "type": "function", "function": function}
    first, _, _, final = legal()
    return [first, chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), final]


def failing(reason: str = "timeout", code: int = 504, *, retryable: bool = True) -> Chunks:
    metadata = {"reason": reason, "retryable": retryable}
    error = {"code": code, "message": "x", "metadata": metadata}
    first, said, _, final = legal()
    return [first, said, chunk({}, "error", error=error), final]


def as_bytes(chunks: Chunks, done: str = DONE) -> bytes:
    events = [*(f"data: {json.dumps(each)}" for each in chunks), done]
    return "".join(f"{each}\n\n" for each in events).encode()


@pytest.mark.parametrize("chunks", [legal(), asking(), failing()])
def test_a_legal_stream_passes(chunks: Chunks) -> None:
    assert check_stream(as_bytes(chunks)).finish == chunks[-2]["choices"][0]["finish_reason"]


BREAKS: dict[str, Callable[[Chunks], object]] = {
    "no role": lambda chunks: chunks.pop(0),
    "role twice": lambda chunks: chunks.insert(1, chunks[0]),
    "no finish": lambda chunks: chunks.pop(2),
    "no final": lambda chunks: chunks.pop(),
    "final twice": lambda chunks: chunks.append(chunks[-1]),
    "after the finish": lambda chunks: chunks.insert(3, chunks[1]),
    "empty content": lambda chunks: chunks.insert(1, chunk({"content": ""})),
    "two deltas": lambda chunks: chunks.insert(1, chunk({"content": "x", "reasoning": "y"})),
    "no delta": lambda chunks: chunks.insert(1, chunk({})),
    "another delta": lambda chunks: chunks.insert(1, chunk({"refusal": "x"})),
    "another id": lambda chunks: chunks[1].update(id=BASE["id"][:-1] + "2"),
    "another object": lambda chunks: chunks[1].update(object="chat.completion"),
    "a created that is none": lambda chunks: chunks[1].update(created=1.5),
    "no model": lambda chunks: chunks[1].update(model=None),
    "another key": lambda chunks: chunks[1].update(provider="x"),
    "another finish": lambda chunks: chunks[2]["choices"][0].update(finish_reason="length"),
    "stop as an error": lambda chunks: chunks[2]["choices"][0].update(finish_reason="error"),
    "a call that is none": lambda c: c[2]["choices"][0].update(finish_reason="tool_calls"),
    "another index": lambda chunks: chunks[1]["choices"][0].update(index=1),
    "no session": lambda chunks: chunks[-1].update(session_id=None),
    "no usage": lambda chunks: chunks[-1].pop("usage"),
    "a sum that is wrong": lambda chunks: chunks[-1].update(
        usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 3}
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_stream_is_found(name: str) -> None:
    chunks = json.loads(json.dumps(legal()))
    BREAKS[name](chunks)
    with pytest.raises(IllegalStream):
        check_stream(as_bytes(chunks))


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        as_bytes(legal(), "data: [done]"),
        as_bytes(legal()) + b"data: {}\n\n",
        as_bytes(legal())[:-1],
        b": hello\n\n" + as_bytes(legal()),
        as_bytes(legal()[:2]),
    ],
    ids=["nothing", "no done", "after done", "cut", "another comment", "no end"],
)
def test_bytes_that_are_no_stream_are_found(stream: bytes) -> None:
    with pytest.raises(IllegalStream):
        check_stream(stream)

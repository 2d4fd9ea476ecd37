"""Checks what clients rely on in a chat stream, without any code of the gateway."""

import json
from dataclasses import dataclass
from typing import Any

FINISH_REASONS = {None, "stop", "length", "tool_calls", "content_filter", "error"}


@dataclass(frozen=True)
class CheckedStream:
    """The content of a legal stream."""

    chunks: list[dict[str, Any]]
    last: dict[str, Any]
    """The usage chunk or the error chunk."""

    @property
    def failed(self) -> bool:
        return "error" in self.last

    @property
    def text(self) -> str:
        deltas = [choice["delta"] for chunk in self.chunks for choice in chunk["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)


def check_stream(stream: bytes) -> CheckedStream:
    """Check a whole stream and return its content.

    Raises:
        AssertionError: It is no legal chat stream.
    """
    *events, rest = stream.split(b"\n\n")
    assert rest == b"", "something follows the last event"
    assert all(event.startswith(b"data: ") and b"\n" not in event for event in events)
    events, behind = until_done([event.removeprefix(b"data: ") for event in events])
    *chunks, last = [json.loads(event) for event in events]
    assert behind == ([{"error": last["error"]}] if "error" in last else [])
    if "error" in last:
        assert last == chunks[-1] | {"choices": []}
        last = chunks.pop()
    for chunk in [*chunks, last]:
        _check_chunk(chunk)
        for field in ("id", "created", "model", "provider"):
            assert chunk[field] == last[field]
    for chunk in chunks:
        assert chunk["choices"]
        assert "usage" not in chunk
        assert "error" not in chunk
    _check_last(last)
    return CheckedStream(chunks, last)


def until_done(events: list[bytes]) -> tuple[list[bytes], list[Any]]:
    """Return the events before `[DONE]`, and what those behind it say."""
    done = events.index(b"[DONE]")
    return events[:done], [json.loads(event) for event in events[done + 1 :]]


def _check_chunk(chunk: dict[str, Any]) -> None:
    assert isinstance(chunk["id"], str)
    assert chunk["object"] == "chat.completion.chunk"
    assert type(chunk["created"]) is int
    assert isinstance(chunk["model"], str)
    assert isinstance(chunk.get("system_fingerprint", ""), str)
    for choice in chunk["choices"]:
        assert type(choice["index"]) is int
        assert isinstance(choice["delta"], dict)
        assert choice["finish_reason"] in FINISH_REASONS


def _check_last(last: dict[str, Any]) -> None:
    if "error" in last:
        assert next(iter(last)) == "error"
        assert "usage" not in last
        assert type(last["error"]["code"]) is int
        assert isinstance(last["error"]["message"], str)
        assert isinstance(last["error"]["metadata"]["error_type"], str)
        assert [choice["finish_reason"] for choice in last["choices"]] == ["error"]
        return
    silent = {"index": 0, "delta": {}, "finish_reason": None, "logprobs": None}
    assert last["choices"] in ([], [silent])
    usage = last["usage"]
    assert all(type(usage[f"{name}_tokens"]) is int for name in ("prompt", "completion", "total"))
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["cost"] is None or type(usage["cost"]) is float

"""Replies as OpenAI-compatible servers send them, whole and streamed."""

import json
from typing import Any

USAGE = {
    "prompt_tokens": 19,
    "completion_tokens": 10,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 3, "accepted_prediction_tokens": 0},
}


def whole(**fields: Any) -> dict[str, Any]:
    """Return OpenAI's documented reply, with other fields in place of its own."""
    return {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion",
        "created": 1741569952,
        "model": "gpt-4.1-2025-04-14",
        "choices": [choice("Hello! How can I assist you today?")],
        "usage": USAGE,
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
    } | fields


def choice(
    content: str | None, finish_reason: str | None = "stop", **message: Any
) -> dict[str, Any]:
    """Return one choice of a whole reply."""
    return {
        "index": 0,
        "message": {"role": "assistant", "content": content, "refusal": None, "annotations": []}
        | message,
        "logprobs": None,
        "finish_reason": finish_reason,
    }


def chunk(delta: dict[str, Any] | None, finish_reason: str | None = None, **fields: Any) -> bytes:
    """Return one event of a stream."""
    index = fields.pop("index", 0)
    body = {
        "id": "chatcmpl-123",
        "created": 1694268190,
        "model": "gpt-4o-mini",
        "system_fingerprint": "fp_44709d6fcb",
        "choices": []
        if delta is None
        else [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
    } | fields
    return event(body)


def event(body: object) -> bytes:
    """Return any JSON as an event."""
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


ROLE = {"role": "assistant", "content": ""}
DONE = b"data: [DONE]\n\n"
USAGE_CHUNK = chunk(None, usage=USAGE)


def _tool(**function: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": function}]}


def joined(*pieces: bytes) -> bytes:
    return b"".join(pieces)


STREAMS: dict[str, bytes] = {
    "text": joined(
        chunk(ROLE),
        chunk({"content": "Hello"}),
        chunk({"content": " w\N{LATIN SMALL LETTER O WITH DIAERESIS}rld \N{GRINNING FACE}"}),
        chunk({}, "stop"),
        USAGE_CHUNK,
        DONE,
    ),
    "tools": joined(
        chunk(ROLE | {"tool_calls": [{"index": 0, "id": "call_1", "type": "function"}]}),
        chunk(_tool(name="get_weather", arguments="")),
        chunk(_tool(arguments='{"a":')),
        chunk(_tool(arguments="1}")),
        chunk({}, "tool_calls"),
        USAGE_CHUNK,
        DONE,
    ),
    "two choices": joined(
        chunk(ROLE),
        chunk(ROLE, index=1),
        chunk({"content": "a"}),
        chunk({"content": "b"}, index=1),
        chunk({}, "stop"),
        chunk({}, "length", index=1),
        USAGE_CHUNK,
        DONE,
    ),
    "usage in the last choice": joined(
        chunk(ROLE), chunk({"content": "a"}), chunk({}, "stop", usage=USAGE), DONE
    ),
    "usage twice": joined(
        chunk({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 1}),
        chunk({}, "stop", usage=None),
        USAGE_CHUNK,
        DONE,
    ),
    "no done": joined(chunk(ROLE), chunk({"content": "a"}), chunk({}, "stop"), USAGE_CHUNK),
    "no usage": joined(chunk(ROLE), chunk({"content": "a"}), chunk({}, "stop"), DONE),
    "role only": joined(chunk(ROLE), chunk({}, "stop"), USAGE_CHUNK, DONE),
    "keep-alive comments": joined(
        b": WAITING\n\n", chunk(ROLE), b":\n\n: x\n", chunk({}, "stop"), b": y\n\n", DONE
    ),
    "fingerprint null": joined(
        chunk({"content": "a"}, system_fingerprint=None),
        chunk({}, "stop", system_fingerprint=None, service_tier=None),
        DONE,
    ),
    "carriage returns": joined(chunk(ROLE), chunk({}, "stop"), DONE).replace(b"\n", b"\r\n"),
    "an error": joined(
        chunk({"content": "a"}),
        event({"error": {"message": "The server had an error", "code": "server_error"}}),
        DONE,
    ),
    "fields left out": joined(
        event({"choices": [{"delta": {"content": "a"}}]}),
        event({"choices": [{"index": 0, "delta": {"content": "b"}}]}),
        event({"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}], "id": None}),
        event({"choices": None, "usage": USAGE}),
        DONE,
    ),
    "content in parts": joined(
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "?"}]}]}),
        chunk({"content": "a"}, "stop"),
        USAGE_CHUNK,
        DONE,
    ),
}

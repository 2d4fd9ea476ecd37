"""Provider responses, complete and streamed."""

from __future__ import annotations

import json
from typing import Any

USAGE: dict[str, Any] = {
    "input_tokens": 19,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 10,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 29,
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello!", "annotations": [], "logprobs": []}],
}
REASONING: dict[str, Any] = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
    "encrypted_content": "gAAA",
}
CALL: dict[str, Any] = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"city":"Rome"}',
}
PATCH: dict[str, Any] = {
    "id": "ctc_1",
    "type": "custom_tool_call",
    "status": "completed",
    "call_id": "call_2",
    "name": "apply_patch",
    "input": 'say "hi"',
}
SEARCH: dict[str, Any] = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"query": "?"},
}


def response(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a provider's complete response."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1741476542,
        "status": "completed",
        "model": "large-2026-01-01",
        "output": list(output),
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tools": [],
        "usage": USAGE,
        "novelty": {"kept": True},
    } | fields


def body(*output: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps(response(*output, **fields)).encode()


def event(kind: str, **fields: Any) -> bytes:
    """Return one event of a stream, with an arbitrary sequence number."""
    data = json.dumps({"type": kind, "sequence_number": 70, **fields}, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


CREATED = event("response.created", response=response(status="in_progress", usage=None))
IN_PROGRESS = event("response.in_progress", response=response(status="in_progress", usage=None))
DONE = b"data: [DONE]\n\n"


def completed(*output: dict[str, Any], **fields: Any) -> bytes:
    return event("response.completed", response=response(*output, **fields))


def message_events(index: int = 0) -> list[bytes]:
    at = {"output_index": index, "item_id": "msg_1", "content_index": 0}
    part = MESSAGE["content"][0]
    return [
        event(
            "response.output_item.added",
            output_index=index,
            item=MESSAGE | {"status": "in_progress", "content": []},
        ),
        event("response.content_part.added", **at, part=part | {"text": ""}),
        event("response.output_text.delta", **at, delta="Hel", logprobs=[]),
        event("response.output_text.delta", **at, delta="lo!"),
        event("response.output_text.done", **at, text="Hello!", logprobs=[]),
        event("response.content_part.done", **at, part=part),
        event("response.output_item.done", output_index=index, item=MESSAGE),
    ]


def reasoning_events(index: int = 0) -> list[bytes]:
    events = [
        event(
            "response.output_item.added",
            output_index=index,
            item={"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gA"},
        )
    ]
    for number, part in enumerate(REASONING["summary"]):
        at = {"output_index": index, "item_id": "rs_1", "summary_index": number}
        text = part["text"]
        events += [
            event("response.reasoning_summary_part.added", **at, part=part | {"text": ""}),
            event("response.reasoning_summary_text.delta", **at, delta=text),
            event("response.reasoning_summary_text.done", **at, text=text),
            event("response.reasoning_summary_part.done", **at, part=part),
        ]
    return [*events, event("response.output_item.done", output_index=index, item=REASONING)]


def call_events(index: int = 0) -> list[bytes]:
    at = {"output_index": index, "item_id": "fc_1"}
    name = "response.function_call_arguments"
    return [
        event("response.output_item.added", output_index=index, item=CALL | {"arguments": ""}),
        event(f"{name}.delta", **at, delta='{"city":'),
        event(f"{name}.delta", **at, delta='"Rome"}'),
        event(f"{name}.done", **at, arguments=CALL["arguments"]),
        event("response.output_item.done", output_index=index, item=CALL),
    ]


def patch_events(index: int = 0) -> list[bytes]:
    at = {"output_index": index, "item_id": "ctc_1"}
    return [
        event("response.output_item.added", output_index=index, item=PATCH | {"input": ""}),
        event("response.custom_tool_call_input.delta", **at, delta=PATCH["input"]),
        event("response.custom_tool_call_input.done", **at, input=PATCH["input"]),
        event("response.output_item.done", output_index=index, item=PATCH),
    ]


def search_events(index: int = 0) -> list[bytes]:
    at = {"output_index": index, "item_id": "ws_1"}
    return [
        event("response.output_item.added", output_index=index, item=SEARCH),
        event("response.web_search_call.searching", **at),
        event("response.output_item.done", output_index=index, item=SEARCH),
    ]


ITEMS = {
    "text": (message_events, MESSAGE),
    "reasoning": (reasoning_events, REASONING),
    "call": (call_events, CALL),
    "patch": (patch_events, PATCH),
    "search": (search_events, SEARCH),
}


def stream_of(*names: str, **fields: Any) -> list[bytes]:
    """Return the events of a stream with these items."""
    chosen = [ITEMS[name] for name in names]
    middle = [each for at, (events, _) in enumerate(chosen) for each in events(at)]
    return [CREATED, IN_PROGRESS, *middle, completed(*(item for _, item in chosen), **fields)]


STREAMS = {
    "nothing": stream_of(),
    "text": stream_of("text"),
    "reasoning, text": stream_of("reasoning", "text"),
    "reasoning, two calls": stream_of("reasoning", "call", "patch"),
    "a server's tool": stream_of("search", "text"),
}

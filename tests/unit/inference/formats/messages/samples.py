"""Sample provider events, and shared fixtures."""

from __future__ import annotations

import json
from typing import Any

from tollhouse.accounting.types import FREE, Charge, Cost, CostState, Usage
from tollhouse.inference.formats.messages.wire import MessagesRequest, parse_request
from tollhouse.inference.types import Endpoint, ReplyIdentity
from tollhouse.kernel.errors import ProviderUnavailable

IDENTITY = ReplyIdentity("gen-1", "acme/large", "Acme", 1_700_000_000)
ENDPOINT = Endpoint(provider="acme", model="claude-sonnet-4-6", price=FREE)
USED = Usage(
    input_tokens=10,
    cache_read_tokens=3,
    cache_write_tokens=4,
    cache_write_1h_tokens=2,
    output_tokens=7,
    reasoning_tokens=5,
)
CHARGE = Charge(CostState.EXACT, USED, 24, 24, Cost(24, 10, 14))
CUT = ProviderUnavailable("Acme closed the connection.", provider_name="Acme", ambiguous=True)
USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 3,
    "cache_creation_input_tokens": 6,
    "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 2},
    "output_tokens": 7,
    "output_tokens_details": {"thinking_tokens": 5},
    "service_tier": "standard",
}


def request(**fields: Any) -> MessagesRequest:
    body = {"model": "acme/large", "messages": [{"role": "user", "content": "hello"}]} | fields
    return parse_request(json.dumps(body, ensure_ascii=False).encode())


def event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields}).encode()
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def start(**fields: Any) -> bytes:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-1",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE | {"output_tokens": 1, "output_tokens_details": None},
    }
    return event("message_start", message=message | fields)


def begin(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def add(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def stop(index: int) -> bytes:
    return event("content_block_stop", index=index)


def last(stop_reason: str | None = "end_turn", **fields: Any) -> bytes:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return event("message_delta", delta=delta, **{"usage": USAGE, **fields})


PING = event("ping")
END = event("message_stop")
SAID = [
    begin(0, "text", text=""),
    PING,
    add(0, "text_delta", text="Hello, "),
    add(0, "text_delta", text="wörld"),
    add(0, "citations_delta", citation={"type": "page_location"}),
    stop(0),
]
STREAMS = {
    "text": [start(), *SAID, last(), END],
    "tools": [
        start(),
        *SAID,
        begin(1, "tool_use", id="toolu_1", name="look", input={}),
        add(1, "input_json_delta", partial_json=""),
        add(1, "input_json_delta", partial_json='{"at": '),
        add(1, "input_json_delta", partial_json="1}"),
        stop(1),
        begin(2, "tool_use", id="toolu_2", name="wait", input={}),
        stop(2),
        last("tool_use"),
        END,
    ],
    "thoughts": [
        start(),
        begin(0, "thinking", thinking="", signature=""),
        add(0, "thinking_delta", thinking="Hm. "),
        add(0, "thinking_delta", thinking="Yes."),
        add(0, "signature_delta", signature="c2ln"),
        stop(0),
        begin(1, "redacted_thinking", data="c2VjcmV0"),
        stop(1),
        begin(2, "text", text=""),
        add(2, "text_delta", text="Yes."),
        stop(2),
        last(),
        END,
    ],
    "server tools": [
        PING,
        start(),
        begin(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        add(0, "input_json_delta", partial_json='{"query": "x"}'),
        stop(0),
        begin(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"type": "x"}]),
        stop(1),
        begin(2, "text", text=""),
        add(2, "text_delta", text="Found."),
        add(2, "new_delta", something={"text": 1}),
        stop(2),
        event("new_event", fields=[1]),
        last(context_management={"applied_edits": []}),
        END,
    ],
    "empty": [start(), last(), END],
}


def without(sample: bytes) -> bytes:
    """Return an event's data."""
    return sample.split(b"\n")[1].removeprefix(b"data: ")

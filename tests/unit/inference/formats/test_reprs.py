"""What a request or a response says is in no repr: those reach logs, by the names of callbacks."""

import json

import pytest

from tests.support.seams.inference import FORMATS

SAID = "said in confidence"
USER = {"role": "user", "content": SAID}
CHAT = {"model": "a/b", "messages": [USER]}
REQUESTS = {
    "/chat/completions": CHAT,
    "/messages": {**CHAT, "max_tokens": 9},
    "/responses": {"model": "a/b", "input": SAID},
    "/completions": {"model": "a/b", "prompt": SAID},
    "/embeddings": {"model": "a/b", "input": SAID},
}
RESPONSES = {
    "chat/completions": {
        "id": "1",
        "choices": [{"index": 0, "message": {"content": SAID}, "finish_reason": "stop"}],
    },
    "messages": {
        "type": "message",
        "id": "1",
        "content": [{"type": "text", "text": SAID}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "responses": {
        "id": "1",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "m",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": SAID, "annotations": []}],
            }
        ],
    },
    "completions": {"id": "1", "choices": [{"text": SAID, "index": 0, "finish_reason": "stop"}]},
    "embeddings": {"data": [{"index": 0, "embedding": [0.1], "note": SAID}]},
}


@pytest.mark.parametrize("path", REQUESTS)
def test_no_repr_holds_what_was_said(path: str) -> None:
    adapters = FORMATS[path].parse(json.dumps(REQUESTS[path]).encode(), {}, b"")
    assert SAID not in repr(adapters.request)
    parsed = []
    for dialect, adapter in adapters.items():
        body = RESPONSES[str(dialect)]
        parsed.append(adapter.parse_response(json.dumps(body).encode()))
        assert SAID not in repr(adapter)
    assert parsed
    assert SAID not in repr(parsed)

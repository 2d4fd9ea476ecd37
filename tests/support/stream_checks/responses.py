"""Checks that a responses stream is legal, without any code of the gateway."""

import json
from dataclasses import dataclass, field
from typing import Any

RESPONSE_KEYS = {
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "model",
    "output",
    "error",
    "incomplete_details",
    "instructions",
    "metadata",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "parallel_tool_calls",
    "tool_choice",
    "tools",
}
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}
LIFECYCLE = {"response.created", "response.in_progress", "response.queued"} | TERMINAL
DONE_FIELD = {
    "response.output_text": "text",
    "response.refusal": "refusal",
    "response.reasoning_text": "text",
    "response.reasoning_summary_text": "text",
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}
PARTS = {
    "response.content_part": "content_index",
    "response.reasoning_summary_part": "summary_index",
}


@dataclass
class CheckedStream:
    """The content of a legal stream."""

    events: list[dict[str, Any]]

    @property
    def types(self) -> list[str]:
        return [event["type"].removeprefix("response.") for event in self.events]

    @property
    def response(self) -> dict[str, Any]:
        """The response of the terminal event."""
        return self.events[-1]["response"]

    @property
    def failed(self) -> bool:
        return self.response["status"] == "failed"


@dataclass
class _Item:
    item: dict[str, Any]
    texts: dict[tuple[str, int], str] = field(default_factory=dict)
    """The joined deltas of each text, by event name and index."""
    done: set[tuple[str, int]] = field(default_factory=set)
    parts: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    ended: set[tuple[str, int]] = field(default_factory=set)


def check_stream(stream: bytes) -> CheckedStream:
    """Return the content of a complete stream.

    Raises:
        AssertionError: The stream is not legal.
    """
    *frames, last, rest = stream.split(b"\n\n")
    assert rest == b"", "something follows the last event"
    assert last == b"data: [DONE]"
    events = [_event(frame) for frame in frames]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    types = [event["type"] for event in events]
    assert types[0] == "response.created"
    assert types.count("response.created") == 1
    assert [kind in TERMINAL for kind in types] == [False] * (len(types) - 1) + [True]
    _check_responses(events)
    _check_items(events)
    return CheckedStream(events)


def _event(frame: bytes) -> dict[str, Any]:
    name, data = frame.split(b"\n")
    event = json.loads(data.removeprefix(b"data: "))
    assert name == b"event: " + event["type"].encode()
    return event


def check_response(response: dict[str, Any]) -> None:
    """Assert that a complete response has the keys that clients require."""
    assert response.keys() >= RESPONSE_KEYS
    assert response["object"] == "response"
    assert type(response["created_at"]) is int
    assert type(response["parallel_tool_calls"]) is bool
    assert isinstance(response["tools"], list)
    assert all("parameters" in tool for tool in response["tools"] if tool["type"] == "function")
    assert (response["status"] == "failed") == (response["error"] is not None)
    assert (response["status"] == "incomplete") == (response["incomplete_details"] is not None)
    if response["status"] == "failed":
        assert isinstance(response["error"]["code"], str)
        assert isinstance(response["error"]["message"], str)
        assert isinstance(response["error_type"], str)
    elif response["status"] != "in_progress":
        _check_usage(response["usage"])


def _check_usage(usage: dict[str, Any]) -> None:
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert type(usage["input_tokens_details"]["cached_tokens"]) is int
    assert type(usage["output_tokens_details"]["reasoning_tokens"]) is int
    assert usage["cost"] is None or type(usage["cost"]) is float
    if usage["cost"] is not None:
        assert type(usage["cost_details"]["upstream_inference_input_cost"]) is float
        assert type(usage["cost_details"]["upstream_inference_output_cost"]) is float


def _check_responses(events: list[dict[str, Any]]) -> None:
    responses = [event["response"] for event in events if event["type"] in LIFECYCLE]
    for response in responses:
        check_response(response)
    assert len({(response["id"], response["model"]) for response in responses}) == 1
    assert responses[0]["output"] == []
    assert events[-1]["type"] == f"response.{responses[-1]['status']}"


def _check_items(events: list[dict[str, Any]]) -> None:
    items: dict[int, _Item] = {}
    whole: dict[int, dict[str, Any]] = {}
    for event in events:
        kind, _, step = event["type"].rpartition(".")
        if event["type"] == "response.output_item.added":
            assert event["output_index"] == len(items)
            items[event["output_index"]] = _Item(event["item"])
        elif event["type"] == "response.output_item.done":
            assert event["output_index"] not in whole
            whole[event["output_index"]] = event["item"]
            _check_whole(items[event["output_index"]], event["item"])
        elif kind in PARTS or kind in DONE_FIELD:
            assert event["output_index"] not in whole
            item = items[event["output_index"]]
            assert event["item_id"] == item.item["id"]
            _check_inside(item, kind, step, event)
    if events[-1]["type"] != "response.failed":
        assert items.keys() == whole.keys(), "an item is still open"
        assert events[-1]["response"]["output"] == [whole[index] for index in sorted(whole)]


def _check_inside(item: _Item, kind: str, step: str, event: dict[str, Any]) -> None:
    if kind in PARTS:
        part = (kind, event[PARTS[kind]])
        assert (part in item.parts) == (step == "done")
        assert part not in item.ended
        item.parts[part] = event["part"]
        if step == "done":
            item.ended.add(part)
        return
    text = (kind, event.get("content_index", event.get("summary_index", 0)))
    assert text not in item.done
    if kind.startswith("response.output_text"):
        assert isinstance(event["logprobs"], list)
    if kind not in {"response.function_call_arguments", "response.custom_tool_call_input"}:
        owner = "reasoning_summary_part" if "summary" in kind else "content_part"
        assert (f"response.{owner}", text[1]) in item.parts
        assert (f"response.{owner}", text[1]) not in item.ended
    if step == "delta":
        item.texts[text] = item.texts.get(text, "") + event["delta"]
        return
    assert step == "done"
    assert event[DONE_FIELD[kind]] == item.texts.get(text, "")
    item.done.add(text)
    if kind == "response.function_call_arguments":
        assert event["name"] == item.item["name"]


def _check_whole(item: _Item, whole: dict[str, Any]) -> None:
    """Compare a finished item with its deltas."""
    assert {name: whole[name] for name in ("id", "type")} == {
        name: item.item[name] for name in ("id", "type")
    }
    assert item.texts.keys() <= item.done, "a text is still open"
    assert item.parts.keys() == item.ended, "a part is still open"
    if whole["type"] == "function_call":
        assert whole["arguments"] == item.texts["response.function_call_arguments", 0]
    elif whole["type"] == "custom_tool_call":
        assert whole["input"] == item.texts["response.custom_tool_call_input", 0]
    elif whole["type"] == "message":
        assert whole["content"] == [part for _, part in sorted(item.parts.items())]
    elif whole["type"] == "reasoning":
        shown = [*whole["summary"], *(whole.get("content") or [])]
        assert [part["text"] for part in shown] == [*item.texts.values()]

"""Checks that a messages stream is legal, without any code of the gateway."""

import json
from dataclasses import dataclass, field
from typing import Any

DELTAS = {
    "text": {"text_delta": "text"},
    "tool_use": {"input_json_delta": "partial_json"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "redacted_thinking": {},
}
KNOWN = {
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "error",
}
COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
NULLABLE = (
    "cache_creation",
    "output_tokens_details",
    "server_tool_use",
    "service_tier",
    "inference_geo",
)


@dataclass
class CheckedStream:
    """The content of a legal stream."""

    message: dict[str, Any] | None = None
    blocks: list[dict[str, Any]] = field(default_factory=list)
    texts: list[dict[str, str]] = field(default_factory=list)
    """The joined deltas of each block, by field."""
    last: dict[str, Any] | None = None
    """The message_delta."""
    error: dict[str, Any] | None = None
    others: list[dict[str, Any]] = field(default_factory=list)
    open: bool = False
    ended: bool = False

    @property
    def text(self) -> str:
        return "".join(each.get("text", "") for each in self.texts)


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """Return the events of a complete stream, each checked against its event name."""
    *frames, rest = stream.split(b"\n\n")
    assert rest == b"", "something follows the last event"
    events: list[dict[str, Any]] = []
    for frame in frames:
        name, data = frame.split(b"\n")
        assert name.startswith(b"event: ")
        assert data.startswith(b"data: ")
        event = json.loads(data.removeprefix(b"data: ").decode())
        assert event["type"] == name.removeprefix(b"event: ").decode()
        events.append(event)
    return events


def check_stream(stream: bytes, *, whole: bool = True) -> CheckedStream:
    """Return the content of a stream.

    Args:
        stream: Its bytes.
        whole: Whether the stream is complete.

    Raises:
        AssertionError: The stream is not legal.
    """
    seen = CheckedStream()
    for event in events_of(stream):
        assert not seen.ended, "something follows the end"
        if event["type"] in KNOWN:
            _CHECKS[event["type"]](seen, event)
        else:
            assert seen.message is not None
            seen.others.append(event)
    assert seen.ended or not whole, "there is no end"
    return seen


def _message_start(seen: CheckedStream, event: dict[str, Any]) -> None:
    assert seen.message is None
    message = event["message"]
    assert message["type"] == "message"
    assert message["role"] == "assistant"
    assert message["content"] == []
    for name in ("id", "model", "provider"):
        assert isinstance(message[name], str)
    for name in ("stop_reason", "stop_sequence", "stop_details", "container"):
        assert message[name] is None
    check_usage(message["usage"])
    seen.message = message


def _block_start(seen: CheckedStream, event: dict[str, Any]) -> None:
    assert seen.message is not None
    assert not seen.open
    assert seen.last is None
    assert event["index"] == len(seen.blocks)
    assert isinstance(event["content_block"]["type"], str)
    if event["content_block"]["type"] in DELTAS:
        check_block(event["content_block"])
    seen.blocks.append(event["content_block"])
    seen.texts.append({})
    seen.open = True


def check_block(block: dict[str, Any]) -> None:
    """Reject null in the fields of a known block: absent fields must be left out."""
    assert None not in block.values(), block


def _block_delta(seen: CheckedStream, event: dict[str, Any]) -> None:
    assert seen.open
    assert event["index"] == len(seen.blocks) - 1
    delta = event["delta"]
    kinds = DELTAS.get(seen.blocks[-1]["type"])
    if kinds is not None and any(delta["type"] in each for each in DELTAS.values()):
        assert delta["type"] in kinds
        name = kinds[delta["type"]]
        seen.texts[-1][name] = seen.texts[-1].get(name, "") + delta[name]


def _block_stop(seen: CheckedStream, event: dict[str, Any]) -> None:
    assert seen.open
    assert event["index"] == len(seen.blocks) - 1
    seen.open = False


def _message_delta(seen: CheckedStream, event: dict[str, Any]) -> None:
    assert seen.message is not None
    assert not seen.open
    assert seen.last is None, "message_delta comes once"
    assert {"stop_reason", "stop_sequence", "stop_details", "container"} <= set(event["delta"])
    check_usage(event["usage"])
    assert {"cost", "is_byok"} <= set(event["usage"])
    seen.last = event


def _message_stop(seen: CheckedStream, _: dict[str, Any]) -> None:
    assert seen.last is not None
    seen.ended = True


def _error(seen: CheckedStream, event: dict[str, Any]) -> None:
    for name in ("type", "message", "error_type"):
        assert isinstance(event["error"][name], str)
    seen.error = event
    seen.ended = True


def check_usage(usage: dict[str, Any]) -> None:
    assert all(type(usage[name]) is int and usage[name] >= 0 for name in COUNTS)
    assert set(NULLABLE) <= set(usage)


_CHECKS = {
    "message_start": _message_start,
    "content_block_start": _block_start,
    "content_block_delta": _block_delta,
    "content_block_stop": _block_stop,
    "message_delta": _message_delta,
    "message_stop": _message_stop,
    "error": _error,
}

"""Renders the responses of the Anthropic stub: messages, stream events and errors.

    MessagesReply ── body() ──▶ one JSON object
                  ── events() ▶ message_start, blocks, message_delta, message_stop

The stream is made from the whole message, so both have the same content. Written from Anthropic's
published schema alone; it shares no code with the gateway's formats and adapters.

Source: https://docs.anthropic.com/en/api/messages,
https://docs.anthropic.com/en/api/messages-streaming, https://docs.anthropic.com/en/api/errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.support.providers.framing import Framing
from tests.support.providers.stub_text import JsonObject, pieces, signed, token, words

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMING: Final = Framing("request-id: req_tollhouse\r\n")
PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'

_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


# ------------------------------------------------------------------------------------- errors


def error_body(status: int, message: str | None = None) -> JsonObject:
    """Return an error object; its type is Anthropic's for the status."""
    nearest = status if status in _ERROR_TYPES else status // 100 * 100
    kind = _ERROR_TYPES.get(nearest, "api_error")
    error = {"type": kind, "message": message or kind.replace("_", " ").capitalize()}
    return {"type": "error", "error": error, "request_id": "req_tollhouse"}


def error(status: int, message: str | None = None, extra: str = "") -> bytes:
    """Return a complete error response; `extra` holds further header lines."""
    return FRAMING.whole(status, msgspec.json.encode(error_body(status, message)), extra=extra)


def event(fields: JsonObject) -> bytes:
    """Return an event; its name is the object's type."""
    return b"event: %b\ndata: %b\n\n" % (fields["type"].encode(), msgspec.json.encode(fields))


# ------------------------------------------------------------------------------------- blocks


def text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def thinking_block(thinking: str) -> JsonObject:
    return {"type": "thinking", "thinking": thinking, "signature": signed("sig", thinking)}


def redacted_block(thinking: str) -> JsonObject:
    return {"type": "redacted_thinking", "data": token("redacted", thinking)}


def tool_use_block(number: int, name: str, arguments: JsonObject) -> JsonObject:
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}
    return call | {"caller": {"type": "direct"}}


# ------------------------------------------------------------------------------------ message


def usage_of(
    fresh: int, output: int, *, thinking: int = 0, read: int = 0, write: tuple[int, int] = (0, 0)
) -> JsonObject:
    """Return a usage object; `write` has the tokens cached for five minutes and for an hour."""
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": sum(write),
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": write[0],
            "ephemeral_1h_input_tokens": write[1],
        },
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": thinking},
        "service_tier": "standard",
        "inference_geo": "global",
    }


@dataclass(frozen=True, slots=True)
class MessagesReply:
    """The content of a message, and why it stopped."""

    model: str
    content: list[JsonObject]
    usage: JsonObject
    stop_reason: str = "end_turn"
    stop_sequence: str | None = None
    stop_details: JsonObject | None = None

    def body(self) -> bytes:
        return msgspec.json.encode(self._envelope() | {"content": self.content} | self._stop())

    def events(self) -> list[bytes]:
        """Return the events of the stream, with the one ping that Anthropic always sends."""
        start = {"type": "message_start", "message": self._started()}
        events = [event(start)]
        for index, block in enumerate(self.content):
            events += (event(each) for each in self._block(index, block))
        usage = {key: self.usage[key] for key in _DELTA_USAGE}
        delta = {"type": "message_delta", "delta": self._stop(), "usage": usage}
        events += [event(delta), event({"type": "message_stop"})]
        return [*events[:2], PING, *events[2:]]

    def _started(self) -> JsonObject:
        usage = self.usage | {"output_tokens": 1}
        usage["output_tokens_details"] = {"thinking_tokens": 0}
        stop = dict.fromkeys(self._stop())
        empty: JsonObject = {"content": [], "usage": usage}
        return self._envelope() | stop | empty

    def _envelope(self) -> JsonObject:
        fields: JsonObject = {"id": "msg_tollhouse", "type": "message", "role": "assistant"}
        return fields | {"model": self.model, "usage": self.usage}

    def _stop(self) -> JsonObject:
        return {
            "stop_reason": self.stop_reason,
            "stop_sequence": self.stop_sequence,
            "stop_details": self.stop_details,
        }

    def _block(self, index: int, block: JsonObject) -> Iterator[JsonObject]:
        at = {"index": index}
        empty = _EMPTY.get(block["type"], {})
        yield {"type": "content_block_start"} | at | {"content_block": block | empty}
        for delta in self._deltas(block):
            yield {"type": "content_block_delta"} | at | {"delta": delta}
        yield {"type": "content_block_stop"} | at

    def _deltas(self, block: JsonObject) -> Iterator[JsonObject]:
        match block["type"]:
            case "text":
                for piece in pieces(block["text"]):
                    yield {"type": "text_delta", "text": piece}
            case "thinking":
                for piece in pieces(block["thinking"]):
                    yield {"type": "thinking_delta", "thinking": piece}
                yield {"type": "signature_delta", "signature": block["signature"]}
            case "tool_use":
                yield {"type": "input_json_delta", "partial_json": ""}
                for piece in _json_pieces(block["input"]):
                    yield {"type": "input_json_delta", "partial_json": piece}
            case _:
                return


_EMPTY: Final[dict[str, JsonObject]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}
_DELTA_USAGE: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "output_tokens_details",
)


def _json_pieces(value: dict[str, Any]) -> list[str]:
    """Split JSON into pieces at arbitrary points; an empty input has none, as at Anthropic."""
    text = msgspec.json.encode(value).decode() if value else ""
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def output_words(content: list[JsonObject]) -> tuple[int, int]:
    """Return the output tokens of blocks, and how many of them are reasoning."""
    thinking = sum(words(block.get("thinking", "")) for block in content)
    text = sum(words(block.get("text", "")) for block in content)
    calls = sum(len(block["input"]) + 1 for block in content if block["type"] == "tool_use")
    return thinking + text + calls, thinking

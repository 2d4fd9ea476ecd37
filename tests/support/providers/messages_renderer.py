"""Writes what a stub says as Anthropic's messages and their events, and its errors.

Source: https://docs.anthropic.com/en/api/messages,
https://docs.anthropic.com/en/api/messages-streaming, https://docs.anthropic.com/en/api/errors.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from tests.support.providers.framing import Framing
from tests.support.providers.stub_reply import Said, in_fives
from tests.support.providers.stub_text import JsonObject, pieces, signed, token

PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'
framing: Final = Framing("request-id: req_tollhouse\r\n")
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
_DELTA_USAGE: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "output_tokens_details",
)
_EMPTY: Final[dict[str, JsonObject]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}


def error(
    status: int,
    message: str | None = None,
    *,
    param: str | None = None,
    code: str | None = None,
    extra: str = "",
) -> bytes:
    del param, code  # Anthropic's errors have neither
    body = msgspec.json.encode(_error_body(status, message))
    return framing.whole(status, body, extra=extra)


def unknown(model: str) -> bytes:
    return error(404, f"model: {model}")


def failure(_said: Said, _at: int) -> bytes:
    return _event(_error_body(529, "Overloaded"))


def _error_body(status: int, message: str | None) -> JsonObject:
    nearest = status if status in _ERROR_TYPES else status // 100 * 100
    kind = _ERROR_TYPES.get(nearest, "api_error")
    told = {"type": kind, "message": message or kind.replace("_", " ").capitalize()}
    return {"type": "error", "error": told, "request_id": "req_tollhouse"}


def _event(fields: JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (fields["type"].encode(), msgspec.json.encode(fields))


def whole(said: Said) -> bytes:
    return msgspec.json.encode(_envelope(said) | {"content": _content(said)} | _stop(said))


def events(said: Said) -> list[bytes]:
    """Return the events of the stream, with the one ping that Anthropic always sends."""
    usage, stop = _usage(said), _stop(said)
    begun = usage | {"output_tokens": 1, "output_tokens_details": {"thinking_tokens": 0}}
    start = _envelope(said) | dict.fromkeys(stop) | {"content": [], "usage": begun}
    listed: list[JsonObject] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(_content(said)):
        listed += _block({"index": index}, block)
    last = {name: usage[name] for name in _DELTA_USAGE}
    listed += [{"type": "message_delta", "delta": stop, "usage": last}, {"type": "message_stop"}]
    written = [_event(each) for each in listed]
    return [*written[:2], PING, *written[2:]]


def _content(said: Said) -> list[JsonObject]:
    thought, content = said.thought if said.shown else "", list[JsonObject]()
    if said.thought:
        proof = signed("sig", thought)
        content.append({"type": "thinking", "thinking": thought, "signature": proof})
    if said.sealed:
        content.append({"type": "redacted_thinking", "data": token("redacted", said.thought)})
    if said.text:
        content.append({"type": "text", "text": said.text})
    for number, call in enumerate(said.calls, start=1):
        given = msgspec.json.decode(call.arguments)
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": call.name, "input": given}
        content.append(use | {"caller": {"type": "direct"}})
    return content


def _block(at: JsonObject, block: JsonObject) -> Iterator[JsonObject]:
    empty = _EMPTY.get(block["type"], {})
    yield {"type": "content_block_start"} | at | {"content_block": block | empty}
    for delta in _deltas(block):
        yield {"type": "content_block_delta"} | at | {"delta": delta}
    yield {"type": "content_block_stop"} | at


def _deltas(block: JsonObject) -> Iterator[JsonObject]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": each} for each in pieces(block["text"]))
        case "thinking":
            for piece in pieces(block["thinking"]):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":  # an empty input has no further piece, as at Anthropic
            text = msgspec.json.encode(block["input"]).decode() if block["input"] else ""
            for piece in ("", *in_fives(text)):
                yield {"type": "input_json_delta", "partial_json": piece}
        case _:
            return


def _envelope(said: Said) -> JsonObject:
    fields: JsonObject = {"id": "msg_tollhouse", "type": "message", "role": "assistant"}
    return fields | {"model": said.asked["model"], "usage": _usage(said)}


def _stop(said: Said) -> JsonObject:
    stop: JsonObject = {"stop_reason": "end_turn", "stop_sequence": None, "stop_details": None}
    if said.refuses:
        told = {"type": "refusal", "category": "cyber", "explanation": said.text}
        return stop | {"stop_reason": "refusal", "stop_details": told}
    if said.sequence is not None:
        return stop | {"stop_reason": "stop_sequence", "stop_sequence": said.sequence}
    reason = "tool_use" if said.calls else "max_tokens" if said.cut else "end_turn"
    return stop | {"stop_reason": reason}


def _usage(said: Said) -> JsonObject:
    used = said.used
    minutes, hour = used.written
    return {
        "input_tokens": used.fresh,
        "cache_creation_input_tokens": minutes + hour,
        "cache_read_input_tokens": used.read,
        "cache_creation": {"ephemeral_5m_input_tokens": minutes, "ephemeral_1h_input_tokens": hour},
        "output_tokens": used.output,
        "output_tokens_details": {"thinking_tokens": used.thinking},
        "service_tier": "standard",
        "inference_geo": "global",
    }

"""How the stand-in for OpenAI writes: HTTP framing, error bodies, completions and their chunks.

Written from OpenAI's published schema alone. It shares no code with the gateway's formats and
adapters, so that the two can contradict each other.

Source: OpenAI API reference, "The chat completion object", "The chat completion chunk object",
"List models", and the guide "Error codes".
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tollhouse.testing.script import Pause

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tollhouse.testing.script import Script, Step

CREATED: Final = 1_767_225_600
"""2026-01-01: replies do not depend on the clock."""

DONE: Final = b"data: [DONE]\n\n"
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream; charset=utf-8"


JsonObject = dict[str, Any]


# ------------------------------------------------------------------------------------ framing


def whole(status: int, body: bytes, content_type: str = JSON, extra: str = "") -> bytes:
    """Return a counted reply; `extra` holds further header lines, each with its CRLF."""
    return _head(status, content_type, f"Content-Length: {len(body)}\r\n{extra}") + body


def chunked_head(content_type: str) -> bytes:
    """Return the head of a chunked reply with status 200."""
    return _head(200, content_type, "Transfer-Encoding: chunked\r\n")


def chunk(data: bytes) -> bytes:
    """Return one chunk.

    Source: RFC 9112, section 7.1.
    """
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(events: Iterable[bytes], *, pause_seconds: float | None = None) -> Script:
    """Return a chunked event stream that ends cleanly, one chunk for each event."""
    steps: list[Step] = [chunked_head(EVENTS)]
    for event in events:
        steps.append(chunk(event))
        if pause_seconds is not None:
            steps.append(Pause(pause_seconds))
    return (*steps, b"0\r\n\r\n")


def _head(status: int, content_type: str, extra: str) -> bytes:
    return (
        f"HTTP/1.1 {status} {_phrase(status)}\r\nContent-Type: {content_type}\r\n"
        f"x-request-id: req_tollhouse\r\nopenai-version: 2020-10-01\r\n{extra}\r\n"
    ).encode()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _dump(value: object) -> bytes:
    return msgspec.json.encode(value)


# ------------------------------------------------------------------------------------- errors

_ERRORS: Final[dict[int, tuple[str, str | None, str]]] = {
    400: ("invalid_request_error", None, "Invalid request."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "unsupported_country_region_territory", "Not supported."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    500: ("server_error", None, "The server had an error while processing your request."),
    503: ("server_error", None, "The engine is currently overloaded, please try again later."),
}


def error_body(status: int, message: str | None = None, param: str | None = None) -> bytes:
    """Return an error object; type, code and usual message are OpenAI's for the status."""
    nearest = status if status in _ERRORS else status // 100 * 100
    kind, code, usual = _ERRORS.get(nearest, _ERRORS[500])
    fields = {"message": message or usual, "type": kind, "param": param, "code": code}
    return _dump({"error": fields})


def error(
    status: int, message: str | None = None, param: str | None = None, extra: str = ""
) -> bytes:
    """Return a whole error reply; `extra` holds further header lines."""
    return whole(status, error_body(status, message, param), extra=extra)


def unknown_url(method: str, path: str) -> bytes:
    """Return the reply to a path that does not exist."""
    return whole(404, error_body(400, f"Invalid URL ({method} {path})"))


# --------------------------------------------------------------------------------- completions


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says, before it is put on the wire."""

    model: str
    pieces: tuple[str, ...]
    usage: JsonObject | None
    finish_reason: str = "stop"
    tool: str | None = None
    """The name of the function that is called; the pieces are its arguments."""

    def completion(self) -> bytes:
        """Return the chat completion object."""
        text = "".join(self.pieces)
        message: JsonObject = {"role": "assistant", "content": text, "refusal": None}
        message["annotations"] = []
        if self.tool is not None:
            function = {"name": self.tool, "arguments": text}
            call = {"id": "call_tollhouse", "type": "function", "function": function}
            message |= {"content": None, "tool_calls": [call]}
        choice: JsonObject = {"index": 0, "message": message, "logprobs": None}
        choice["finish_reason"] = self.finish_reason
        usage = {} if self.usage is None else {"usage": self.usage}
        return _dump(self._envelope("chat.completion") | {"choices": [choice]} | usage)

    def events(self, *, include_usage: bool) -> Iterator[bytes]:
        """Yield the events of the stream without the last one, `[DONE]`.

        With `include_usage` one more chunk carries the usage and no choices, and all others
        carry `"usage": null`.
        """
        null = {"usage": None} if include_usage and self.usage is not None else {}
        for delta, finish_reason in self._deltas():
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
            yield self._event({"choices": [choice]} | null)
        if null:
            yield self._event({"choices": [], "usage": self.usage})

    def _deltas(self) -> Iterator[tuple[JsonObject, str | None]]:
        if self.tool is None:
            yield {"role": "assistant", "content": "", "refusal": None}, None
            for piece in self.pieces:
                yield {"content": piece}, None
        else:
            function = {"name": self.tool, "arguments": ""}
            call = {"index": 0, "id": "call_tollhouse", "type": "function", "function": function}
            yield {"role": "assistant", "content": None, "tool_calls": [call]}, None
            for piece in self.pieces:
                yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}, None
        yield {}, self.finish_reason

    def _event(self, fields: JsonObject) -> bytes:
        return b"data: %b\n\n" % _dump(self._envelope("chat.completion.chunk") | fields)

    def _envelope(self, kind: str) -> JsonObject:
        return {
            "id": "chatcmpl-tollhouse",
            "object": kind,
            "created": CREATED,
            "model": self.model,
            "service_tier": "default",
            "system_fingerprint": "fp_tollhouse",
        }


def usage_of(prompt: int, completion: int, *, cached: int = 0, reasoning: int = 0) -> JsonObject:
    """Return a usage object with all the details that OpenAI sends."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def model_list(names: Iterable[str]) -> bytes:
    """Return the reply of `GET /v1/models`."""
    entry = {"object": "model", "created": CREATED, "owned_by": "tollhouse"}
    data = [{"id": name} | entry for name in names]
    return whole(200, _dump({"object": "list", "data": data}))

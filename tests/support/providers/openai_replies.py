"""Renders the chat responses of the OpenAI stub: framing, errors, completions and chunks.

Written from OpenAI's published schema alone. It shares no code with the gateway's formats and
adapters, so that mistakes in one do not hide in the other.

Source: OpenAI API reference, "The chat completion object", "The chat completion chunk object",
"List models", and the guide "Error codes".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tests.support.providers.framing import Framing
from tests.support.providers.stub_text import JsonObject, pieces, signed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CREATED: Final = 1_767_225_600
"""2026-01-01: responses do not depend on the clock."""

DONE: Final = b"data: [DONE]\n\n"

FRAMING: Final = Framing("x-request-id: req_tollhouse\r\nopenai-version: 2020-10-01\r\n")

whole = FRAMING.whole
chunked_head = FRAMING.chunked_head
stream = FRAMING.stream
cut = FRAMING.cut


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
    """Return a complete error response; `extra` holds further header lines."""
    return whole(status, error_body(status, message, param), extra=extra)


def unknown_url(method: str, path: str) -> bytes:
    return whole(404, error_body(400, f"Invalid URL ({method} {path})"))


# --------------------------------------------------------------------------------- completions


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The content of a chat response, before it is rendered."""

    model: str
    pieces: tuple[str, ...]
    usage: JsonObject | None
    finish_reason: str = "stop"
    tool: str | None = None
    """The name of the called function; the pieces are its arguments."""
    calls: tuple[tuple[str, str], ...] = ()
    """Names and arguments of parallel calls, instead of text."""
    refuses: bool = False
    """Whether the pieces are a refusal."""
    thought: str = ""
    details: bool = False
    """Whether reasoning is sent as OpenRouter sends it, signed; else as DeepSeek does."""
    include_usage: bool = False
    """Whether a stream has a further chunk with the usage and no choices."""

    def body(self) -> bytes:
        usage = {} if self.usage is None else {"usage": self.usage}
        return _dump(self._envelope("chat.completion") | {"choices": [self._choice()]} | usage)

    def events(self) -> list[bytes]:
        """Return the events of the stream, up to `[DONE]`."""
        null = {"usage": None} if self.include_usage and self.usage is not None else {}
        choice: JsonObject = {"index": 0, "logprobs": None, "finish_reason": None}
        choices = [choice | {"delta": delta} for delta in self._deltas()]
        choices.append(choice | {"delta": {}, "finish_reason": self.finish_reason})
        events = [self._event({"choices": [each]} | null) for each in choices]
        if null:
            events.append(self._event({"choices": [], "usage": self.usage}))
        return [*events, DONE]

    # ------------------------------------------------------------------------------- complete

    def _choice(self) -> JsonObject:
        text = "".join(self.pieces)
        message: JsonObject = {"role": "assistant", "content": text, "refusal": None}
        message["annotations"] = []
        if self.refuses:
            message |= {"content": None, "refusal": text}
        if calls := self._calls():
            listed = [_call(number, name, arguments) for number, name, arguments in calls]
            message |= {"content": None, "tool_calls": listed}
        message |= self._thought()
        choice: JsonObject = {"index": 0, "message": message, "logprobs": None}
        return choice | {"finish_reason": self.finish_reason}

    def _calls(self) -> list[tuple[str, str, str]]:
        """Return id, name and arguments of each call."""
        if self.tool is not None:
            return [("call_tollhouse", self.tool, "".join(self.pieces))]
        return [(f"call_{at}", *call) for at, call in enumerate(self.calls, start=1)]

    def _thought(self) -> JsonObject:
        if not self.thought:
            return {}
        if not self.details:
            return {"reasoning_content": self.thought}
        detail = _detail(text=self.thought, signature=signed("sig", self.thought))
        return {"reasoning": self.thought, "reasoning_details": [detail]}

    # ------------------------------------------------------------------------------- streamed

    def _deltas(self) -> Iterator[JsonObject]:
        if self.tool is not None:
            yield from _call_deltas(self.tool, self.pieces)
        elif self.calls:
            yield from _interleaved(self._calls())
        else:
            start: JsonObject = {"role": "assistant", "content": "", "refusal": None}
            yield start | ({"content": None, "refusal": ""} if self.refuses else {})
            yield from self._thought_deltas()
            key = "refusal" if self.refuses else "content"
            yield from ({key: piece} for piece in self.pieces)

    def _thought_deltas(self) -> Iterator[JsonObject]:
        for piece in pieces(self.thought):
            if self.details:
                yield {"reasoning": piece, "reasoning_details": [_detail(text=piece)]}
            else:
                yield {"reasoning_content": piece}
        if self.thought and self.details:
            yield {"reasoning_details": [_detail(signature=signed("sig", self.thought))]}

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


def _call(call: str, name: str, arguments: str) -> JsonObject:
    return {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}


def _call_deltas(name: str, pieces: Iterable[str]) -> Iterator[JsonObject]:
    start = {"index": 0} | _call("call_tollhouse", name, "")
    yield {"role": "assistant", "content": None, "tool_calls": [start]}
    for piece in pieces:
        yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def _interleaved(calls: list[tuple[str, str, str]]) -> Iterator[JsonObject]:
    """Yield the starts of all calls, then their arguments interleaved."""
    yield {"role": "assistant", "content": None}
    for index, (call, name, _) in enumerate(calls):
        yield {"tool_calls": [{"index": index} | _call(call, name, "")]}
    longest = max(len(arguments) for _, _, arguments in calls)
    for start in range(0, longest, 5):
        for index, (_, _, arguments) in enumerate(calls):
            if piece := arguments[start : start + 5]:
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _detail(**fields: str) -> JsonObject:
    """Return a reasoning detail.

    Source: https://openrouter.ai/docs/use-cases/reasoning-tokens.
    """
    return {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0} | fields


def usage_of(prompt: int, completion: int, *, cached: int = 0, reasoning: int = 0) -> JsonObject:
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

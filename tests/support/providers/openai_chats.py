"""The chat route of the OpenAI stub and its behaviours; `openai_upstream` lists the model names.

    POST /v1/chat/completions    request ─▶ behaviour of the model name ─▶ ChatReply

Source: OpenAI API reference, "Create chat completion".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.support.providers.openai_replies import (
    DONE,
    FRAMING,
    ChatReply,
    error,
    error_body,
    usage_of,
)
from tests.support.providers.openai_requests import CheckedChatRequest
from tests.support.providers.stub_faults import FAULTS, edited, render_answer, respond
from tests.support.providers.stub_text import (
    REFUSAL,
    THOUGHT,
    JsonObject,
    Refused,
    arguments,
    before_stop_sequence,
    example,
    pieces,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.providers.byte_script import Script


class ChatExchange(CheckedChatRequest):
    """A checked request and OpenAI's responses to it."""

    framing = FRAMING

    def reply(self, said: Sequence[str], usage: JsonObject | None, **more: Any) -> ChatReply:
        return ChatReply(self.model, tuple(said), usage, include_usage=self.include_usage, **more)

    def echo(self, **more: Any) -> ChatReply:
        return self.text(self.last_said(), **more)

    def say(self, pieces: Sequence[str]) -> ChatReply:
        return self.reply(pieces, usage_of(100, len(pieces)))

    def error(self, status: int, extra: str = "") -> bytes:
        return error(status, extra=extra)

    def text(self, text: str, *, thought: str = "", **more: Any) -> ChatReply:
        listed = pieces(before_stop_sequence(text, self.stops)[0])
        fields = self.fields
        limit: int = fields.get("max_completion_tokens") or fields.get("max_tokens") or len(listed)
        said = listed[:limit]
        thinking = words(thought)
        usage = usage_of(self.input_tokens(), len(said) + thinking, reasoning=thinking)
        reason = "stop" if limit >= len(listed) else "length"
        return self.reply(said, usage, finish_reason=reason, thought=thought, **more)


# ------------------------------------------------------------------------------------ behaviours


def _reasoning(exchange: ChatExchange) -> Script:
    return render_answer(exchange, exchange.echo(thought=THOUGHT, details=True))


def _cached(exchange: ChatExchange) -> Script:
    usage = usage_of(2048, 300, cached=1920, reasoning=256)
    return render_answer(exchange, exchange.reply(exchange.echo().pieces, usage))


def _tools(exchange: ChatExchange) -> Script:
    if exchange.results():
        return render_answer(exchange, exchange.echo())
    tools: list[JsonObject] = exchange.fields.get("tools") or [
        {"function": {"name": "get_weather"}}
    ]
    call = {"finish_reason": "tool_calls", "tool": tools[0]["function"]["name"]}
    said = ('{"ci', 'ty": "Pa', 'ris"}')
    return render_answer(exchange, exchange.reply(said, usage_of(20, 8), **call))


def _two_tools(exchange: ChatExchange) -> Script:
    tools: list[JsonObject] = exchange.fields.get("tools") or []
    if results := exchange.results():
        return render_answer(exchange, exchange.text(" ".join(results)))
    if not tools:
        return render_answer(exchange, exchange.echo())
    called: list[JsonObject] = [tool["function"] for tool in tools[:2]]
    calls = tuple(
        (each["name"], msgspec.json.encode(arguments(each.get("parameters") or {})).decode())
        for each in called
    )
    reply = exchange.reply((), usage_of(20, 8), finish_reason="tool_calls", calls=calls)
    return render_answer(exchange, reply)


def _refusal(exchange: ChatExchange) -> Script:
    return render_answer(exchange, exchange.text(REFUSAL, refuses=True))


def _json(exchange: ChatExchange) -> Script:
    schema = exchange.schema()
    if schema is None:
        return render_answer(exchange, exchange.echo())
    return render_answer(exchange, exchange.text(msgspec.json.encode(example(schema)).decode()))


def _error_in_stream(exchange: ChatExchange) -> Script:
    if not exchange.streams:
        return (error(500),)
    failed = b"data: %b\n\n" % error_body(500)
    return FRAMING.stream([*exchange.echo().events()[:3], failed])


def _without_end(events: list[bytes]) -> list[bytes]:
    return [event for event in events if b'"content"' in event]


BEHAVIOURS: Final[dict[str, Callable[..., Script]]] = FAULTS | {
    "cached": _cached,
    "tools": _tools,
    "two-tools": _two_tools,
    "reasoning-details": _reasoning,
    "refusal": _refusal,
    "json": _json,
    "error-in-stream": _error_in_stream,
    "duplicate-done": edited(lambda events: [*events, DONE]),
    "no-done": edited(lambda events: events[:-1]),
    "no-finish": edited(_without_end),
}


# ----------------------------------------------------------------------------------------- route


def chat_completion(body: object) -> Script:
    """Return the script of `POST /v1/chat/completions`; an invalid request gets an error."""
    try:
        exchange = ChatExchange(body)
    except Refused as refused:
        return (error(refused.status, refused.message, refused.param),)
    unknown = f"The model `{exchange.model}` does not exist or you do not have access to it."
    return respond(exchange, BEHAVIOURS, error(404, unknown))

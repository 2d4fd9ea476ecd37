"""The routes and behaviours of the Anthropic stub; `openai_upstream` lists the model names.

    POST /v1/messages                 request ─▶ behaviour of the model name ─▶ MessagesReply
    POST /v1/messages/count_tokens    request ─▶ {"input_tokens": words of the prompt}

Source: https://docs.anthropic.com/en/api/messages,
https://docs.anthropic.com/en/api/messages-count-tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.support.providers import anthropic_replies as replies
from tests.support.providers.anthropic_replies import MessagesReply
from tests.support.providers.anthropic_requests import CheckedMessagesRequest
from tests.support.providers.stub_faults import FAULTS, behaviour_of, edited, render_answer, respond
from tests.support.providers.stub_text import (
    REFUSAL,
    THOUGHT,
    JsonObject,
    Refused,
    arguments,
    before_stop_sequence,
    example,
    pieces,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.support.providers.byte_script import Script


class MessagesExchange(CheckedMessagesRequest):
    """A checked request and Anthropic's responses to it."""

    framing = replies.FRAMING

    def echo(self) -> MessagesReply:
        """Return an echo of the last user text; after a prefill it quotes the prefill first."""
        prefill = self.prefill()
        after = f"[after: {prefill}] " if prefill else ""
        return self.text(after + self.last_user_text())

    def say(self, pieces: Sequence[str]) -> MessagesReply:
        content = [replies.text_block("".join(pieces))]
        return MessagesReply(self.model, content, replies.usage_of(100, len(pieces)))

    def error(self, status: int, extra: str = "") -> bytes:
        return replies.error(status, extra=extra)

    def text(self, text: str, before: Sequence[JsonObject] = ()) -> MessagesReply:
        """Return a text within the limits of the request, after other blocks."""
        text, stop = before_stop_sequence(text, self.fields.get("stop_sequences", []))
        said, limit = pieces(text), self.fields["max_tokens"]
        reason = "stop_sequence" if stop is not None else "end_turn"
        if len(said) > limit:
            text, stop, reason = "".join(said[:limit]), None, "max_tokens"
        blocks = [*before, replies.text_block(text)] if text else [*before]
        return self.message(blocks, stop_reason=reason, stop_sequence=stop)

    def message(self, content: list[JsonObject], **stop: Any) -> MessagesReply:
        output, thinking = replies.output_words(content)
        usage = replies.usage_of(self.input_tokens(), output, thinking=thinking)
        return MessagesReply(self.model, content, usage, **stop)


# ------------------------------------------------------------------------------------ behaviours


def _called(count: int) -> Callable[[MessagesExchange], Script]:
    """Return a behaviour that calls the first tools, or the forced one, and echoes results."""

    def behave(exchange: MessagesExchange) -> Script:
        choice: JsonObject = exchange.fields.get("tool_choice") or {}
        if exchange.has_results() or not exchange.tools or choice.get("type") == "none":
            return render_answer(exchange, exchange.echo())
        forced = [tool for tool in exchange.tools if tool["name"] == exchange.forced_tool]
        single = 1 if choice.get("disable_parallel_tool_use") else count
        calls = [
            replies.tool_use_block(number, tool["name"], arguments(tool["input_schema"]))
            for number, tool in enumerate((forced or exchange.tools)[:single], start=1)
        ]
        content = [*_thinking_blocks(exchange), *calls]
        return render_answer(exchange, exchange.message(content, stop_reason="tool_use"))

    return behave


def _thinking(*, redacted: bool) -> Callable[[MessagesExchange], Script]:
    """Return a behaviour that reasons if the request allows it, optionally redacted in part."""

    def behave(exchange: MessagesExchange) -> Script:
        if not exchange.thinks:
            return render_answer(exchange, exchange.echo())
        hidden = [replies.redacted_block(THOUGHT)] if redacted else []
        before = [*_thinking_blocks(exchange), *hidden]
        return render_answer(exchange, exchange.text(exchange.last_user_text(), before))

    return behave


def _thinking_blocks(exchange: MessagesExchange) -> list[JsonObject]:
    """Return the thinking block of a request that allows one; its text is empty if omitted."""
    if not exchange.thinks:
        return []
    omitted = exchange.fields["thinking"].get("display") == "omitted"
    return [replies.thinking_block("" if omitted else THOUGHT)]


def _refusal(exchange: MessagesExchange) -> Script:
    details: JsonObject = {"type": "refusal", "category": "cyber", "explanation": REFUSAL}
    message = exchange.message(
        [replies.text_block(REFUSAL)], stop_reason="refusal", stop_details=details
    )
    return render_answer(exchange, message)


def _json(exchange: MessagesExchange) -> Script:
    schema = exchange.schema()
    if schema is None:
        return render_answer(exchange, exchange.echo())
    text = msgspec.json.encode(example(schema)).decode()
    return render_answer(exchange, exchange.message([replies.text_block(text)]))


def _cached(exchange: MessagesExchange) -> Script:
    usage = replies.usage_of(128, 300, thinking=256, read=1920, write=(400, 100))
    return render_answer(exchange, MessagesReply(exchange.model, exchange.echo().content, usage))


def _overloaded(exchange: MessagesExchange) -> Script:
    return (exchange.error(529),)


def _error_in_stream(exchange: MessagesExchange) -> Script:
    if not exchange.streams:
        return (exchange.error(500),)
    events = exchange.echo().events()
    first = next(at for at, event in enumerate(events) if b"_delta" in event)
    failed = replies.event(replies.error_body(529, "Overloaded"))
    return exchange.framing.stream([*events[: first + 1], failed])


BEHAVIOURS: Final[dict[str, Callable[..., Script]]] = FAULTS | {
    "tools": _called(1),
    "two-tools": _called(2),
    "thinking": _thinking(redacted=False),
    "redacted": _thinking(redacted=True),
    "refusal": _refusal,
    "json": _json,
    "cached": _cached,
    "overloaded": _overloaded,
    "error-in-stream": _error_in_stream,
    "no-stop": edited(lambda events: events[:-1]),
    "ping": edited(lambda events: [part for event in events for part in (event, replies.PING)]),
}


# ---------------------------------------------------------------------------------------- routes


def messages(headers: Mapping[str, str], body: object) -> Script:
    """Return the script of `POST /v1/messages`.

    Args:
        headers: Of the request, names in lower case.
        body: The decoded JSON; an invalid request gets an error.
    """
    try:
        exchange = MessagesExchange(headers, body)
    except Refused as refused:
        return (replies.error(refused.status, refused.message),)
    return respond(exchange, BEHAVIOURS, replies.error(404, f"model: {exchange.model}"))


def count_tokens(headers: Mapping[str, str], body: object) -> Script:
    try:
        exchange = MessagesExchange(headers, body, counts=True)
    except Refused as refused:
        return (replies.error(refused.status, refused.message),)
    if behaviour_of(exchange.model, BEHAVIOURS) is None:
        return (replies.error(404, f"model: {exchange.model}"),)
    counted = {"input_tokens": exchange.input_tokens()}
    return (replies.FRAMING.whole(200, msgspec.json.encode(counted)),)

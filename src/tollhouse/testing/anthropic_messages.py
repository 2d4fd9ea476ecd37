"""What the stand-in for Anthropic does for each model name; `openai_upstream` lists the names.

    POST /v1/messages                 Request ─▶ behaviour of the model's name ─▶ Message ─▶ Script
    POST /v1/messages/count_tokens    Request ─▶ {"input_tokens": words of the prompt}

Source: https://docs.anthropic.com/en/api/messages,
https://docs.anthropic.com/en/api/messages-count-tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tollhouse.testing import anthropic_replies as replies
from tollhouse.testing.anthropic_blocks import Refused
from tollhouse.testing.anthropic_replies import Message
from tollhouse.testing.anthropic_requests import Request
from tollhouse.testing.faults import FAULTS, answer, behaviour_of, edited
from tollhouse.testing.speech import (
    REFUSAL,
    THOUGHT,
    JsonObject,
    arguments,
    example,
    pieces,
    until_stop,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tollhouse.testing.script import Script


class Exchange(Request):
    """A request, and how Anthropic answers it."""

    framing = replies.FRAMING

    def echo(self) -> Message:
        """Return the last user text; behind a prefill it says what it goes on from."""
        prefill = self.prefill()
        after = f"[after: {prefill}] " if prefill else ""
        return self.text(after + self.last_user_text())

    def say(self, pieces: Sequence[str]) -> Message:
        """Return a text, whatever was asked."""
        content = [replies.text_block("".join(pieces))]
        return Message(self.model, content, replies.usage_of(100, len(pieces)))

    def error(self, status: int, extra: str = "") -> bytes:
        """Return an error reply."""
        return replies.error(status, extra=extra)

    def text(self, text: str, before: Sequence[JsonObject] = ()) -> Message:
        """Return a text within the limits of the request, behind other blocks."""
        text, stop = until_stop(text, self.fields.get("stop_sequences", []))
        said, limit = pieces(text), self.fields["max_tokens"]
        reason = "stop_sequence" if stop is not None else "end_turn"
        if len(said) > limit:
            text, stop, reason = "".join(said[:limit]), None, "max_tokens"
        blocks = [*before, replies.text_block(text)] if text else [*before]
        return self.message(blocks, stop_reason=reason, stop_sequence=stop)

    def message(self, content: list[JsonObject], **stop: Any) -> Message:  # noqa: ANN401
        """Return blocks with the usage that they cost."""
        output, thinking = replies.output_words(content)
        usage = replies.usage_of(self.input_tokens(), output, thinking=thinking)
        return Message(self.model, content, usage, **stop)


# ------------------------------------------------------------------------------------ behaviours


def _called(count: int) -> Callable[[Exchange], Script]:
    """Return a behaviour that calls the first tools, or the forced one; results are echoed."""

    def behave(exchange: Exchange) -> Script:
        choice: JsonObject = exchange.fields.get("tool_choice") or {}
        if exchange.has_results() or not exchange.tools or choice.get("type") == "none":
            return answer(exchange, exchange.echo())
        forced = [tool for tool in exchange.tools if tool["name"] == exchange.forced_tool]
        single = 1 if choice.get("disable_parallel_tool_use") else count
        calls = [
            replies.tool_use_block(number, tool["name"], arguments(tool["input_schema"]))
            for number, tool in enumerate((forced or exchange.tools)[:single], start=1)
        ]
        content = [*_thoughts(exchange), *calls]
        return answer(exchange, exchange.message(content, stop_reason="tool_use"))

    return behave


def _thinking(*, redacted: bool) -> Callable[[Exchange], Script]:
    """Return a behaviour that thinks where the request allows it, partly in hiding."""

    def behave(exchange: Exchange) -> Script:
        if not exchange.thinks:
            return answer(exchange, exchange.echo())
        hidden = [replies.redacted_block(THOUGHT)] if redacted else []
        before = [*_thoughts(exchange), *hidden]
        return answer(exchange, exchange.text(exchange.last_user_text(), before))

    return behave


def _thoughts(exchange: Exchange) -> list[JsonObject]:
    """Return the thought that a request lets the model have, and only its signature on request."""
    if not exchange.thinks:
        return []
    omitted = exchange.fields["thinking"].get("display") == "omitted"
    return [replies.thinking_block("" if omitted else THOUGHT)]


def _refusal(exchange: Exchange) -> Script:
    details: JsonObject = {"type": "refusal", "category": "cyber", "explanation": REFUSAL}
    message = exchange.message(
        [replies.text_block(REFUSAL)], stop_reason="refusal", stop_details=details
    )
    return answer(exchange, message)


def _json(exchange: Exchange) -> Script:
    schema = exchange.schema()
    if schema is None:
        return answer(exchange, exchange.echo())
    text = msgspec.json.encode(example(schema)).decode()
    return answer(exchange, exchange.message([replies.text_block(text)]))


def _cached(exchange: Exchange) -> Script:
    usage = replies.usage_of(128, 300, thinking=256, read=1920, write=(400, 100))
    return answer(exchange, Message(exchange.model, exchange.echo().content, usage))


def _stopped(exchange: Exchange, reason: str) -> Script:
    said = exchange.echo()
    return answer(exchange, exchange.message(said.content, stop_reason=reason))


def _overloaded(exchange: Exchange) -> Script:
    return (exchange.error(529),)


def _error_in_stream(exchange: Exchange) -> Script:
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
    "stop-reason": _stopped,
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
        body: The decoded JSON; anything that is no valid request is refused.
    """
    try:
        exchange = Exchange(headers, body)
    except Refused as refused:
        return (replies.error(refused.status, refused.message),)
    found = behaviour_of(exchange.model, BEHAVIOURS)
    unknown = (replies.error(404, f"model: {exchange.model}"),)
    if found is None:
        return unknown
    behave, options = found
    try:
        return behave(exchange, *options)
    except (TypeError, ValueError):
        return unknown  # options that the behaviour does not have


def count_tokens(headers: Mapping[str, str], body: object) -> Script:
    """Return the script of `POST /v1/messages/count_tokens`."""
    try:
        exchange = Exchange(headers, body, counts=True)
    except Refused as refused:
        return (replies.error(refused.status, refused.message),)
    if behaviour_of(exchange.model, BEHAVIOURS) is None:
        return (replies.error(404, f"model: {exchange.model}"),)
    counted = {"input_tokens": exchange.input_tokens()}
    return (replies.FRAMING.whole(200, msgspec.json.encode(counted)),)

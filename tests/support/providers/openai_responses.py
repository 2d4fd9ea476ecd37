"""The responses route of the OpenAI stub and its behaviours; `openai_upstream` lists them.

    POST /v1/responses    request ─▶ behaviour of the model name ─▶ ResponsesReply

Source: https://platform.openai.com/docs/api-reference/responses/create.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.support.providers import openai_response_replies as replies
from tests.support.providers.openai_replies import FRAMING, error
from tests.support.providers.openai_requests import CheckedResponsesRequest
from tests.support.providers.openai_response_replies import ResponsesReply
from tests.support.providers.stub_faults import FAULTS, edited, render_answer, respond
from tests.support.providers.stub_text import (
    REFUSAL,
    THOUGHT,
    JsonObject,
    Refused,
    arguments,
    example,
    pieces,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.providers.byte_script import Script


class ResponsesExchange(CheckedResponsesRequest):
    """A checked request and OpenAI's responses to it."""

    framing = FRAMING

    def echo(self) -> ResponsesReply:
        return self.text(self.last_user_text())

    def say(self, pieces: Sequence[str]) -> ResponsesReply:
        item = replies.message_item(replies.text_part("".join(pieces)))
        return ResponsesReply({"model": self.model}, [item], replies.usage_of(100, len(pieces)))

    def error(self, status: int, extra: str = "") -> bytes:
        return error(status, extra=extra)

    def text(
        self, text: str, before: Sequence[JsonObject] = (), thought: int = 0
    ) -> ResponsesReply:
        """Return a text within the limit of the request, after reasoning of `thought` words."""
        said = pieces(text)
        limit: int = self.fields.get("max_output_tokens", len(said) + thought) - thought
        cut = len(said) > limit
        part = replies.text_part("".join(said[: max(limit, 0)]))
        item = replies.message_item(part, "incomplete" if cut else "completed")
        reason = "max_output_tokens" if cut else None
        return self.response([*before, item], thought=thought, incomplete=reason)

    def response(
        self,
        output: list[JsonObject],
        *,
        thought: int = 0,
        **more: Any,
    ) -> ResponsesReply:
        tokens = sum(_output_words(item) for item in output)
        usage = replies.usage_of(self.input_tokens(), tokens + thought, reasoning=thought)
        return ResponsesReply(self.fields, output, usage, **more)


def _output_words(item: JsonObject) -> int:
    match item["type"]:
        case "message":
            return sum(
                words(part.get("text") or part.get("refusal") or "") for part in item["content"]
            )
        case "function_call":
            return len(msgspec.json.decode(item["arguments"])) + 1
        case "custom_tool_call":
            return words(item["input"])
        case _:
            return 0


# ------------------------------------------------------------------------------------ behaviours


def _called(count: int, kind: str = "function") -> Callable[[ResponsesExchange], Script]:
    """Return a behaviour that calls the first tools, or the forced one, and echoes results."""

    def behave(exchange: ResponsesExchange) -> Script:
        tools = [tool for tool in exchange.tools if tool["type"] == kind]
        if exchange.has_results() or not tools or exchange.fields.get("tool_choice") == "none":
            return render_answer(exchange, exchange.echo())
        forced = [tool for tool in tools if tool["name"] == exchange.forced_tool]
        parallel = exchange.fields.get("parallel_tool_calls", True)
        called = (forced or tools)[: count if parallel else 1]
        calls = [_call(number, tool, exchange) for number, tool in enumerate(called, start=1)]
        thinks = exchange.reasoning.get("effort", "none") != "none"
        reasoning = [_reasoning_item(exchange)] if thinks else []
        tokens = words(THOUGHT) if thinks else 0
        return render_answer(exchange, exchange.response([*reasoning, *calls], thought=tokens))

    return behave


def _call(number: int, tool: JsonObject, exchange: ResponsesExchange) -> JsonObject:
    if tool["type"] == "custom":
        return replies.custom_tool_call(number, tool["name"], exchange.last_user_text())
    return replies.function_call(number, tool["name"], arguments(tool.get("parameters") or {}))


def _reasoning_item(exchange: ResponsesExchange) -> JsonObject:
    summary = exchange.reasoning.get("summary") or exchange.reasoning.get("generate_summary")
    encrypted = "reasoning.encrypted_content" in exchange.includes
    return replies.reasoning_item(THOUGHT, summarised=bool(summary), encrypted=encrypted)


def _reasoning(exchange: ResponsesExchange) -> Script:
    thought = _reasoning_item(exchange)
    reply = exchange.text(exchange.last_user_text(), [thought], thought=words(THOUGHT))
    return render_answer(exchange, reply)


def _refusal(exchange: ResponsesExchange) -> Script:
    item = replies.message_item(replies.refusal_part(REFUSAL))
    return render_answer(exchange, exchange.response([item]))


def _json(exchange: ResponsesExchange) -> Script:
    schema = exchange.schema()
    if schema is None:
        return render_answer(exchange, exchange.echo())
    text = msgspec.json.encode(example(schema)).decode()
    item = replies.message_item(replies.text_part(text))
    return render_answer(exchange, exchange.response([item]))


def _cached(exchange: ResponsesExchange) -> Script:
    usage = replies.usage_of(2048, 300, cached=1920, reasoning=256)
    return render_answer(exchange, ResponsesReply(exchange.fields, exchange.echo().output, usage))


def _error_in_stream(exchange: ResponsesExchange) -> Script:
    if not exchange.streams:
        return (exchange.error(500),)
    return exchange.framing.stream(exchange.echo().failed_events())


BEHAVIOURS: Final[dict[str, Callable[..., Script]]] = FAULTS | {
    "tools": _called(1),
    "two-tools": _called(2),
    "custom": _called(1, "custom"),
    "reasoning": _reasoning,
    "refusal": _refusal,
    "json": _json,
    "cached": _cached,
    "error-in-stream": _error_in_stream,
    "no-done": edited(lambda events: events[:-1]),
}


# ----------------------------------------------------------------------------------------- route


def responses(body: object) -> Script:
    """Return the script of `POST /v1/responses`.

    Args:
        body: The decoded JSON of the request; an invalid one gets an error.
    """
    try:
        exchange = ResponsesExchange(body)
    except Refused as wrong:
        return (replies.error(wrong.code, wrong.message, wrong.param, wrong.status),)
    message = f"The requested model '{exchange.model}' does not exist."
    unknown = replies.error("model_not_found", message, "model", 404)
    return respond(exchange, BEHAVIOURS, unknown)

"""A client for each of the four text formats.

    form.fields(model, TextRequest(...)) ─▶ the body of a request
    form.whole(bytes), form.streamed(bytes) ─▶ ParsedReply
    form.follow_up(body, reply, results) ─▶ the next body: the reply, then the tools' results

Nothing of the gateway is used here; the streams are checked for what clients rely on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.support.chat_chunks import choices_of
from tests.support.stream_checks import completions as completions_stream_checks
from tests.support.stream_checks import messages as messages_stream_checks
from tests.support.stream_checks import responses as responses_stream_checks
from tests.support.stream_checks.chat import check_stream as checked_chat

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PNG = "data:image/png;base64,AAAA"


@dataclass(frozen=True)
class TextRequest:
    """A request in no format's words."""

    text: str = "one two three"
    tools: tuple[str, ...] = ()
    forced: str | None = None
    one_call: bool = False
    image: bool = False
    json: bool = False
    stop: str | None = None
    limit: int | None = None
    thinks: bool | None = None


@dataclass(frozen=True)
class ParsedReply:
    """The content of a reply, in no format's words."""

    text: str = ""
    thought: str = ""
    refusal: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    end: str = ""
    tokens: int = 0
    """Tokens of the output."""
    raw: Any = field(default=None, compare=False, repr=False)
    """The part of the reply that a client sends back."""


class FormatClient(Protocol):
    """A client of one format."""

    path: str
    ends: Mapping[str, str]
    """Reason of the end -> the format's finish reason."""

    def fields(self, model: str, request: TextRequest) -> dict[str, Any]: ...

    def whole(self, body: bytes) -> ParsedReply: ...

    def streamed(self, body: bytes) -> ParsedReply: ...

    def follow_up(
        self, body: dict[str, Any], reply: ParsedReply, results: list[str]
    ) -> dict[str, Any]: ...


def present_fields(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


class Chat:
    path = "/chat/completions"
    ends: Mapping[str, str] = {
        "stop": "stop",
        "length": "length",
        "calls": "tool_calls",
        "refusal": "stop",
    }

    def fields(self, model: str, request: TextRequest) -> dict[str, Any]:
        image = [{"type": "image_url", "image_url": {"url": PNG}}] if request.image else []
        content = [*image, {"type": "text", "text": request.text}]
        forced = {"type": "function", "function": {"name": request.forced}}
        schema = {"name": "city", "schema": CITY, "strict": True}
        functions = [{"name": name, "parameters": CITY} for name in request.tools]
        return present_fields(
            model=model,
            messages=[{"role": "user", "content": content}],
            tools=[{"type": "function", "function": each} for each in functions] or None,
            tool_choice=forced if request.forced else None,
            parallel_tool_calls=False if request.one_call else None,
            response_format={"type": "json_schema", "json_schema": schema}
            if request.json
            else None,
            stop=request.stop,
            max_tokens=request.limit,
            reasoning_effort=None
            if request.thinks is None
            else "low"
            if request.thinks
            else "none",
        )

    def whole(self, body: bytes) -> ParsedReply:
        reply = json.loads(body)
        return self._reply(reply["choices"][0], reply["usage"])

    def streamed(self, body: bytes) -> ParsedReply:
        seen = checked_chat(body)
        return self._reply(choices_of(seen.chunks)[0], seen.last["usage"])

    def follow_up(
        self, body: dict[str, Any], reply: ParsedReply, results: list[str]
    ) -> dict[str, Any]:
        calls = reply.raw.get("tool_calls", ())
        answers = [
            {"role": "tool", "tool_call_id": call["id"], "content": result}
            for call, result in zip(calls, results, strict=True)
        ]
        next_turn = answers or [{"role": "user", "content": "and then?"}]
        return body | {"messages": [*body["messages"], reply.raw, *next_turn]}

    def _reply(self, choice: dict[str, Any], usage: dict[str, Any]) -> ParsedReply:
        message = choice["message"]
        calls = [each["function"] for each in message.get("tool_calls", ())]
        return ParsedReply(
            text=message["content"] or "",
            thought=message.get("reasoning") or message.get("reasoning_content") or "",
            refusal=message["refusal"],
            calls=tuple((each["name"], json.loads(each["arguments"] or "{}")) for each in calls),
            end=choice["finish_reason"],
            tokens=usage["completion_tokens"],
            raw=message,
        )


class Responses:
    path = "/responses"
    ends: Mapping[str, str] = {
        "stop": "completed",
        "length": "max_output_tokens",
        "calls": "completed",
        "refusal": "completed",
    }

    def fields(self, model: str, request: TextRequest) -> dict[str, Any]:
        image = [{"type": "input_image", "image_url": PNG}] if request.image else []
        content = [*image, {"type": "input_text", "text": request.text}]
        shape = {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}
        tools = [{"type": "function", "name": each, "parameters": CITY} for each in request.tools]
        effort = "low" if request.thinks else "none"
        return present_fields(
            model=model,
            input=[{"role": "user", "content": content}],
            tools=tools or None,
            tool_choice={"type": "function", "name": request.forced} if request.forced else None,
            parallel_tool_calls=False if request.one_call else None,
            text={"format": shape} if request.json else None,
            max_output_tokens=request.limit,
            reasoning=None if request.thinks is None else {"effort": effort},
        )

    def whole(self, body: bytes) -> ParsedReply:
        response = json.loads(body)
        responses_stream_checks.check_response(response)
        return self._reply(response)

    def streamed(self, body: bytes) -> ParsedReply:
        seen = responses_stream_checks.check_stream(body)
        assert not seen.failed
        return self._reply(seen.response)

    def follow_up(
        self, body: dict[str, Any], reply: ParsedReply, results: list[str]
    ) -> dict[str, Any]:
        calls = [item for item in reply.raw if item["type"] == "function_call"]
        answers = [
            {"type": "function_call_output", "call_id": call["call_id"], "output": result}
            for call, result in zip(calls, results, strict=True)
        ]
        next_turn = answers or [{"role": "user", "content": "and then?"}]
        return body | {"input": [*body["input"], *reply.raw, *next_turn]}

    def _reply(self, response: dict[str, Any]) -> ParsedReply:
        items = response["output"]
        parts = [part for each in items if each["type"] == "message" for part in each["content"]]
        thoughts = [
            part
            for item in items
            if item["type"] == "reasoning"
            for part in [*item["summary"], *item.get("content", ())]
        ]
        refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
        calls = [item for item in items if item["type"] == "function_call"]
        why = response["incomplete_details"]
        return ParsedReply(
            text="".join(part["text"] for part in parts if part["type"] == "output_text"),
            thought="".join(part["text"] for part in thoughts),
            refusal="".join(refusals) or None,
            calls=tuple((each["name"], json.loads(each["arguments"] or "{}")) for each in calls),
            end=why["reason"] if why else response["status"],
            tokens=response["usage"]["output_tokens"],
            raw=items,
        )


class Messages:
    path = "/messages"
    ends: Mapping[str, str] = {
        "stop": "end_turn",
        "length": "max_tokens",
        "calls": "tool_use",
        "refusal": "refusal",
    }

    def fields(self, model: str, request: TextRequest) -> dict[str, Any]:
        source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
        image = [{"type": "image", "source": source}] if request.image else []
        content = [*image, {"type": "text", "text": request.text}]
        choice = {"type": "tool", "name": request.forced} if request.forced else None
        if request.one_call:
            choice = {"type": "auto", "disable_parallel_tool_use": True}
        budget = {"type": "enabled", "budget_tokens": 1024}
        return present_fields(
            model=model,
            messages=[{"role": "user", "content": content}],
            max_tokens=request.limit or 2_000,
            tools=[{"name": name, "input_schema": CITY} for name in request.tools] or None,
            tool_choice=choice,
            output_config={"format": {"type": "json_schema", "schema": CITY}}
            if request.json
            else None,
            stop_sequences=[request.stop] if request.stop else None,
            thinking=None if request.thinks is None else budget if request.thinks else _DISABLED,
        )

    def whole(self, body: bytes) -> ParsedReply:
        message = json.loads(body)
        messages_stream_checks.check_usage(message["usage"])
        return self._reply(message["content"], message["stop_reason"], message["usage"])

    def streamed(self, body: bytes) -> ParsedReply:
        seen = messages_stream_checks.check_stream(body)
        assert seen.last is not None
        blocks = [
            _filled(block, texts) for block, texts in zip(seen.blocks, seen.texts, strict=True)
        ]
        return self._reply(blocks, seen.last["delta"]["stop_reason"], seen.last["usage"])

    def follow_up(
        self, body: dict[str, Any], reply: ParsedReply, results: list[str]
    ) -> dict[str, Any]:
        calls = [block for block in reply.raw if block["type"] == "tool_use"]
        answers = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": result}
            for call, result in zip(calls, results, strict=True)
        ]
        turns = [
            {"role": "assistant", "content": reply.raw},
            {"role": "user", "content": answers or "and then?"},
        ]
        return body | {"messages": [*body["messages"], *turns]}

    def _reply(
        self, blocks: list[dict[str, Any]], reason: str, usage: dict[str, Any]
    ) -> ParsedReply:
        def all_of(kind: str, name: str) -> str:
            return "".join(block[name] for block in blocks if block["type"] == kind)

        calls = [block for block in blocks if block["type"] == "tool_use"]
        said = all_of("text", "text")
        return ParsedReply(
            text="" if reason == "refusal" else said,
            thought=all_of("thinking", "thinking"),
            refusal=said if reason == "refusal" else None,
            calls=tuple((each["name"], each["input"]) for each in calls),
            end=reason,
            tokens=usage["output_tokens"],
            raw=blocks,
        )


_DISABLED = {"type": "disabled"}


def _filled(block: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    if block["type"] == "tool_use":
        return block | {"input": json.loads(texts.get("partial_json") or "{}")}
    return block | texts


class Completions:
    path = "/completions"
    ends: Mapping[str, str] = {"stop": "stop", "length": "length", "refusal": "stop"}

    def fields(self, model: str, request: TextRequest) -> dict[str, Any]:
        return present_fields(
            model=model, prompt=request.text, stop=request.stop, max_tokens=request.limit
        )

    def whole(self, body: bytes) -> ParsedReply:
        reply = json.loads(body)
        return self._reply(reply["choices"], reply["usage"])

    def streamed(self, body: bytes) -> ParsedReply:
        seen = completions_stream_checks.check_stream(body)
        return self._reply(seen.choices, seen.last["usage"])

    def follow_up(
        self, body: dict[str, Any], reply: ParsedReply, results: list[str]
    ) -> dict[str, Any]:
        raise NotImplementedError

    def _reply(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> ParsedReply:
        return ParsedReply(
            text="".join(choice["text"] for choice in choices),
            end=next(each["finish_reason"] for each in choices if each["finish_reason"]),
            tokens=usage["completion_tokens"],
        )

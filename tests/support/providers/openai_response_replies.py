"""Renders the responses API of the OpenAI stub: the response object, its items and its events.

    ResponsesReply ── body() ──▶ one JSON object
                   ── events() ▶ created, in_progress, items (added, deltas, done), completed

The stream is made from the whole response, so both have the same content. There is no `[DONE]`.

Source: https://platform.openai.com/docs/api-reference/responses/object,
https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tests.support.providers.openai_replies import CREATED, whole
from tests.support.providers.stub_text import JsonObject, pieces, signed, token

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ECHOED: Final[JsonObject] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "metadata": {},
}
"""The request fields that a response repeats, with their defaults."""


def error(code: str | None, message: str, param: str | None = None, status: int = 400) -> bytes:
    fields = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return whole(status, msgspec.json.encode({"error": fields}))


# -------------------------------------------------------------------------------------- items


def message_item(part: JsonObject, status: str = "completed") -> JsonObject:
    item = {"type": "message", "id": "msg_tollhouse", "status": status, "role": "assistant"}
    return item | {"content": [part]}


def text_part(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def refusal_part(text: str) -> JsonObject:
    return {"type": "refusal", "refusal": text}


def function_call(number: int, name: str, arguments: JsonObject) -> JsonObject:
    text = msgspec.json.encode(arguments).decode()
    ids = {"id": f"fc_{number}", "call_id": f"call_{number}"}
    return {"type": "function_call", **ids, "name": name, "arguments": text, "status": "completed"}


def custom_tool_call(number: int, name: str, text: str) -> JsonObject:
    """Return a custom tool call item; its input is free text."""
    ids = {"id": f"ctc_{number}", "call_id": f"call_{number}"}
    return {"type": "custom_tool_call", **ids, "name": name, "input": text}


def reasoning_item(thought: str, *, summarised: bool, encrypted: bool) -> JsonObject:
    """Return a reasoning item, with as much of it as the request wants."""
    summary = [{"type": "summary_text", "text": thought}] if summarised else []
    item: JsonObject = {"type": "reasoning", "id": f"rs_{signed('', thought)[1:]}"}
    hidden = {"encrypted_content": token("enc", thought)} if encrypted else {}
    return item | {"summary": summary} | hidden


# ------------------------------------------------------------------------------------- response


def usage_of(fresh: int, output: int, *, cached: int = 0, reasoning: int = 0) -> JsonObject:
    return {
        "input_tokens": fresh,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": fresh + output,
    }


@dataclass(frozen=True, slots=True)
class ResponsesReply:
    """The output of a response, and how it ended."""

    asked: JsonObject
    """The request's fields."""
    output: Sequence[JsonObject]
    usage: JsonObject
    incomplete: str | None = None
    """The reason why the response is incomplete."""

    def body(self) -> bytes:
        return msgspec.json.encode(self._ended())

    def events(self) -> list[bytes]:
        """Return the events of the stream, from `response.created` to the terminal one."""
        last = "incomplete" if self.incomplete else "completed"
        return self._numbered(f"response.{last}", self._ended())

    def failed_events(self) -> list[bytes]:
        """Return the events of a stream that fails after its first delta."""
        failure = {"code": "server_error", "message": "The server had an error."}
        failed = self._object("failed", []) | {"error": failure}
        events = self._numbered("response.failed", failed)
        first = next(at for at, each in enumerate(events) if b".delta" in each)
        last = msgspec.json.decode(events[-1].partition(b"data: ")[2])
        return [*events[: first + 1], _event(last | {"sequence_number": first + 1})]

    def _numbered(self, last: str, ended: JsonObject) -> list[bytes]:
        started = self._object("in_progress", [])
        events = [
            {"type": "response.created", "response": started},
            {"type": "response.in_progress", "response": started},
            *(each for at, item in enumerate(self.output) for each in _item(at, item)),
            {"type": last, "response": ended},
        ]
        return [_event(each | {"sequence_number": at}) for at, each in enumerate(events)]

    def _ended(self) -> JsonObject:
        ended = self._object("incomplete" if self.incomplete else "completed", self.output)
        details = {"reason": self.incomplete} if self.incomplete else None
        completed = None if self.incomplete else CREATED + 1
        return ended | {
            "incomplete_details": details,
            "completed_at": completed,
            "usage": self.usage,
        }

    def _object(self, status: str, output: Sequence[JsonObject]) -> JsonObject:
        echoed = {key: self.asked.get(key, usual) for key, usual in _ECHOED.items()}
        echoed["tools"] = [_as_published(tool) for tool in echoed["tools"] or ()]
        return echoed | {
            "id": "resp_tollhouse",
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.asked["model"],
            "output": output,
            "reasoning": {"effort": None, "summary": None} | (self.asked.get("reasoning") or {}),
            "service_tier": "default",
            "text": {"format": {"type": "text"}, "verbosity": "medium"}
            | (self.asked.get("text") or {}),
            "usage": None,
        }


def _as_published(tool: JsonObject) -> JsonObject:
    usual: JsonObject = {"parameters": {}, "strict": True} if tool["type"] == "function" else {}
    return usual | tool


# -------------------------------------------------------------------------------------- events


def _event(fields: JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (fields["type"].encode(), msgspec.json.encode(fields))


def _item(index: int, item: JsonObject) -> Iterator[JsonObject]:
    """Yield the events of one item: added without content, its deltas, done."""
    at: JsonObject = {"output_index": index}
    started = {"status": "in_progress"} if "status" in item else {}
    empty = _EMPTY[item["type"]] | started
    yield {"type": "response.output_item.added", "item": item | empty} | at
    yield from _FILLED[item["type"]](item, at | {"item_id": item["id"]})
    yield {"type": "response.output_item.done", "item": item} | at


_EMPTY: Final[dict[str, JsonObject]] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}


def _filled_message(item: JsonObject, at: JsonObject) -> Iterator[JsonObject]:
    for index, part in enumerate(item["content"]):
        here = at | {"content_index": index}
        key = "text" if part["type"] == "output_text" else "refusal"
        name = f"response.{part['type']}"
        more: JsonObject = {"logprobs": []} if key == "text" else {}
        yield {"type": "response.content_part.added", "part": part | {key: ""}} | here
        for piece in pieces(part[key]):
            yield {"type": f"{name}.delta", "delta": piece} | more | here
        yield {"type": f"{name}.done", key: part[key]} | more | here
        yield {"type": "response.content_part.done", "part": part} | here


def _filled_reasoning(item: JsonObject, at: JsonObject) -> Iterator[JsonObject]:
    for index, part in enumerate(item["summary"]):
        here = at | {"summary_index": index}
        name = "response.reasoning_summary_text"
        yield {"type": "response.reasoning_summary_part.added", "part": part | {"text": ""}} | here
        for piece in pieces(part["text"]):
            yield {"type": f"{name}.delta", "delta": piece} | here
        yield {"type": f"{name}.done", "text": part["text"]} | here
        yield {"type": "response.reasoning_summary_part.done", "part": part} | here


def _filled_function_call(item: JsonObject, at: JsonObject) -> Iterator[JsonObject]:
    name, text = "response.function_call_arguments", item["arguments"]
    for start in range(0, len(text), 5):
        yield {"type": f"{name}.delta", "delta": text[start : start + 5]} | at
    yield {"type": f"{name}.done", "arguments": text} | at


def _filled_custom_tool_call(item: JsonObject, at: JsonObject) -> Iterator[JsonObject]:
    for piece in pieces(item["input"]):
        yield {"type": "response.custom_tool_call_input.delta", "delta": piece} | at
    yield {"type": "response.custom_tool_call_input.done", "input": item["input"]} | at


_FILLED: Final = {
    "message": _filled_message,
    "reasoning": _filled_reasoning,
    "function_call": _filled_function_call,
    "custom_tool_call": _filled_custom_tool_call,
}

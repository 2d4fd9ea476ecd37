"""Whole replies as the streams that were asked for: some servers do not stream. Pure.

    events_of(Dialect.CHAT, b'{"object": "chat.completion", ...}')  -> [chunk, b"[DONE]"]

The other way, a stream in place of a whole reply, is `TranslatingAdapter.parse_response`.

Source: the references of the streams of OpenAI (chat, responses) and Anthropic (messages).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tollhouse.inference.formats.wire import DONE, encoder, replace_invalid_text, try_decode
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Reply = dict[str, Any]

_LINE: Final = re.compile(rb"\{.*\}")
"""Of a body of JSON lines, each of which is an event."""
_object: Final = msgspec.json.Decoder(dict[str, Any])


def events_of(dialect: Dialect, body: bytes) -> list[bytes]:
    """Return the data of the events that say what a whole reply says; none if it is none."""
    reply = try_decode(_object, replace_invalid_text(body))
    if dialect not in _EVENTS:
        return []
    if reply is None:
        lines = [line for each in body.splitlines() if (line := each.strip())]
        return lines if all(map(_LINE.fullmatch, lines)) else []
    try:
        return [each if each == DONE else encoder.encode(each) for each in _EVENTS[dialect](reply)]
    except (LookupError, TypeError, AttributeError, ValueError):
        return []  # of another shape


def _of_chat(reply: Reply) -> Iterator[Any]:
    choices = [
        {"logprobs": None}
        | {name: value for name, value in choice.items() if name != "message"}
        | {"delta": choice["message"]}
        for choice in reply["choices"]
    ]
    if choices:
        yield reply | {"object": "chat.completion.chunk", "choices": choices}
        yield DONE


def _of_completions(reply: Reply) -> Iterator[Any]:
    if reply["choices"][0]["finish_reason"]:
        yield reply
        yield DONE


_DELTAS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "text": (("text", "text_delta"),),
    "thinking": (("thinking", "thinking_delta"), ("signature", "signature_delta")),
}
"""The fields of blocks that come in deltas, and the types of these."""


def _of_messages(reply: Reply) -> Iterator[Any]:
    if reply["type"] != "message":
        return
    yield {"type": "message_start", "message": reply | {"content": [], "stop_reason": None}}
    for index, block in enumerate(reply["content"]):
        deltas = _DELTAS.get(block["type"], ())
        empty: Reply = {"input": {}} if block["type"] == "tool_use" else {}
        empty |= {name: "" for name, _ in deltas if name in block}
        place = {"index": index}
        yield place | {"type": "content_block_start", "content_block": block | empty}
        said = [{"type": kind, name: block[name]} for name, kind in deltas if block.get(name)]
        if block["type"] == "tool_use":
            text = encoder.encode(block["input"]).decode()
            said.append({"type": "input_json_delta", "partial_json": text})
        for delta in said:
            yield place | {"type": "content_block_delta", "delta": delta}
        yield place | {"type": "content_block_stop"}
    end = {name: reply.get(name) for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_delta", "delta": end, "usage": reply.get("usage")}
    yield {"type": "message_stop"}


_PARTS: Final = {"output_text": ("text", "output_text"), "refusal": ("refusal", "refusal")}
"""The fields of parts that come in deltas, and what their events are called."""


def _of_responses(reply: Reply) -> Iterator[Any]:
    if reply["object"] != "response":
        return
    begun: Reply = reply | {"output": [], "status": "in_progress", "usage": None}
    yield {"type": "response.created", "response": begun}
    for index, item in enumerate(reply["output"]):
        at = {"output_index": index}
        parts = item.get("content") if item["type"] == "message" else None
        yield at | {
            "type": "response.output_item.added",
            "item": item if parts is None else item | {"content": []},
        }
        for number, part in enumerate(parts or ()):
            name, kind = _PARTS[part["type"]]
            inside = at | {"item_id": item.get("id"), "content_index": number}
            opened = inside | {"type": "response.content_part.added"}
            yield opened | {"part": part | {name: ""}}
            yield inside | {"type": f"response.{kind}.delta", "delta": part[name], "logprobs": []}
            yield inside | {"type": f"response.{kind}.done", name: part[name], "logprobs": []}
            yield inside | {"type": "response.content_part.done", "part": part}
        yield at | {"type": "response.output_item.done", "item": item}
    end = "incomplete" if reply.get("status") == "incomplete" else "completed"
    yield {"type": f"response.{end}", "response": reply}


_EVENTS: Final[Mapping[Dialect, Callable[[Reply], Iterator[Any]]]] = {
    Dialect.CHAT: _of_chat,
    Dialect.COMPLETIONS: _of_completions,
    Dialect.MESSAGES: _of_messages,
    Dialect.RESPONSES: _of_responses,
}

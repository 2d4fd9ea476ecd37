"""Writes what a stub says as OpenAI's responses and their events; there is no `[DONE]`.

Source: https://platform.openai.com/docs/api-reference/responses/object,
https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from tests.support.providers import openai_errors
from tests.support.providers.stub_reply import Said, in_fives
from tests.support.providers.stub_text import JsonObject, pieces, signed, token

framing: Final = openai_errors.FRAMING
error = openai_errors.error
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
_EMPTY: Final[dict[str, JsonObject]] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}


def unknown(model: str) -> bytes:
    return error(404, f"The requested model '{model}' does not exist.", param="model")


def whole(said: Said) -> bytes:
    return msgspec.json.encode(_ended(said))


def events(said: Said) -> list[bytes]:
    """Return the events of the stream, from `response.created` to the terminal one."""
    started, ended = _object(said, "in_progress"), _ended(said)
    listed: list[JsonObject] = [
        {"type": "response.created", "response": started},
        {"type": "response.in_progress", "response": started},
        *(each for at, item in enumerate(_output(said)) for each in _item(at, item)),
        {"type": f"response.{ended['status']}", "response": ended},
    ]
    return [_event(each | {"sequence_number": at}) for at, each in enumerate(listed)]


def failure(said: Said, at: int) -> bytes:
    told = {"code": "server_error", "message": "The server had an error."}
    failed = _object(said, "failed") | {"error": told}
    return _event({"type": "response.failed", "response": failed, "sequence_number": at})


def _event(fields: JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (fields["type"].encode(), msgspec.json.encode(fields))


# -------------------------------------------------------------------------------------- objects


def _output(said: Said) -> list[JsonObject]:
    output: list[JsonObject] = []
    if said.thought:
        summary = [{"type": "summary_text", "text": said.thought}] if said.shown else []
        item = {"type": "reasoning", "id": f"rs_{signed('', said.thought)[1:]}", "summary": summary}
        sealed = {"encrypted_content": token("enc", said.thought)} if said.sealed else {}
        output.append(item | sealed)
    if said.text or not said.calls:
        part: JsonObject = {"type": "refusal", "refusal": said.text}
        if not said.refuses:
            part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
        status = "incomplete" if said.cut else "completed"
        item = {"type": "message", "id": "msg_tollhouse", "status": status, "role": "assistant"}
        output.append(item | {"content": [part]})
    for number, call in enumerate(said.calls, start=1):
        ids = {"call_id": f"call_{number}", "name": call.name}
        if call.custom:
            custom = {"type": "custom_tool_call", "id": f"ctc_{number}", **ids}
            output.append(custom | {"input": call.arguments})
        else:
            function = {"type": "function_call", "id": f"fc_{number}", **ids}
            output.append(function | {"arguments": call.arguments, "status": "completed"})
    return output


def _ended(said: Said) -> JsonObject:
    used = said.used
    fresh = used.fresh + used.read
    return _object(said, "incomplete" if said.cut else "completed") | {
        "incomplete_details": {"reason": "max_output_tokens"} if said.cut else None,
        "completed_at": None if said.cut else openai_errors.CREATED + 1,
        "output": _output(said),
        "usage": {
            "input_tokens": fresh,
            "input_tokens_details": {"cached_tokens": used.read, "cache_write_tokens": 0},
            "output_tokens": used.output,
            "output_tokens_details": {"reasoning_tokens": used.thinking},
            "total_tokens": fresh + used.output,
        },
    }


def _object(said: Said, status: str) -> JsonObject:
    asked = said.asked
    echoed = {key: asked.get(key, usual) for key, usual in _ECHOED.items()}
    echoed["tools"] = [_as_published(tool) for tool in echoed["tools"] or ()]
    return echoed | {
        "id": "resp_tollhouse",
        "object": "response",
        "created_at": openai_errors.CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": asked["model"],
        "output": [],
        "reasoning": {"effort": None, "summary": None} | (asked.get("reasoning") or {}),
        "service_tier": "default",
        "text": {"format": {"type": "text"}, "verbosity": "medium"} | (asked.get("text") or {}),
        "usage": None,
    }


def _as_published(tool: JsonObject) -> JsonObject:
    usual: JsonObject = {"parameters": {}, "strict": True} if tool["type"] == "function" else {}
    return usual | tool


# -------------------------------------------------------------------------------------- events


def _item(index: int, item: JsonObject) -> Iterator[JsonObject]:
    """Yield the events of one item: added without content, its deltas, done."""
    at: JsonObject = {"output_index": index}
    started = {"status": "in_progress"} if "status" in item else {}
    yield {"type": "response.output_item.added", "item": item | _EMPTY[item["type"]] | started} | at
    yield from _filled(item, at | {"item_id": item["id"]})
    yield {"type": "response.output_item.done", "item": item} | at


def _filled(item: JsonObject, at: JsonObject) -> Iterator[JsonObject]:
    match item["type"]:
        case "message":
            [part] = item["content"]
            key = "text" if part["type"] == "output_text" else "refusal"
            more: JsonObject = {"logprobs": []} if key == "text" else {}
            here = at | {"content_index": 0}
            yield from _part("content_part", part["type"], part, key, here, more)
        case "reasoning":
            for index, part in enumerate(item["summary"]):
                here, name = at | {"summary_index": index}, "reasoning_summary"
                yield from _part(f"{name}_part", f"{name}_text", part, "text", here, {})
        case "function_call":
            name, text = "function_call_arguments", item["arguments"]
            yield from _pieces(name, in_fives(text), {"arguments": text}, at)
        case _:
            name, text = "custom_tool_call_input", item["input"]
            yield from _pieces(name, pieces(text), {"input": text}, at)


def _part(
    outer: str, inner: str, part: JsonObject, key: str, at: JsonObject, more: JsonObject
) -> Iterator[JsonObject]:
    yield {"type": f"response.{outer}.added", "part": part | {key: ""}} | at
    yield from _pieces(inner, pieces(part[key]), {key: part[key]}, more | at)
    yield {"type": f"response.{outer}.done", "part": part} | at


def _pieces(name: str, listed: list[str], done: JsonObject, at: JsonObject) -> Iterator[JsonObject]:
    for piece in listed:
        yield {"type": f"response.{name}.delta", "delta": piece} | at
    yield {"type": f"response.{name}.done"} | done | at

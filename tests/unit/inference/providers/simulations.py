"""Requests to the simulated provider, and its streams joined as by a client."""

from __future__ import annotations

import json
from typing import Any

from tollhouse.inference.formats.chat_completions.passthrough import ChatPassthroughAdapter
from tollhouse.inference.formats.chat_completions.wire import parse_request
from tollhouse.inference.ports import ProviderCall
from tollhouse.inference.providers.simulated.models import SLUG, models
from tollhouse.inference.providers.simulated.provider import NAME, SimulatedProvider, SimulatedReply
from tollhouse.inference.types import Dialect

PROVIDER = SimulatedProvider(NAME, "cancel")
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}


def asked(content: object, **fields: Any) -> dict[str, Any]:
    return {"model": "simulated/echo", "messages": [{"role": "user", "content": content}]} | fields


def tool(name: str, parameters: object = None) -> dict[str, Any]:
    given = {} if parameters is None else {"parameters": parameters}
    return {"type": "function", "function": {"name": name, **given}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


async def opened(
    body: dict[str, Any], model: str = "echo", provider: SimulatedProvider = PROVIDER
) -> SimulatedReply:
    [endpoint] = [each.endpoints[0] for each in models() if each.id == f"{SLUG}/{model}"]
    request = parse_request(json.dumps(body).encode())
    asked_ = ChatPassthroughAdapter(request).render_request(endpoint)
    reply = await provider.open(ProviderCall(endpoint, Dialect.CHAT, request.stream, asked_))
    assert isinstance(reply, SimulatedReply)
    return reply


async def whole(body: dict[str, Any], model: str = "echo") -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(await (await opened(body, model)).whole())
    return reply


async def message(body: dict[str, Any], model: str = "echo") -> dict[str, Any]:
    said: dict[str, Any] = (await whole(body, model))["choices"][0]["message"]
    return said


async def said(body: dict[str, Any], model: str = "echo") -> str:
    content: str = (await message(body, model))["content"]
    return content


async def called(body: dict[str, Any], model: str = "echo") -> list[Any]:
    """Return the name and the arguments of each call."""
    calls = [each["function"] for each in (await message(body, model)).get("tool_calls", ())]
    return [[each["name"], json.loads(each["arguments"])] for each in calls]


async def streamed(body: dict[str, Any], model: str = "echo") -> list[bytes]:
    said: list[bytes] = []
    assert await (await opened(body, model)).relay(lambda events: not said.extend(events))
    return said


async def chunks(body: dict[str, Any], model: str = "echo") -> list[dict[str, Any]]:
    *events, done = await streamed(body, model)
    assert done == b"[DONE]"
    return [json.loads(data) for data in events]


async def deltas(body: dict[str, Any], model: str = "echo") -> list[dict[str, Any]]:
    parts = await chunks(body, model)
    return [choice["delta"] for chunk in parts for choice in chunk["choices"]]


async def added_up(body: dict[str, Any], model: str = "echo") -> dict[str, Any]:
    """Return the complete response of a stream."""
    parts = await chunks(body, model)
    return {
        "id": parts[0]["id"],
        "object": "chat.completion",
        "model": parts[0]["model"],
        "system_fingerprint": parts[0]["system_fingerprint"],
        "choices": choices_of(parts),
        "usage": parts[-1]["usage"],
    }


def choices_of(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the choices of a stream's chunks."""
    choices: dict[int, dict[str, Any]] = {}
    for choice in [each for chunk in parts for each in chunk["choices"]]:
        _add(choices.setdefault(choice["index"], _blank(choice["index"])), choice)
    return [choices[index] for index in sorted(choices)]


def _blank(index: int) -> dict[str, Any]:
    message_ = {"role": "assistant", "content": None, "refusal": None}
    return {"index": index, "message": message_, "logprobs": None, "finish_reason": None}


def _add_detail(details: list[dict[str, Any]], detail: dict[str, Any]) -> None:
    place = (detail["type"], detail.get("index"))
    known = next((each for each in details if (each["type"], each.get("index")) == place), None)
    if known is None:
        details.append({**detail})
    else:
        text = (known.get("text") or "") + (detail.get("text") or "")
        known |= detail | {"text": text}


def _add(reply: dict[str, Any], choice: dict[str, Any]) -> None:
    assert reply["finish_reason"] is None
    reply["finish_reason"] = choice["finish_reason"]
    so_far, delta = reply["message"], choice["delta"]
    for name in ("content", "refusal", "reasoning", "reasoning_content"):
        if delta.get(name) is not None:
            so_far[name] = (so_far.get(name) or "") + delta[name]
    if choice["logprobs"] is not None:
        logprobs = reply["logprobs"] or {"content": [], "refusal": None}
        reply["logprobs"] = logprobs | {
            "content": logprobs["content"] + choice["logprobs"]["content"]
        }
    for detail in delta.get("reasoning_details", ()):
        _add_detail(so_far.setdefault("reasoning_details", []), detail)
    for call in delta.get("tool_calls", ()):
        calls = so_far.setdefault("tool_calls", [])
        if call["index"] == len(calls):
            calls.append({name: call[name] for name in ("id", "type", "function")})
        else:
            calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]

"""Talks to the stand-in for Anthropic with the `anthropic` library; prints what it saw as JSON.

Every reply is parsed by the library and validated again with its strict types; `unknown` lists the
fields that these do not have. Environment: ORIGIN.
"""

import asyncio
import json
import os
from functools import partial

import anthropic
import pydantic
from anthropic.types import Message, RawMessageStreamEvent

OPTIONS = {"base_url": os.environ["ORIGIN"], "api_key": "test", "max_retries": 0}
MESSAGES = [{"role": "user", "content": "one two three"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = [
    {"name": "weather", "description": "?", "input_schema": CITY},
    {"name": "time", "input_schema": {"type": "object", "properties": {}}},
]
IMAGE = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
THINKING = {"type": "enabled", "budget_tokens": 1024}
KINDS = {
    "echo": {},
    "fixed": {},
    "cached": {},
    "refusal": {},
    "ping": {},
    "tools": {"tools": TOOLS},
    "two-tools": {"tools": TOOLS},
    "thinking": {"thinking": THINKING},
    "redacted": {"thinking": {"type": "adaptive"}},
    "json": {"output_config": {"format": {"type": "json_schema", "schema": CITY}}},
    "stop-reason:pause_turn": {},
}
EVENTS = pydantic.TypeAdapter(RawMessageStreamEvent)


class Forecast(pydantic.BaseModel):
    city: str
    days: int


def unknown(model, path="") -> list[str]:
    """Return the fields that the library's types do not have."""
    if isinstance(model, list):
        return [name for at, each in enumerate(model) for name in unknown(each, f"{path}[{at}]")]
    if not isinstance(model, pydantic.BaseModel):
        return []
    extra = [f"{path}.{name}" for name in model.model_extra or ()]
    fields = ((name, getattr(model, name)) for name in type(model).model_fields)
    return extra + [found for name, value in fields for found in unknown(value, f"{path}.{name}")]


def said(message) -> dict:
    return {
        "content": [block.to_dict() for block in message.content],
        "stop_reason": message.stop_reason,
        "stop_sequence": message.stop_sequence,
        "usage": message.usage.to_dict(),
    }


def ask(model: str, **more: object) -> dict:
    return {"model": model, "messages": MESSAGES, "max_tokens": 2000, **more}


def strict(client, kind: str) -> dict:
    """Return what a kind of reply says whole and streamed, and how far it is as published."""
    fields = ask(kind, **KINDS[kind])
    body = client.messages.with_raw_response.create(**fields).text()
    whole = Message.model_validate_json(body, strict=True)
    raw = client.messages.with_raw_response.create(**fields, stream=True).http_response.read()
    lines = [line for line in raw.decode().split("\n") if line.startswith("data: ")]
    parts = [json.loads(line.removeprefix("data: ")) for line in lines]
    events = [EVENTS.validate_python(part) for part in parts if part["type"] != "ping"]
    with client.messages.stream(**fields) as stream:
        final = stream.get_final_message()
    streamed = said(final)
    for block in streamed["content"]:
        block.pop("parsed_output", None)
    return {
        "whole": said(whole),
        "streamed": streamed,
        "unknown": unknown(whole) + [name for event in events for name in unknown(event)],
        "pings": sum(part["type"] == "ping" for part in parts),
    }


def refusal(call) -> dict:
    try:
        call()
    except anthropic.APIStatusError as error:
        kind = error.body["error"]["type"]
        return {"class": type(error).__name__, "status": error.status_code, "type": kind}
    except anthropic.APIError as error:
        return {"class": type(error).__name__}
    return {"class": None}


def conversation(client, model: str, **more: object) -> str:
    """Return what comes of it when a reply and the results of its calls go back."""
    reply = client.messages.create(**ask(model, **more))
    calls = [block for block in reply.content if block.type == "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": f"result {at}"}
        for at, call in enumerate(calls)
    ]
    messages = [*MESSAGES, {"role": "assistant", "content": reply.content}]
    messages += [{"role": "user", "content": results or "and then?"}]
    fields = ask(model, **more) | {"messages": messages}
    return client.messages.create(**fields).content[-1].text


def refusals(client) -> dict:
    nobody = {"Authorization": "Basic nobody"}
    models = [f"status:{status}" for status in (400, 401, 403, 404, 413, 429, 500, 529)]
    models += ["overloaded", "unknown"]
    found = {model: refusal(partial(client.messages.create, **ask(model))) for model in models}
    return found | {
        "no key": refusal(lambda: client.messages.create(**ask("echo"), extra_headers=nobody)),
        "extra": refusal(lambda: client.messages.create(**ask("echo"), extra_body={"n": 1})),
        "in stream": refusal(
            lambda: list(client.messages.create(**ask("error-in-stream"), stream=True))
        ),
    }


def synchronous() -> dict:
    with anthropic.Anthropic(**OPTIONS) as client:
        counted = client.messages.count_tokens(model="echo", messages=MESSAGES, system="be kind")
        picture = [{"type": "image", "source": IMAGE}, {"type": "text", "text": "look"}]
        seen = client.messages.create(
            **ask("echo") | {"messages": [{"role": "user", "content": picture}]}
        )
        parsed = client.messages.parse(
            **ask("json", output_format=Forecast),
        )
        stopped = client.messages.create(**ask("echo", stop_sequences=[" three", " two"]))
        return {
            "kinds": {kind: strict(client, kind) for kind in KINDS},
            "counted": counted.to_dict(),
            "image": seen.content[0].text,
            "parsed": parsed.parsed_output.model_dump(),
            "stopped": said(stopped),
            "cut": said(client.messages.create(**ask("echo") | {"max_tokens": 2})),
            "results": conversation(client, "two-tools", tools=TOOLS),
            "thought": conversation(client, "tools", tools=TOOLS, thinking=THINKING),
            "signed": conversation(client, "redacted", thinking=THINKING),
            "refusals": refusals(client),
        }


async def asynchronous() -> dict:
    async with anthropic.AsyncAnthropic(**OPTIONS) as client:
        reply = await client.messages.create(**ask("echo"))
        async with client.messages.stream(**ask("echo")) as stream:
            final = await stream.get_final_message()
        return {"whole": reply.content[0].text, "streamed": final.content[0].text}


print(json.dumps(synchronous() | {"async": asyncio.run(asynchronous())}))

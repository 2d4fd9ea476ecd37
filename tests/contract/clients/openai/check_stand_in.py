"""Talks to the stand-in for OpenAI with the `openai` library; prints what it saw as JSON.

Every reply is parsed by the library and validated again with its strict types; `unknown` lists the
fields that these do not have. Environment: ORIGIN.
"""

import asyncio
import json
import os
from functools import partial

import openai
import pydantic
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

OPTIONS = {"base_url": os.environ["ORIGIN"] + "/v1", "api_key": "test", "max_retries": 0}
MESSAGES = [{"role": "user", "content": "one two three"}]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FUNCTIONS = [
    {"name": "weather", "parameters": CITY, "strict": True},
    {"name": "time", "parameters": {"type": "object", "properties": {}}, "strict": False},
]
# Not strict: for a strict tool the library's helper parses arguments when the next call begins,
# and cannot read calls whose arguments come in turns.
LOOSE = [each | {"strict": False} for each in FUNCTIONS]
CHAT_TOOLS = {"tools": [{"type": "function", "function": each} for each in LOOSE]}
TOOLS = {"tools": [{"type": "function", **each} for each in FUNCTIONS]}
CUSTOM = {"tools": [{"type": "custom", "name": "shell"}]}
SCHEMA = {"name": "forecast", "schema": CITY, "strict": True}
ENCRYPTED = {"include": ["reasoning.encrypted_content"]}
CHATS = {
    "echo": {},
    "fixed": {},
    "cached": {},
    "refusal": {},
    "two-tools": CHAT_TOOLS,
    "reasoning": {},
    "reasoning-details": {},
    "json": {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
    "large-2026": {"n": 2, "logprobs": True, "top_logprobs": 1, "stop": [" three"]},
}
RESPONSES = {
    "echo": {},
    "fixed": {},
    "cached": {},
    "refusal": {},
    "tools": TOOLS,
    "two-tools": TOOLS,
    "custom": CUSTOM,
    "reasoning": {"reasoning": {"summary": "auto"}, **ENCRYPTED},
    "json": {"text": {"format": {"type": "json_schema", **SCHEMA}}},
    "content-filter": {},
}
CHUNK = pydantic.TypeAdapter(ChatCompletionChunk)
EVENT = pydantic.TypeAdapter(ResponseStreamEvent)


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


def parts(create) -> list:
    """Return the decoded events of a stream, `[DONE]` as it is."""
    raw = create(stream=True).http_response.read().decode()
    data = [line.removeprefix("data: ") for line in raw.split("\n") if line.startswith("data: ")]
    return [each if each == "[DONE]" else json.loads(each) for each in data]


def strict_chat(client, kind: str) -> dict:
    chat = client.chat.completions
    fields = {"model": kind, "messages": MESSAGES, **CHATS[kind]}
    create = partial(chat.with_raw_response.create, **fields)
    whole = ChatCompletion.model_validate_json(create().text, strict=True)
    *chunks, done = parts(create)
    with chat.stream(**fields, stream_options={"include_usage": True}) as stream:
        final = stream.get_final_completion()
    events = [CHUNK.validate_python(chunk) for chunk in chunks]
    return {
        "whole": said(whole),
        "streamed": said(final),
        "unknown": sorted({name for each in (whole, *events) for name in unknown(each)}),
        "done": done,
    }


def said(completion) -> dict:
    choices = [
        {
            "content": choice.message.content,
            "refusal": choice.message.refusal,
            "reason": choice.finish_reason,
            "thought": (choice.message.model_extra or {}).get("reasoning_content"),
            "tokens": [each.token for each in (choice.logprobs and choice.logprobs.content) or ()],
            "calls": [
                (call.id, call.function.name, call.function.arguments)
                for call in choice.message.tool_calls or ()
            ],
        }
        for choice in completion.choices
    ]
    return {"choices": choices, "tokens": completion.usage.total_tokens}


def strict_response(client, kind: str) -> dict:
    fields = {"model": kind, "input": "one two three", "store": False, **RESPONSES[kind]}
    create = partial(client.responses.with_raw_response.create, **fields)
    whole = Response.model_validate_json(create().text, strict=True)
    found = parts(create)
    events = [EVENT.validate_python(each) for each in found]
    with client.responses.stream(**fields) as stream:
        *_, last = stream
    return {
        "whole": whole.to_dict()["output"],
        "streamed": Response.model_validate(found[-1]["response"]).to_dict()["output"],
        "helper": [item.type for item in last.response.output],
        "same": found[-1]["response"] == json.loads(create().text),
        "text": whole.output_text,
        "status": whole.status,
        "usage": whole.usage.to_dict(),
        "unknown": sorted({name for each in (whole, *events) for name in unknown(each)}),
        "types": [each["type"] for each in found],
        "numbers": [each["sequence_number"] for each in found],
    }


def conversation(client, model: str, **more: object) -> str:
    """Return what comes of it when the output and the results of its calls go back."""
    ask = partial(client.responses.create, model=model, store=False, **more)
    output = ask(input="one two three").output
    said = [{"role": "user", "content": "one two three"}]
    said += [item.model_dump(exclude_none=True) for item in output]
    calls = [item for item in output if item.type.endswith("_call")]
    said += [
        {"type": f"{call.type}_output", "call_id": call.call_id, "output": f"result {at}"}
        for at, call in enumerate(calls)
    ]
    said += [] if calls else [{"role": "user", "content": "and then?"}]
    return ask(input=said).output_text


def refusal(call) -> dict:
    try:
        call()
    except openai.APIStatusError as error:
        return {"class": type(error).__name__, "status": error.status_code, "code": error.code}
    except openai.APIError as error:
        return {"class": type(error).__name__}
    return {"class": None}


def refusals(client) -> dict:
    ask = partial(client.responses.create, input="one", store=False)
    models = [f"status:{status}" for status in (400, 401, 403, 404, 429, 500)] + ["nothing"]
    found = {model: refusal(partial(ask, model=model)) for model in models}
    return found | {
        "extra": refusal(lambda: ask(model="echo", extra_body={"n": 1})),
        "stored": refusal(lambda: ask(model="echo", store=True)),
        "short": refusal(lambda: ask(model="echo", max_output_tokens=15)),
    }


def failing(client) -> dict:
    with client.responses.stream(model="error-in-stream", input="one two") as stream:
        *_, last = stream
    return {"type": last.type, "status": last.response.status, "code": last.response.error.code}


def synchronous() -> dict:
    with openai.OpenAI(**OPTIONS) as client:
        parsed = client.responses.parse(model="json", input="?", text_format=Forecast)
        picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
        look = {"type": "input_text", "text": "look"}
        seen = client.responses.create(
            model="echo", input=[{"role": "user", "content": [picture, look]}]
        )
        shown = [{"type": "image_url", "image_url": {"url": picture["image_url"]}}]
        shown += [{"type": "text", "text": "look"}]
        chat = client.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": shown}]
        )
        return {
            "chats": {kind: strict_chat(client, kind) for kind in CHATS},
            "responses": {kind: strict_response(client, kind) for kind in RESPONSES},
            "parsed": parsed.output_parsed.model_dump(),
            "image": [seen.output_text, chat.choices[0].message.content],
            "results": conversation(client, "two-tools", **TOOLS),
            "custom": conversation(client, "custom", **CUSTOM),
            "sealed": conversation(client, "reasoning", **ENCRYPTED),
            "refusals": refusals(client),
            "failed": failing(client),
        }


async def asynchronous() -> dict:
    async with openai.AsyncOpenAI(**OPTIONS) as client:
        reply = await client.responses.create(model="echo", input="one two three")
        return {"whole": reply.output_text}


print(json.dumps(synchronous() | {"async": asyncio.run(asynchronous())}))

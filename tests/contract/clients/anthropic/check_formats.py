"""Has every conversation in Anthropic's format with the `anthropic` library.

Environment: as `cells`, and ORIGIN.
"""

import json
import os

import anthropic
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from conversations import (
    CALLING,
    CITY,
    FORCED,
    LIMIT,
    LONG,
    NEXT,
    PNG,
    PREFILL,
    RESULTS,
    STOP,
    SYSTEM,
    TEXT,
    THINKING,
    TOOLS,
    TURNS,
    run,
    said,
)
from pydantic import TypeAdapter

OPTIONS = {"base_url": os.environ["ORIGIN"], "max_retries": 0}
BETAS = ["interleaved-thinking-2025-05-14", "a-beta-that-nobody-knows-2030-01-01"]
EVENT, BETA_EVENT = TypeAdapter(RawMessageStreamEvent), TypeAdapter(BetaRawMessageStreamEvent)
PLACES = ("user", "assistant", "user")
IMAGE = {"type": "base64", "media_type": "image/png", "data": PNG}
FEATURES = {
    "turns": {
        "system": SYSTEM,
        "messages": [{"role": r, "content": t} for r, t in zip(PLACES, TURNS, strict=True)],
    },
    "forced tool": {"tool_choice": {"type": "tool", "name": FORCED}},
    "image": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image", "source": IMAGE}, {"type": "text", "text": "look"}],
            }
        ]
    },
    "json": {"output_config": {"format": {"type": "json_schema", "schema": CITY}}},
    "stop": {"stop_sequences": [STOP]},
    "length": {"max_tokens": LIMIT, "messages": [{"role": "user", "content": LONG}]},
    "prefill": {
        "messages": [
            {"role": "user", "content": TEXT},
            {"role": "assistant", "content": PREFILL},
        ]
    },
}


def final(raw, adapter, helper) -> Message | BetaMessage:
    """Validate the raw events; return the helper's message with the cost, which it passes over."""
    lines = raw.http_response.read().decode().split("\n")
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    events = [event for event in data if json.loads(event)["type"] != "ping"]
    for event in events:
        adapter.validate_json(event, strict=True)
    cost = json.loads(events[-2])["usage"]["cost"]
    with helper as stream:
        message = stream.get_final_message()
    message.usage = message.usage.model_copy(update={"cost": cost})
    return message


class Messages:
    """`client.messages`."""

    def __init__(self, client) -> None:
        self._messages = client.messages

    def fields(self, model, feature) -> dict:
        usual = {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 2000}
        if feature in CALLING:
            tools = [{"name": name, "input_schema": schema} for name, schema in TOOLS.items()]
            usual["tools"] = tools
        if feature in THINKING:
            usual["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        return {"model": model} | usual | FEATURES.get(feature, {})

    def more(self, fields, reply) -> dict:
        calls = [block for block in reply.content if block.type == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": result}
            for call, result in zip(calls, RESULTS, strict=False)
        ]
        said = [
            {"role": "assistant", "content": reply.content},
            {"role": "user", "content": results or NEXT},
        ]
        later = {key: value for key, value in fields.items() if key != "tool_choice"}
        return later | {"messages": fields["messages"] + said}

    def whole(self, fields) -> Message:
        text = self._messages.with_raw_response.create(**fields).text()
        return Message.model_validate_json(text, strict=True)

    def streamed(self, fields) -> Message:
        raw = self._messages.with_raw_response.create(**fields, stream=True)
        return final(raw, EVENT, self._messages.stream(**fields))

    def said(self, reply) -> dict:
        def all_of(kind, name) -> list:
            return [getattr(block, name) for block in reply.content if block.type == kind]

        usage = reply.usage
        read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        calls = [block for block in reply.content if block.type == "tool_use"]
        return said(
            "".join(all_of("text", "text")),
            reason=reply.stop_reason,
            thought="".join(all_of("thinking", "thinking")),
            calls=[(call.name, json.dumps(call.input)) for call in calls],
            usage=(usage.input_tokens + read + written, usage.output_tokens, usage.cost),
            stop_sequence=reply.stop_sequence,
        )


class Beta(Messages):
    """`client.beta.messages`: `?beta=true` and beta headers."""

    def __init__(self, client) -> None:
        super().__init__(client.beta)

    def whole(self, fields) -> BetaMessage:
        text = self._messages.with_raw_response.create(**fields, betas=BETAS).text()
        return BetaMessage.model_validate_json(text, strict=True)

    def streamed(self, fields) -> BetaMessage:
        raw = self._messages.with_raw_response.create(**fields, betas=BETAS, stream=True)
        return final(raw, BETA_EVENT, self._messages.stream(**fields, betas=BETAS))


def say(spoken, dialect) -> dict:
    fields = spoken.fields(f"{dialect}/echo", "text")
    return {
        "whole": spoken.said(spoken.whole(fields)),
        "streamed": spoken.said(spoken.streamed(fields)),
    }


def beta(_spoken, dialect, _feature) -> dict:
    return say(Beta(shared), dialect)


def bearer(_spoken, dialect, _feature) -> dict:
    with anthropic.Anthropic(**OPTIONS, auth_token=os.environ["API_KEY"], api_key=None) as client:
        return say(Messages(client), dialect)


def count(_spoken, dialect, _feature) -> dict:
    fields = {"model": f"{dialect}/echo", "messages": [{"role": "user", "content": TEXT}]}
    native = shared.messages.count_tokens(**fields, system=SYSTEM)
    longer = shared.messages.count_tokens(**fields, system=SYSTEM + LONG)
    beta = shared.beta.messages.count_tokens(**fields, system=SYSTEM, betas=BETAS)
    return {
        "counted": native.input_tokens,
        "longer": longer.input_tokens,
        "beta": beta.input_tokens,
    }


def models(_spoken, dialect, _feature) -> dict:
    shown = shared.models.retrieve(f"{dialect}/echo")
    page = shared.models.list(limit=5)
    return {
        "one": [shown.id, shown.type, shown.max_input_tokens],
        "page": [len(page.data), page.has_more],
        "all": sum(1 for model in page if model.id.startswith(f"{dialect}/")),
    }


def error(spoken, dialect, feature) -> dict:
    """Return the library's exception, whole and streamed."""
    fields = spoken.fields(f"{dialect}/{feature.removeprefix('error ')}", "text")
    if feature == "error invalid":
        fields |= {"model": f"{dialect}/echo", "messages": [{"role": "user", "content": 7}]}
    create = (nobody if feature == "error no-key" else shared).messages.create
    return {
        "whole": refusal(lambda: create(**fields)),
        "streamed": refusal(lambda: list(create(**fields, stream=True))),
    }


def refusal(call) -> dict:
    try:
        call()
    except anthropic.APIStatusError as error:
        headers, request_id = error.response.headers, error.body["request_id"]
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "code": error.body["error"]["type"],
            "shape": sorted(error.body.keys() - {"metadata"}),
            "request id": request_id and request_id[:4],
            "retry after": headers.get("retry-after"),
        }
    return {"class": None}


shared = anthropic.Anthropic(**OPTIONS, api_key=os.environ["API_KEY"])
nobody = anthropic.Anthropic(**OPTIONS, api_key="nobody")
with shared, nobody:
    run(
        {"anthropic messages": Messages(shared)},
        {"beta": beta, "bearer": bearer, "count": count, "models": models, "error": error},
    )

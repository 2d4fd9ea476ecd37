"""Has every conversation in each of its formats with the `openrouter` library.

The library validates all that it reads. Environment: as `cells`.
"""

import os
from functools import partial

import conversations
from caller import client
from conversations import said
from openrouter import errors
from openrouter.components import ChatResult, OpenResponsesResult
from openrouter.utils import serializers

THINKS = {"effort": "low", "summary": "auto"}


def made_once(create_model):  # noqa: ANN201 - the library's own function
    """Return pydantic's `create_model` with a memory: the library makes one for every event."""
    made: dict = {}

    def create(name, *, body, **more: object):  # noqa: ANN202 - a class
        # The type stays in the dictionary, so that its id stays its own.
        key = name, id(body[0])
        if key not in made:
            made[key] = create_model(name, body=body, **more), body
        return made[key][0]

    return create


serializers.create_model = made_once(serializers.create_model)


def plain(model) -> dict:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def without(fields, *names: str) -> dict:
    return {key: value for key, value in fields.items() if key not in names}


class Chat:
    """`client.chat`, which has no helper for streams."""

    def __init__(self, caller) -> None:
        self.send = caller.chat.send

    def fields(self, model, feature) -> dict:
        usual = {"model": model, "messages": [conversations.USER]}
        if feature in conversations.CALLING:
            usual["tools"] = [
                {"type": "function", "function": {"name": name, "parameters": schema}}
                for name, schema in conversations.TOOLS.items()
            ]
        if feature in conversations.THINKING:
            usual |= {"reasoning": THINKS, "max_tokens": 5000}
        return usual | CHAT_FEATURES.get(feature, {})

    def more(self, fields, reply) -> dict:
        message = plain(reply.choices[0].message)
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": result}
            for call, result in zip(
                message.get("tool_calls", ()), conversations.RESULTS, strict=False
            )
        ]
        next_turn = results or [{"role": "user", "content": conversations.NEXT}]
        said = [*fields["messages"], message, *next_turn]
        return without(fields, "tool_choice") | {"messages": said}

    def whole(self, fields) -> ChatResult:
        return self.send(**fields)

    def streamed(self, fields) -> ChatResult:
        with self.send(**fields, stream=True) as stream:
            chunks = [plain(chunk) for chunk in stream]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        given = [choice.get("finish_reason") for c in chunks for choice in c["choices"]]
        reasons = [reason for reason in given if reason]
        message = {"role": "assistant", **texts_of(deltas)}
        if calls := calls_of(deltas):
            message["tool_calls"] = calls
        if details := details_of(deltas):
            message["reasoning_details"] = details
        choice = {"index": 0, "message": message, "finish_reason": reasons[-1], "logprobs": None}
        fields = chunks[-1] | {"object": "chat.completion", "choices": [choice]}
        return ChatResult.model_validate({"system_fingerprint": None} | fields)

    def said(self, reply) -> dict:
        (choice,) = reply.choices
        message, usage = plain(choice.message), reply.usage
        return said(
            message.get("content") or "",
            reason=choice.finish_reason,
            refusal=message.get("refusal"),
            thought=message.get("reasoning") or "",
            calls=[
                (call["function"]["name"], call["function"]["arguments"])
                for call in message.get("tool_calls", ())
            ],
            usage=(usage.prompt_tokens, usage.completion_tokens, usage.cost),
        )


def texts_of(deltas) -> dict:
    names = ("content", "refusal", "reasoning")
    texts = {name: "".join(delta.get(name) or "" for delta in deltas) for name in names}
    return {"content": None} | {name: text for name, text in texts.items() if text}


def calls_of(deltas) -> list[dict]:
    calls: dict = {}
    for piece in (piece for delta in deltas for piece in delta.get("tool_calls", ())):
        call = calls.setdefault(piece["index"], {"id": piece.get("id"), "type": "function"})
        function = call.setdefault("function", {"name": "", "arguments": ""})
        for name, text in piece.get("function", {}).items():
            function[name] += text
    return [calls[index] for index in sorted(calls)]


def details_of(deltas) -> list[dict]:
    details: dict = {}
    for piece in (piece for delta in deltas for piece in delta.get("reasoning_details", ())):
        detail = details.setdefault(piece["index"], {})
        for name, value in piece.items():
            grows = name in {"text", "summary", "data"}
            detail[name] = detail.get(name, "") + value if grows else value
    return [details[index] for index in sorted(details)]


CHAT_FEATURES = conversations.CHAT_FEATURES | {
    "error invalid": {"messages": [{"role": "tool", "content": "?", "tool_call_id": "x"}]}
}


class Responses:
    """`client.responses`."""

    def __init__(self, caller) -> None:
        self.send = caller.responses.send

    def fields(self, model, feature) -> dict:
        usual = {"model": model, "input": conversations.TEXT}
        if feature in conversations.CALLING:
            usual["tools"] = [
                {"type": "function", "name": name, "parameters": schema, "strict": False}
                for name, schema in conversations.TOOLS.items()
            ]
        if feature in conversations.THINKING:
            include = ["reasoning.encrypted_content"]
            usual |= {"reasoning": THINKS, "include": include, "max_output_tokens": 5000}
        return usual | RESPONSES_FEATURES.get(feature, {})

    def more(self, fields, reply) -> dict:
        output = [plain(item) for item in reply.output]
        calls = [item for item in output if item["type"] == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": call["call_id"], "output": result}
            for call, result in zip(calls, conversations.RESULTS, strict=False)
        ]
        next_turn = results or [{"role": "user", "content": conversations.NEXT}]
        said = [{"role": "user", "content": fields["input"]}, *output, *next_turn]
        return without(fields, "tool_choice") | {"input": said}

    def whole(self, fields) -> OpenResponsesResult:
        return self.send(**fields)

    def streamed(self, fields) -> OpenResponsesResult:
        with self.send(**fields, stream=True) as stream:
            *_, last = stream
        assert isinstance(last.response, OpenResponsesResult), type(last.response)
        return last.response

    def said(self, reply) -> dict:
        items, usage = [plain(item) for item in reply.output], reply.usage
        parts = [part for item in items if item["type"] == "message" for part in item["content"]]
        refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
        thoughts = [item for item in items if item["type"] == "reasoning"]
        shown = [p for item in thoughts for p in [*item["summary"], *item.get("content", ())]]
        details = reply.incomplete_details
        calls = [item for item in items if item["type"] == "function_call"]
        return said(
            "".join(part["text"] for part in parts if part["type"] == "output_text"),
            reason=details.reason if details else reply.status,
            refusal="".join(refusals) or None,
            thought="".join(part["text"] for part in shown),
            calls=[(call["name"], call["arguments"]) for call in calls],
            usage=(usage.input_tokens, usage.output_tokens, usage.cost),
        )


RESPONSES_FEATURES = conversations.RESPONSES_FEATURES | {
    "stop": {"stop": [conversations.STOP]},
    "error invalid": {"previous_response_id": "resp_1"},
}


class Embeddings:
    """`client.embeddings`."""

    def __init__(self, caller) -> None:
        self.send = caller.embeddings.generate

    def fields(self, model, feature) -> dict:
        del feature
        return {"model": model, "input": "one"}


def vectors(spoken, _dialect, _feature) -> dict:
    fields = {"model": "embeddings/embedding-2026", "input": ["one two", "three"]}
    numbers = spoken.send(**fields)
    packed = spoken.send(**fields, encoding_format="base64")
    usage = numbers.usage
    return {
        "indexes": [int(item.index) for item in numbers.data],
        "same": [len(item.embedding) * 3 // 16 for item in packed.data]
        == [len(item.embedding) for item in numbers.data],
        "filled": all(len(item.embedding) > 1 for item in numbers.data),
        "usage": [usage.prompt_tokens, usage.total_tokens, usage.cost],
    }


def error(spoken, dialect, feature) -> dict:
    """Return the library's exception, whole and streamed."""
    fields = spoken.fields(conversations.model_of(dialect, feature), feature)
    if feature in {"error invalid", "error no-key"}:
        behaviour = "embedding-2026" if dialect == "embeddings" else "echo"
        fields["model"] = f"{dialect}/{behaviour}"
    asked = type(spoken)(nobody) if feature == "error no-key" else spoken
    send = partial(asked.send, **fields)
    if type(spoken) is Embeddings:
        return {"whole": refusal(send)}
    return {
        "whole": refusal(send),
        "streamed": refusal(lambda: failed(list(send(stream=True)))),
    }


def failed(events) -> dict | None:
    """Return what the last event says: the library raises nothing for it."""
    last = events[-1]
    if getattr(last, "type", None) == "response.failed":
        response = last.response
        return {"class": last.type, "status": response.status, "code": response.error.code}
    if getattr(last, "error", None):
        return {"class": "error chunk", "code": last.error.code}
    return None


def refusal(call) -> dict:
    try:
        seen = call()
    except errors.OpenRouterError as error:
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "code": getattr(getattr(error, "data", None), "error", None) and error.data.error.code,
            "retry after": error.headers.get("retry-after"),
        }
    return seen if isinstance(seen, dict) else {"class": None}


with client(os.environ["API_KEY"]) as shared, client("nobody") as nobody:
    conversations.run(
        {
            "openrouter chat": Chat(shared),
            "openrouter responses": Responses(shared),
            "openrouter embeddings": Embeddings(shared),
        },
        {"vectors": vectors, "error": error},
    )

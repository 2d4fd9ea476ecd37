"""Runs batches of every endpoint with `openrouter`; prints what became of their items as JSON.

    CELLS="[[endpoint, model, feature], ...]" ─▶ a batch each ─▶ {"endpoint model feature": items}

Environment: CELLS, BASE_URL, API_KEY.
"""

import json
import os

from batch_client import client, ended, requests_of
from caller import dump
from conversations import TEXT, TOOLS

SAID = [{"role": "user", "content": TEXT}]
LIMIT = 5000


def chat(feature: str) -> dict:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in TOOLS.items()
    ]
    more = {"tools": {"tools": tools}, "reasoning": {"reasoning": {"effort": "low"}}}
    return {"messages": SAID, "max_tokens": LIMIT, **more.get(feature, {})}


def responses(feature: str) -> dict:
    tools = [
        {"type": "function", "name": name, "parameters": schema, "strict": False}
        for name, schema in TOOLS.items()
    ]
    thinks = {"effort": "low", "summary": "auto"}
    more = {"tools": {"tools": tools}, "reasoning": {"reasoning": thinks}}
    return {"input": TEXT, "max_output_tokens": LIMIT, **more.get(feature, {})}


def messages(feature: str) -> dict:
    tools = [{"name": name, "input_schema": schema} for name, schema in TOOLS.items()]
    thinks = {"type": "enabled", "budget_tokens": 2000}
    more = {"tools": {"tools": tools}, "reasoning": {"thinking": thinks}}
    return {"messages": SAID, "max_tokens": LIMIT, **more.get(feature, {})}


def embeddings(_feature: str) -> dict:
    return {"input": ["one two", "three"]}


BODIES = {
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": messages,
    "/v1/embeddings": embeddings,
}
BROKEN = {
    "/v1/chat/completions": {"messages": "none"},
    "/v1/responses": {"input": 7},
    "/v1/messages": {"messages": "none"},
    "/v1/embeddings": {},
}


def items_of(batch) -> dict:
    return {item.custom_id: said_of(item) for item in batch.results}


def said_of(item) -> dict:
    if item.response is None:
        return {"class": None, "error": dump(item.error)}
    body = item.response.body
    return {
        "class": type(body).__name__,
        "error": item.error,
        "status": item.response.status_code,
        "named alike": item.response.request_id == getattr(body, "id", None),
        **READ[type(body).__name__](dump(body)),
    }


def of_chat(body: dict) -> dict:
    (choice,) = body["choices"]
    message = choice["message"]
    return {
        "text": message["content"] or "",
        "refusal": message["refusal"],
        "thought": message.get("reasoning") or "",
        "calls": [
            [call["index"], call["function"]["name"], json.loads(call["function"]["arguments"])]
            for call in message.get("tool_calls", ())
        ],
        "end": choice["finish_reason"],
        "tokens": [body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]],
    }


def of_responses(body: dict) -> dict:
    output = body["output"]
    parts = [part for item in output if item["type"] == "message" for part in item["content"]]
    thoughts = [item for item in output if item["type"] == "reasoning"]
    shown = [part for item in thoughts for part in [*item["summary"], *item.get("content", ())]]
    calls = [item for item in output if item["type"] == "function_call"]
    return {
        "text": "".join(part["text"] for part in parts if part["type"] == "output_text"),
        "refusal": next((part["refusal"] for part in parts if part["type"] == "refusal"), None),
        "thought": "".join(part["text"] for part in shown),
        "calls": [
            [at, call["name"], json.loads(call["arguments"])] for at, call in enumerate(calls)
        ],
        "end": body["status"],
        "tokens": [body["usage"]["input_tokens"], body["usage"]["output_tokens"]],
    }


def of_messages(body: dict) -> dict:
    blocks = body["content"]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    return {
        "text": "".join(block["text"] for block in blocks if block["type"] == "text"),
        "refusal": None,
        "thought": "".join(b["thinking"] for b in blocks if b["type"] == "thinking"),
        "calls": [[at, call["name"], call["input"]] for at, call in enumerate(calls)],
        "end": body["stop_reason"],
        "tokens": [body["usage"]["input_tokens"], body["usage"]["output_tokens"]],
    }


def of_embeddings(body: dict) -> dict:
    return {
        "indexes": [each["index"] for each in body["data"]],
        "filled": all(len(each["embedding"]) > 1 for each in body["data"]),
        "tokens": [body["usage"]["prompt_tokens"], 0],
    }


READ = {
    "BodyChatCompletion": of_chat,
    "OpenResponsesResult": of_responses,
    "BodyMessage": of_messages,
    "BodyList": of_embeddings,
}

with client(os.environ["API_KEY"]) as caller:
    conversations = json.loads(os.environ["CELLS"])
    begun = [
        caller.batch.create_batches(
            endpoint=endpoint,
            model=model,
            requests=requests_of(BODIES[endpoint](feature), BROKEN[endpoint]),
        ).id
        for endpoint, model, feature in conversations
    ]
    found = {}
    for cell, batch_id in zip(conversations, begun, strict=True):
        batch = ended(caller, batch_id)
        counts = dump(batch.request_counts)
        found[" ".join(cell)] = {
            "status": batch.status,
            "message": batch.error and batch.error.message,
            "counts": counts,
            "items": items_of(batch) if batch.results is not None else None,
        }
    print(json.dumps(found))

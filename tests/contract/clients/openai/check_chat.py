"""Chats, streams and lists models with the `openai` library; prints what it saw as JSON.

Environment: BASE_URL, API_KEY, MODEL, EMBEDDING_MODEL.
"""

import asyncio
import json
import os

import openai

MESSAGES = [{"role": "user", "content": "one two three"}]
OPTIONS = {"base_url": os.environ["BASE_URL"], "api_key": os.environ["API_KEY"], "max_retries": 0}
MODEL = os.environ["MODEL"]
EMBEDDING_MODEL = os.environ["EMBEDDING_MODEL"]


def whole(reply) -> dict:
    return {
        "id": reply.id,
        "model": reply.model,
        "total_tokens": reply.usage.total_tokens,
        "cost": reply.usage.model_extra["cost"],
    }


def streamed(chunks) -> dict:
    return {
        "ids": sorted({chunk.id for chunk in chunks}),
        "models": sorted({chunk.model for chunk in chunks}),
        "last_has_choices": bool(chunks[-1].choices),
        "completion_tokens": chunks[-1].usage.completion_tokens,
        "total_tokens": chunks[-1].usage.total_tokens,
        "cost": chunks[-1].usage.model_extra["cost"],
    }


def refusal(ask) -> dict:
    try:
        ask()
    except openai.APIStatusError as error:
        return {"class": type(error).__name__, "status": error.status_code, "body": error.body}
    return {"class": None}


def synchronous() -> dict:
    with openai.OpenAI(**OPTIONS) as client:
        chat = client.chat.completions
        raw = chat.with_raw_response.create(model=MODEL, messages=MESSAGES)
        return {
            "whole": whole(raw.parse()),
            "generation_header": raw.headers["x-generation-id"],
            "streamed": streamed(list(chat.create(model=MODEL, messages=MESSAGES, stream=True))),
            "models": [model.id for model in client.models.list()],
            "model": client.models.retrieve(MODEL).to_dict(),
            "no_files": refusal(client.files.list),
            "no_input": refusal(lambda: client.embeddings.create(model=EMBEDDING_MODEL, input=[])),
        }


async def asynchronous() -> dict:
    async with openai.AsyncOpenAI(**OPTIONS) as client:
        chat = client.chat.completions
        reply = await chat.create(model=MODEL, messages=MESSAGES)
        stream = await chat.create(
            model=MODEL,
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
        )
        return {"whole": whole(reply), "streamed": streamed([chunk async for chunk in stream])}


print(json.dumps({"sync": synchronous(), "async": asyncio.run(asynchronous())}))

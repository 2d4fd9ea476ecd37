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
TEXTS = ["one two", "three"]


def whole(reply) -> dict:
    choice = reply.choices[0]
    return {
        "id": reply.id,
        "model": reply.model,
        "object": reply.object,
        "content": choice.message.content,
        "finish_reason": choice.finish_reason,
        "completion_tokens": reply.usage.completion_tokens,
        "total_tokens": reply.usage.total_tokens,
        "cost": reply.usage.model_extra["cost"],
    }


def streamed(chunks) -> dict:
    finish = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    return {
        "ids": sorted({chunk.id for chunk in chunks}),
        "models": sorted({chunk.model for chunk in chunks}),
        "content": "".join(
            choice.delta.content or "" for chunk in chunks for choice in chunk.choices
        ),
        "finish_reasons": [reason for reason in finish if reason],
        "last_has_choices": bool(chunks[-1].choices),
        "completion_tokens": chunks[-1].usage.completion_tokens,
        "total_tokens": chunks[-1].usage.total_tokens,
        "cost": chunks[-1].usage.model_extra["cost"],
    }


def embedded(reply) -> dict:
    return {
        "id": reply.model_extra["id"],
        "model": reply.model,
        "vectors": [item.embedding for item in reply.data],
        "indexes": [item.index for item in reply.data],
        "total_tokens": reply.usage.total_tokens,
        "cost": reply.usage.model_extra["cost"],
    }


def refusal(ask) -> dict:
    try:
        ask()
    except openai.APIStatusError as error:
        return {"class": type(error).__name__, "status": error.status_code, "body": error.body}
    return {"class": None}


def synchronous() -> dict:
    with openai.OpenAI(**OPTIONS) as client, openai.OpenAI(**OPTIONS) as stranger:
        stranger.api_key = "sk-th-v1-nobody"
        chat = client.chat.completions
        raw = chat.with_raw_response.create(model=MODEL, messages=MESSAGES)
        with chat.stream(model=MODEL, messages=MESSAGES) as helper:
            final = helper.get_final_completion()
        return {
            "whole": whole(raw.parse()),
            "generation_header": raw.headers["x-generation-id"],
            "streamed": streamed(list(chat.create(model=MODEL, messages=MESSAGES, stream=True))),
            "helper_content": final.choices[0].message.content,
            # The library asks for base64 unless it is told otherwise.
            "packed": embedded(client.embeddings.create(model=EMBEDDING_MODEL, input=TEXTS)),
            "floats": embedded(
                client.embeddings.create(
                    model=EMBEDDING_MODEL, input=TEXTS, encoding_format="float"
                )
            ),
            "models": [model.id for model in client.models.list()],
            "model": client.models.retrieve(MODEL).to_dict(),
            "no_files": refusal(client.files.list),
            "no_input": refusal(lambda: client.embeddings.create(model=EMBEDDING_MODEL, input=[])),
            "unknown_model": refusal(lambda: chat.create(model="no/such", messages=MESSAGES)),
            "wrong_key": refusal(
                lambda: stranger.chat.completions.create(model=MODEL, messages=MESSAGES)
            ),
            "no_messages": refusal(lambda: chat.create(model=MODEL, messages=[])),
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

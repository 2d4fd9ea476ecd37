"""Chats, lists models, reads keys, credits and a generation with `openrouter`; prints JSON.

Environment: BASE_URL, API_KEY, MANAGEMENT_KEY, MODEL, EMBEDDING_MODEL.
"""

import asyncio
import json
import os

from caller import client, dump
from openrouter import errors

MESSAGES = [{"role": "user", "content": "one two three"}]
MODEL = os.environ["MODEL"]
EMBEDDING_MODEL = os.environ["EMBEDDING_MODEL"]


def whole(reply) -> dict:
    return {
        "id": reply.id,
        "model": reply.model,
        "content": reply.choices[0].message.content,
        "finish_reason": reply.choices[0].finish_reason,
        "completion_tokens": reply.usage.completion_tokens,
        "cost": reply.usage.cost,
    }


def streamed(chunks) -> dict:
    return {
        "ids": sorted({chunk.id for chunk in chunks}),
        "content": "".join(
            choice.delta.content or "" for chunk in chunks for choice in chunk.choices
        ),
        "completion_tokens": chunks[-1].usage.completion_tokens,
        "cost": chunks[-1].usage.cost,
    }


def refused(ask) -> dict:
    try:
        ask()
    except errors.OpenRouterError as error:
        return {"class": type(error).__name__, "status": error.status_code}
    return {"class": None}


def synchronous() -> dict:
    with client(os.environ["API_KEY"]) as caller, client(os.environ["MANAGEMENT_KEY"]) as manager:
        reply = caller.chat.send(model=MODEL, messages=MESSAGES)
        with caller.chat.send(model=MODEL, messages=MESSAGES, stream=True) as stream:
            chunks = list(stream)
        models = caller.models.list()
        made = manager.api_keys.create(name="made by the library")
        found = {
            "whole": whole(reply),
            "streamed": streamed(chunks),
            "embeddings": dump(
                caller.embeddings.generate(model=EMBEDDING_MODEL, input=["one two", "three"])
            ),
            "models": [model.id for model in models.result.data],
            "model_count": caller.models.count().data.count,
            "key": dump(caller.api_keys.get_current_key_metadata().data),
            "management_key": dump(manager.api_keys.get_current_key_metadata().data),
            "credits": dump(manager.credits.get_credits().data),
            "activity": dump(
                manager.analytics.get_user_activity(
                    request={"api_key_hash": os.environ["KEY_HASH"]}
                )
            ),
            "activity_by_workspace": dump(
                manager.analytics.get_user_activity(request={"group_by": "workspace"})
            ),
            "activity_of_another_day": dump(
                manager.analytics.get_user_activity(request={"date_": "2020-01-01"})
            ),
            "activity_refused": refused(lambda: caller.analytics.get_user_activity(request={})),
            "credits_refused": refused(caller.credits.get_credits),
            "generation": dump(caller.generations.get_generation(id=reply.id).data),
            "made_key": dump(made.data),
            "made_key_text_begins": made.key[:9],
            "renamed": manager.api_keys.update(hash=made.data.hash, name="renamed").data.name,
            "listed": [key.name for key in manager.api_keys.list().data],
            "fetched": manager.api_keys.get(hash=made.data.hash).data.name,
            "deleted": dump(manager.api_keys.delete(hash=made.data.hash)),
        }
        space = manager.workspaces.create(name="Research", slug="research").data
        found["workspaces"] = {
            "created": space.name,
            "listed": [each.slug for each in manager.workspaces.list().result.data],
            "fetched": manager.workspaces.get(id="research").data.id == space.id,
            "updated": manager.workspaces.update(id=space.id, name="Lab").data.name,
            "deleted": dump(manager.workspaces.delete(id=space.id)),
        }
        return found


async def asynchronous() -> dict:
    async with client(os.environ["API_KEY"]) as caller:
        reply = await caller.chat.send_async(model=MODEL, messages=MESSAGES)
        stream = await caller.chat.send_async(model=MODEL, messages=MESSAGES, stream=True)
        async with stream:
            chunks = [chunk async for chunk in stream]
        return {"whole": whole(reply), "streamed": streamed(chunks)}


print(json.dumps({"sync": synchronous(), "async": asyncio.run(asynchronous())}))

"""Makes keys with limits, uses one and reads what is left, with `openrouter`; prints JSON.

Environment: BASE_URL, API_KEY, MANAGEMENT_KEY, MODEL, EMBEDDING_MODEL.
"""

import json
import os

from caller import client, dump
from openrouter import OpenRouter, errors

MESSAGES = [{"role": "user", "content": "one two three"}]
MODEL = os.environ["MODEL"]


def refused(ask) -> dict:
    try:
        ask()
    except errors.OpenRouterError as error:
        message = json.loads(error.body)["error"]["message"]
        return {"class": type(error).__name__, "status": error.status_code, "message": message}
    return {"class": None}


def own(caller: OpenRouter) -> dict:
    return dump(caller.api_keys.get_current_key_metadata().data)


def of_a_limited_key(manager: OpenRouter) -> dict:
    keys = manager.api_keys
    made = keys.create(
        name="limited", limit=25.000000001, limit_reset="monthly", include_byok_in_limit=True
    )
    key_hash = made.data.hash
    with client(made.key) as caller:
        found = {"made": dump(made.data), "fresh": own(caller)}
        replies = [caller.chat.send(model=MODEL, messages=MESSAGES) for _ in range(2)]
        found |= {
            "costs": [reply.usage.cost for reply in replies],
            "used": own(caller),
            "got": dump(keys.get(hash=key_hash).data),
            "listed": [dump(key) for key in keys.list().data if key.hash == key_hash],
            "lowered": dump(keys.update(hash=key_hash, limit=0.000012, limit_reset="daily").data),
            "overdrawn": own(caller),
            "renamed": dump(keys.update(hash=key_hash, name="renamed").data),
            "weekly": dump(keys.update(hash=key_hash, limit=5, limit_reset="weekly").data),
            "own_weekly": own(caller),
            "cleared": dump(
                keys.update(
                    hash=key_hash, limit=None, limit_reset=None, include_byok_in_limit=False
                ).data
            ),
            "own_cleared": own(caller),
            "disabled": dump(keys.update(hash=key_hash, disabled=True).data),
            "while_disabled": refused(caller.api_keys.get_current_key_metadata),
            "listed_disabled": [
                [key.name for key in page.data if key.hash == key_hash]
                for page in (keys.list(), keys.list(include_disabled=True))
            ],
            "deleted": dump(keys.delete(hash=key_hash)),
            "once_deleted": refused(lambda: keys.get(hash=key_hash)),
        }
    return found


def refusals(manager: OpenRouter) -> dict:
    keys = manager.api_keys
    with client(os.environ["API_KEY"]) as caller:
        key_hash = keys.create(name="refused").data.hash
        return {
            "negative": refused(lambda: keys.create(name="x", limit=-1)),
            "too_fine": refused(lambda: keys.update(hash=key_hash, limit=1.0000000001)),
            "too_large": refused(lambda: keys.update(hash=key_hash, limit=1e18)),
            "nothing": refused(lambda: keys.update(hash=key_hash)),
            "list": refused(caller.api_keys.list),
            "create": refused(lambda: caller.api_keys.create(name="x")),
            "get": refused(lambda: caller.api_keys.get(hash=key_hash)),
            "update": refused(lambda: caller.api_keys.update(hash=key_hash, limit=1)),
            "delete": refused(lambda: caller.api_keys.delete(hash=key_hash)),
            "inference": refused(lambda: manager.chat.send(model=MODEL, messages=MESSAGES)),
        }


with client(os.environ["MANAGEMENT_KEY"]) as manager:
    print(json.dumps({**of_a_limited_key(manager), "refused": refusals(manager)}))

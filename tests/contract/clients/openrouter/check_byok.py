"""Leads an own key of a provider through its life with `openrouter`; prints JSON.

Environment: BASE_URL, API_KEY, KEY_HASH, MANAGEMENT_KEY, MODEL, PROVIDER.
"""

import json
import os

from caller import client, dump, shown
from openrouter import errors

MESSAGES = [{"role": "user", "content": "one two three"}]
TEXT = "own-key-of-the-published-client"


def refused(ask) -> dict:
    try:
        ask()
    except errors.OpenRouterError as error:
        return {"class": type(error).__name__, "status": error.status_code}
    return {"class": None}


def cost(caller) -> dict:
    reply = caller.chat.send(model=os.environ["MODEL"], messages=MESSAGES)
    usage = dump(reply.usage)
    found = caller.generations.get_generation(id=reply.id).data
    return {"cost": usage["cost"], "is_byok": usage["is_byok"], "booked": found.is_byok}


def main() -> dict:
    provider, key_hash = os.environ["PROVIDER"], os.environ["KEY_HASH"]
    with client(os.environ["MANAGEMENT_KEY"]) as manager, client(os.environ["API_KEY"]) as caller:
        keys = manager.byok
        made = keys.create(
            provider=provider,
            key=TEXT,
            name="mine",
            is_required=True,
            allowed_models=[os.environ["MODEL"]],
            allowed_api_key_hashes=[key_hash],
            declared_region="europe",
            declared_zdr=True,
        ).data
        found = {"made": dump(made), "got": dump(keys.get(id=made.id).data)}
        found["used"] = cost(caller)
        found["after"] = dump(caller.api_keys.get_current_key_metadata().data)
        found["changed"] = dump(
            keys.update(
                id=made.id, key=f"{TEXT}-2", name=None, is_required=False, allowed_models=None
            ).data
        )
        page = keys.list(provider=provider, limit=100)
        found["listed"] = [dump(each) for each in page.result.data if each.id == made.id]
        found["disabled"] = dump(keys.update(id=made.id, disabled=True).data)
        found["unused"] = cost(caller)
        asked = {"api_key_hash": key_hash}
        found["activity"] = dump(manager.analytics.get_user_activity(request=asked))["data"]
        found["deleted"] = shown(keys.delete(id=made.id))
        found["refused"] = {
            "gone": refused(lambda: keys.get(id=made.id)),
            "contradiction": refused(
                lambda: keys.create(
                    provider=provider, key=TEXT, is_fallback=True, is_byok_only=True
                )
            ),
            "api key": refused(lambda: caller.byok.create(provider=provider, key=TEXT)),
        }
    return found


print(json.dumps(main()))

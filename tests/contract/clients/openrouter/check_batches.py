"""Submits, lists, reads and deletes batches with `openrouter`; prints JSON.

Environment: BASE_URL, API_KEY, MANAGEMENT_KEY, MODEL, SLOW_MODEL, PROVIDER,
STRANGERS_KEY (of another workspace), POOR_KEY (of an account with 0.005 credits), POOR_ACCOUNT.
"""

import json
import os
from datetime import UTC, datetime, timedelta

import httpx
from batch_client import client, ended, raw, refused, requests_of
from caller import dump
from openrouter import errors
from openrouter.components import BatchObject

MODEL = os.environ["MODEL"]
CHAT = "/v1/chat/completions"


def said(text: str) -> dict:
    return {"messages": [{"role": "user", "content": text}]}


def post(path: str, key: str, **content: object) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    reply = httpx.post(os.environ["BASE_URL"] + path, json=content or None, headers=headers)
    assert reply.is_success, reply.text
    raw.append([reply.status_code, reply.json()])


def submit(caller, *bodies: dict, **fields: object) -> BatchObject:
    fields = {"endpoint": CHAT, "model": MODEL, "requests": requests_of(*bodies)} | fields
    return caller.batch.create_batches(**fields)


def course(caller) -> dict:
    """Return what is seen of a batch from its submission to its deletion."""
    only = {"only": [os.environ["PROVIDER"]], "allow_fallbacks": False}
    made = submit(caller, said("one two"), said("three"), provider=only)
    found = ended(caller, made.id)
    seen = {
        "classes": [type(each).__name__ for each in (made, found)],
        "made": dump(made),
        "ended": dump(found),
        "texts": {
            item.custom_id: item.response.body.choices[0].message.content for item in found.results
        },
        "deleted": dump(caller.batch.delete(id=made.id)),
    }
    gone = {"get": caller.batch.get_batches, "delete": caller.batch.delete}
    seen["gone"] = {name: refused(lambda ask=ask: ask(id=made.id)) for name, ask in gone.items()}
    seen["listed"] = made.id in pages(caller)[0]
    return seen


def failed(caller) -> dict:
    found = ended(caller, submit(caller, {"messages": "none"}, {"messages": 7}).id)
    return {"id": found.id, "results": found.results, "message": found.error.message}


def under_way(caller) -> dict:
    """Return what is seen of a batch that runs, and that is cancelled."""
    slow = os.environ["SLOW_MODEL"]
    batch_id = submit(caller, *(said("one two three") for _ in range(100)), model=slow).id
    seen = {
        "running": ended(caller, batch_id, until={"in_progress"}).results,
        "delete": refused(lambda: caller.batch.delete(id=batch_id)),
    }
    post(f"/batches/{batch_id}/cancel", os.environ["API_KEY"])
    found = ended(caller, batch_id)
    words = {item.error.type for item in found.results if item.error is not None}
    counts = dump(found.request_counts)
    return seen | {"id": batch_id, "words": sorted(words), "counts": counts}


def pages(caller, **filters: object) -> list[list[str]]:
    """Return the ids of every page until the library finds none any more."""
    found, page = [], caller.batch.list(**filters)
    while page is not None:
        found.append([each.id for each in page.result.data])
        page = page.next()
    return found


def lists(caller, failed_id: str, cancelled_id: str) -> dict:
    now = datetime.now(UTC)  # noqa: TID251 - the server's own clock
    before, after = now - timedelta(hours=1), now + timedelta(hours=1)
    return {
        "ids": [cancelled_id, failed_id],
        "all": pages(caller, limit=1),
        "one status": pages(caller, status=["failed"]),
        "two statuses": pages(caller, status=["failed", "cancelled"]),
        "other statuses": pages(caller, status=["validating", "in_progress", "expired"]),
        "after": pages(caller, created_after=before.isoformat()),
        "after now": pages(caller, created_after=after.isoformat()),
        "before": pages(caller, created_before=after.isoformat()),
        "before then": pages(caller, created_before=before.date() - timedelta(days=1)),
    }


def withheld(manager_key: str) -> dict:
    """Return what is seen of a batch that cost more than there was."""
    with client(os.environ["POOR_KEY"]) as poor:
        batch_id = submit(poor, said("a " * 6000)).id
        try:
            ended(poor, batch_id, until=())
        except errors.BatchPaymentRequiredResponseError as error:
            seen = {"class": type(error).__name__, "status": error.status_code}
            seen["data"] = dump(error.data)
        fields = {"amount": "1", "kind": "grant", "account_id": os.environ["POOR_ACCOUNT"]}
        post("/credits", manager_key, **fields)
        found = poor.batch.get_batches(id=batch_id)
        return seen | {"id": batch_id, "released": [found.status, len(found.results)]}


def refusals(caller, manager, batch_id: str) -> dict:
    one = said("one")

    def creates(**fields: object) -> dict:
        return refused(lambda: submit(caller, one, **fields))

    twice = [{"custom_id": "a", "body": one}] * 2
    with client("nobody") as nobody, client(os.environ["STRANGERS_KEY"]) as stranger:
        return {
            "empty": creates(requests=[]),
            "empty id": creates(requests=[{"custom_id": "", "body": one}]),
            "twice": creates(requests=twice),
            "large": creates(requests=requests_of(said("a" * 34_000_000))),
            "unknown model": creates(model="nobody/nothing"),
            "variant": creates(model=f"{MODEL}:nitro"),
            "callback": creates(callback_url="https://hooks.example/batches"),
            "provider": creates(provider={"only": ["nobody"]}),
            "no key": refused(lambda: submit(nobody, one)),
            "management key": refused(lambda: submit(manager, one)),
            "no such get": refused(lambda: caller.batch.get_batches(id="batch_0")),
            "no such delete": refused(lambda: caller.batch.delete(id="batch_0")),
            "another's get": refused(lambda: stranger.batch.get_batches(id=batch_id)),
            "another's delete": refused(lambda: stranger.batch.delete(id=batch_id)),
            "page": refused(lambda: caller.batch.list(after="batch_0")),
            "limit": refused(lambda: caller.batch.list(limit=1000)),
        }


def too_dear() -> dict:
    with client(os.environ["POOR_KEY"]) as poor:
        return refused(lambda: submit(poor, *(said("a") | {"max_tokens": 1_000_000},) * 9))


def batches_in(replies: list) -> list:
    """Return every batch that came, each state once, with the status of its reply."""
    shown = [(status, body) for status, body in replies if body.get("object") == "batch"]
    found = {(status, body["status"]): body for status, body in shown if "status" in body}
    return [[status, body] for (status, _), body in found.items()]


with client(os.environ["API_KEY"]) as caller, client(os.environ["MANAGEMENT_KEY"]) as manager:
    of_poor = {"too dear": too_dear(), "withheld": withheld(os.environ["MANAGEMENT_KEY"])}
    seen = {
        "course": course(caller),
        "failed": failed(caller),
        "under way": under_way(caller),
        **of_poor,
    }
    seen["lists"] = lists(caller, seen["failed"]["id"], seen["under way"]["id"])
    seen["refusals"] = refusals(caller, manager, seen["failed"]["id"])
    seen["batches"] = batches_in(raw)
    seen["items of lists"] = [body for _, body in raw if body.get("object") == "list"]
    print(json.dumps(seen))

"""Takes an intern through its life with `openrouter` 1.3.30; prints JSON.

Environment: BASE_URL, API_KEY (of a workspace whose interns can run), WORKSPACE, and INTERN_KEY,
the own key of another intern, of WORKSPACE too.
"""

import json
import os
import time
from functools import partial
from urllib.parse import urlsplit

import httpx
from caller import client, shown
from openrouter import errors

SETTLED = ("running", "failed", "stopped", "destroy_failed")


def refused(ask) -> dict:
    try:
        ask()
    except errors.OpenRouterError as error:
        told = json.loads(error.body)["error"]
        return {"class": type(error).__name__, "status": error.status_code, "told": told}
    return {"class": None}


def settled(interns, intern_id: str) -> dict:
    while True:
        intern = shown(interns.get_intern(intern_id=intern_id))
        if intern["status"] in SETTLED:
            return intern
        time.sleep(0.05)


def gone(interns, intern_id: str) -> dict:
    while (told := refused(partial(interns.get_intern, intern_id=intern_id)))["class"] is None:
        time.sleep(0.05)
    return told


def healthy(daemon: dict) -> int:
    headers = {"Authorization": f"Bearer {daemon['token']}"}
    return httpx.get(f"{daemon['origin']}/healthz", headers=headers).status_code


def invocations(interns, intern_id: str, daemon: dict) -> dict:
    """Return what is seen of a run that nobody watches, which a second prompt steers."""
    invoke = partial(interns.invoke, intern_id=intern_id)
    begun = invoke(input="run: until [ -e go ]; do sleep 0.02; done").result
    headers = {"Authorization": f"Bearer {daemon['token']}"}
    http = httpx.Client(base_url=daemon["origin"], headers=headers, timeout=60)
    events = f"/sessions/{begun.session_id}/events?follow=false"
    while "tool.started" not in http.get(events).text:  # its agent takes a while to load
        time.sleep(0.05)
    steered = invoke(input="Faster.", session_id=begun.session_id).result
    seen = {"begun": shown(begun), "steered": shown(steered)}
    seen["foreign"] = refused(partial(invoke, input="x", session_id="mine"))
    http.put("/files/go").raise_for_status()
    while http.get("/sessions").json()["data"][0]["state"] != "idle":
        time.sleep(0.05)
    seen["after its end"] = shown(invoke(input="say: Hi.", session_id=begun.session_id).result)
    return seen


def life(interns) -> dict:
    """Return what is seen of an intern from being made to being deleted."""
    made = interns.create_intern(name="ada", description="counts", idempotency_key="the-first")
    again = interns.create_intern(name="ada", description="counts", idempotency_key="the-first")
    intern_id = made.id
    seen = {
        "made": shown(made),
        "again": shown(again),
        "listed": shown(interns.list_interns(limit=50, status=["queued", "running"])),
        "updated": shown(interns.update_intern(intern_id=intern_id, instructions="be kind")),
        "too early": refused(partial(interns.get_intern_daemon, intern_id=intern_id)),
        "not suspended": refused(partial(interns.suspend_intern, intern_id=intern_id)),
        "provisioned": shown(interns.provision_intern(intern_id=intern_id)),
        "running": settled(interns, intern_id),
        "busy": refused(partial(interns.provision_intern, intern_id=intern_id)),
    }
    daemon = shown(interns.get_intern_daemon(intern_id=intern_id))
    seen["daemon"] = {"health": healthy(daemon), "host": urlsplit(daemon["origin"]).hostname}
    seen["alias"] = shown(interns.get_intern_daemon_access(intern_id=intern_id)) == daemon
    seen["invoked"] = invocations(interns, intern_id, daemon)
    seen["suspended"] = shown(interns.suspend_intern(intern_id=intern_id))
    seen["stopped"] = settled(interns, intern_id)
    seen["resumed"] = shown(interns.provision_intern(intern_id=intern_id))
    seen["runs again"] = settled(interns, intern_id)
    other = shown(interns.get_intern_daemon(intern_id=intern_id))
    seen["another token"] = other["token"] != daemon["token"]
    seen["deleting"] = shown(interns.delete_intern(intern_id=intern_id))
    seen["gone"] = gone(interns, intern_id)
    return seen


def refusals(interns, own) -> dict:
    made = interns.create_intern(name="bob")
    asks = {
        "bad name": partial(interns.create_intern, name="Bob"),
        "taken name": partial(interns.create_intern, name="bob", description="another"),
        "unknown": partial(interns.get_intern, intern_id="nobody"),
        "bad limit": partial(interns.list_interns, limit=501),
        "own list": own.list_interns,
        "own other": partial(own.get_intern, intern_id=made.id),
        "other workspace": partial(
            interns.create_intern, name="eve", workspace_id="99999999-0000-4000-8000-000000000009"
        ),
    }
    return {name: refused(ask) for name, ask in asks.items()}


interns = client(os.environ["API_KEY"]).interns
own = client(os.environ["INTERN_KEY"]).interns
print(json.dumps({"life": life(interns), "refusals": refusals(interns, own)}))

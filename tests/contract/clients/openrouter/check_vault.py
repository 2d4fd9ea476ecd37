"""Asks every vault route with `openrouter`, of whichever version runs it; prints JSON.

Environment: BASE_URL, MANAGEMENT_KEY, API_KEY (of a workspace that nobody else uses), WORKSPACE,
LEGACY (the name of a secret of it that is bound to no host). Interns of it: INTERN and INTERN_KEY,
COPIER, PAGER, BORROWER, LENDER (whose vault BORROWER has attached), GONE (which was deleted) and
ORPHAN (which had attached the vault of GONE). STRANGER is an intern of another workspace.
"""

import asyncio
import json
import os
from functools import partial

import httpx
from openrouter import errors
from vault_client import (
    HOSTS,
    Ask,
    Routes,
    by_name,
    client,
    every_route,
    of_intern,
    of_workspace,
    raw,
    refused,
    shown,
    told_by,
    tried,
)

LEGACY = os.environ["LEGACY"]
INTERN, COPIER, PAGER = (os.environ[name] for name in ("INTERN", "COPIER", "PAGER"))
WRITES = ("store", "delete", "intern store", "intern delete", "copy")
READS = ("list", "intern list", "effective")
OF_WORKSPACE = ("list", "store", "delete")
OF_INTERN = ("intern list", "intern store", "intern delete", "copy", "effective")
LARGEST_BODY = 1_048_576
LONGEST = "\N{LATIN SMALL LETTER E WITH ACUTE}" * 65_536
"""The library writes each of its characters as an escape of six bytes."""


def put(routes: Routes, name: str, value: str = "value-any", hosts: list[str] = HOSTS) -> dict:
    return shown(routes.store(name=name, value=value, hosts=hosts).data)


def switch(**switches: bool) -> None:
    reply = httpx.patch(
        f"{os.environ['BASE_URL']}/workspaces/{os.environ['WORKSPACE']}",
        json=switches,
        headers={"Authorization": f"Bearer {os.environ['MANAGEMENT_KEY']}"},
    )
    assert reply.is_success, reply.text


def course(routes: Routes) -> dict:
    """Return what is seen of secrets from being stored to being deleted."""
    sent = ["API.Example.com.", "b.example.com", "api.example.com"]
    seen = {
        "stored": put(routes, "token", "value-one", sent),
        "twin": put(routes, "twin", "value-one"),
        "other": put(routes, "other", "value-two"),
        "longest": put(routes, "longest", LONGEST),
        "listed": by_name(routes.list()),
        "replaced": put(routes, "token", "value-new", ["c.example.com"]),
        "rewritten": put(routes, "twin", "value-one"),
        "deleted": routes.delete(name="other"),
        "left": by_name(routes.list()),
        "again": refused(partial(routes.delete, name="other")),
    }
    for name in ("token", "twin", "longest"):
        routes.delete(name=name)
    return seen


def copies(caller) -> dict:
    """Return what is seen of copying, and of copying what cannot be."""
    workspace, own = of_workspace(caller), of_intern(caller, COPIER)
    copy = partial(caller.vault.copy_vault_secrets_to_intern, intern_id=COPIER)
    sources = {
        "alpha": put(workspace, "alpha", "value-alpha", ["a.example.com", "b.example.com"]),
        "beta": put(workspace, "beta", "value-beta"),
        "gamma": put(workspace, "gamma"),
    }
    seen = {
        "sources": sources,
        "own": put(own, "alpha", "value-own", ["own.example.com"]),
        "copied": [shown(each) for each in copy(names=["beta", "alpha"]).data],
        "listed": by_name(own.list()),
        "absent": refused(partial(copy, names=["gamma", "absent"])),
        "legacy": refused(partial(copy, names=["gamma", LEGACY])),
        "after refusals": by_name(own.list()),
    }
    workspace.delete(name="beta")
    own.delete(name="alpha")
    seen["source deleted"] = sorted(by_name(own.list()))
    seen["copy deleted"] = sorted(by_name(workspace.list()))
    return seen


def effective(caller) -> dict:
    """Return what interns receive, with an attached vault, without, and with one that is gone."""
    borrower, lender = os.environ["BORROWER"], os.environ["LENDER"]
    vaults = {
        "workspace": of_workspace(caller),
        "attached": of_intern(caller, lender),
        "intern": of_intern(caller, borrower),
    }
    stored = {}
    for at, scope in enumerate(vaults):
        for name in ("everywhere", "in_two", "in_one")[: 3 - at]:
            stored[f"{name} {scope}"] = put(vaults[scope], name, hosts=[f"{scope}.example.com"])
    ask = caller.vault.list_intern_effective_vault_secrets
    seen = {
        "stored": stored,
        "borrower": by_name(ask(intern_id=borrower)),
        "lender": by_name(ask(intern_id=lender)),
        "orphan": refused(partial(ask, intern_id=os.environ["ORPHAN"])),
        "orphan's own": by_name(of_intern(caller, os.environ["ORPHAN"]).list()),
        "gone": tried(every_route(caller, os.environ["GONE"]), OF_INTERN),
    }
    vaults["intern"].delete(name="everywhere")
    seen["uncovered"] = by_name(ask(intern_id=borrower))
    return seen


def legacy(caller) -> dict:
    """Return what is seen of a secret that is bound to no host; it is replaced in the end."""
    workspace = of_workspace(caller)
    ask = caller.vault.list_intern_effective_vault_secrets
    return {
        "listed": by_name(workspace.list())[LEGACY],
        "effective": by_name(ask(intern_id=INTERN))[LEGACY],
        "deleted": refused(partial(workspace.delete, name=LEGACY)),
        "replaced": put(workspace, LEGACY),
        "listed again": by_name(workspace.list())[LEGACY],
    }


def walk(ask: Ask, **limit: int) -> list:
    """Return the names of every page, and whether it says that there are more."""
    pages, offset, has_more = [], 0, True
    while has_more:
        page = ask(**limit, offset=offset)
        has_more = page.has_more
        pages.append([[each.name for each in page.data], has_more])
        offset += len(page.data)
    return pages


def pages(caller) -> dict:
    """Return the lists of more than a hundred secrets, page by page."""
    workspace, own = of_workspace(caller), of_intern(caller, PAGER)
    names = [f"page_{number:03}" for number in range(102)] + ["page", "page1", "pagea"]
    for name in names:
        put(workspace, name)
    for some in (names[:100], names[100:]):
        caller.vault.copy_vault_secrets_to_intern(intern_id=PAGER, names=some)
    received = partial(caller.vault.list_intern_effective_vault_secrets, intern_id=PAGER)
    beyond = own.list(offset=len(names))
    asks = {"workspace": workspace.list, "intern": own.list, "effective": received}
    return {
        "names": names,
        "default": {name: walk(ask) for name, ask in asks.items()},
        "by 35": {name: walk(ask, limit=35) for name, ask in asks.items()},
        "beyond": [beyond.data, beyond.has_more],
    }


def invalid(caller) -> dict:
    workspace, own = of_workspace(caller), of_intern(caller, INTERN)
    copy = partial(caller.vault.copy_vault_secrets_to_intern, intern_id=INTERN)
    store = partial(workspace.store, name="token", value="value-any", hosts=HOSTS)
    return {
        "name": refused(partial(store, name="Token")),
        "name of an intern's": refused(partial(own.delete, name="to__ken")),
        "no value": refused(partial(store, value="")),
        "long value": refused(partial(store, value="a" * 65_537)),
        "no hosts": refused(partial(store, hosts=[])),
        "many hosts": refused(partial(store, hosts=[f"h{at}.example.com" for at in range(101)])),
        "scheme": refused(partial(store, hosts=["https://api.example.com"])),
        "wildcard": refused(partial(store, hosts=["*.example.com"])),
        "intern id": refused(partial(of_intern(caller, "nobody").list)),
        "no names": refused(partial(copy, names=[])),
        "names twice": refused(partial(copy, names=["token", "token"])),
        "no limit": refused(partial(workspace.list, limit=0)),
        "large limit": refused(partial(own.list, limit=101)),
        "large offset": refused(
            partial(every_route(caller, INTERN)["effective"], offset=10_001),
        ),
    }


def too_large(caller) -> dict:
    asks = every_route(caller, INTERN)
    value = "a" * (LARGEST_BODY + 1)
    return {
        "store": refused(partial(asks["store"], value=value)),
        "intern store": refused(partial(asks["intern store"], value=value)),
        "copy": refused(partial(asks["copy"], names=["a" * 255] * 5_000)),
    }


def own_key(caller) -> dict:
    """Return what an intern's own key may do, and where it is refused."""
    put(of_intern(caller, INTERN), "given")
    with client(os.environ["INTERN_KEY"]) as intern:
        routes = of_intern(intern, INTERN)
        ask = intern.vault.list_intern_effective_vault_secrets
        return {
            "stored": put(routes, "taken"),
            "listed": sorted(by_name(routes.list())),
            "effective": by_name(ask(intern_id=INTERN))["given"]["scope"],
            "deleted": routes.delete(name="taken"),
            "refused": {
                "workspace": tried(every_route(intern, INTERN), OF_WORKSPACE),
                "copy": tried(every_route(intern, INTERN), ["copy"]),
                "another": tried(every_route(intern, COPIER), OF_INTERN),
            },
        }


def switched_off(caller) -> dict:
    asks = every_route(caller, INTERN)
    put(of_workspace(caller), "asked_for")
    switch(vault_writes=False)
    seen = {"writes": tried(asks, WRITES), "reads": tried(asks, READS)}
    switch(vault_writes=True)
    seen["writes again"] = tried(asks, ["copy", "intern delete", "delete"])
    switch(intern_programme=False)
    seen["programme"] = tried(asks)
    switch(intern_programme=True)
    return seen


def refusals(caller) -> dict:
    with client(os.environ["MANAGEMENT_KEY"]) as manager, client("nobody") as nobody:
        return {
            "invalid": invalid(caller),
            "too large": too_large(caller),
            "management key": tried(every_route(manager, INTERN)),
            "unknown key": tried(every_route(nobody, INTERN)),
            "stranger": tried(every_route(caller, os.environ["STRANGER"]), OF_INTERN),
            "region": tried(every_route(caller, INTERN, http_headers={"Host": "eu.gateway.test"})),
        }


async def asynchronously() -> dict:
    """Return what the asynchronous method of every route makes of it."""
    secret = {"name": "later", "value": "value-any", "hosts": HOSTS}
    async with client(os.environ["API_KEY"]) as caller:
        vault = caller.vault
        seen = {
            "store": shown((await vault.store_vault_secret_async(**secret)).data),
            "list": by_name(await vault.list_vault_secrets_async()),
        }
        copied = await vault.copy_vault_secrets_to_intern_async(intern_id=INTERN, names=["later"])
        stored = await vault.store_intern_vault_secret_async(intern_id=INTERN, **secret)
        received = await vault.list_intern_effective_vault_secrets_async(intern_id=INTERN)
        seen |= {
            "copy": [shown(each) for each in copied.data],
            "intern store": shown(stored.data),
            "intern list": by_name(await vault.list_intern_vault_secrets_async(intern_id=INTERN)),
            "effective": by_name(received),
            "intern delete": await vault.delete_intern_vault_secret_async(
                intern_id=INTERN, name="later"
            ),
            "delete": await vault.delete_vault_secret_async(name="later"),
        }
        try:
            await vault.delete_vault_secret_async(name="later")
        except errors.OpenRouterError as error:
            seen["refused"] = told_by(error)
        return seen


with client(os.environ["API_KEY"]) as caller:
    seen = {
        "workspace": course(of_workspace(caller)),
        "intern": course(of_intern(caller, INTERN)),
        "copies": copies(caller),
        "effective": effective(caller),
        "legacy": legacy(caller),
        "own key": own_key(caller),
        "refusals": refusals(caller),
        "switched off": switched_off(caller),
        "pages": pages(caller),
        "async": asyncio.run(asynchronously()),
    }
    seen["replies"] = len(raw)
    seen["replies with values"] = [text for text in raw if "value-" in text or LONGEST[:9] in text]
    print(json.dumps(seen))

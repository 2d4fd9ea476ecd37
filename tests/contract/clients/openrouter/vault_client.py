"""A client of `openrouter` for vaults: the routes by name, and what the library made of replies.

Environment: BASE_URL.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import caller
from openrouter import errors

HOSTS = ["api.example.com"]
Ask = Callable[..., object]

raw: list[str] = []
"""The text of every reply."""


class Routes(NamedTuple):
    """The routes that a workspace and an intern both have."""

    list: Ask
    store: Ask
    delete: Ask


def keep(response) -> None:
    raw.append(response.read().decode())


client = partial(caller.client, keep=keep)


def of_workspace(caller) -> Routes:
    vault = caller.vault
    return Routes(vault.list_vault_secrets, vault.store_vault_secret, vault.delete_vault_secret)


def of_intern(caller, intern: str) -> Routes:
    vault = caller.vault
    asks = (
        vault.list_intern_vault_secrets,
        vault.store_intern_vault_secret,
        vault.delete_intern_vault_secret,
    )
    return Routes(*(partial(ask, intern_id=intern) for ask in asks))


def every_route(caller, intern: str, **more: object) -> dict[str, Ask]:
    """Return every route by its name, ready to be asked."""
    asks = {}
    for name, routes in (("", of_workspace(caller)), ("intern ", of_intern(caller, intern))):
        asks[f"{name}list"] = routes.list
        asks[f"{name}store"] = partial(
            routes.store, name="asked_for", value="value-asked", hosts=HOSTS
        )
        asks[f"{name}delete"] = partial(routes.delete, name="asked_for")
    vault = caller.vault
    asks["copy"] = partial(
        vault.copy_vault_secrets_to_intern, intern_id=intern, names=["asked_for"]
    )
    asks["effective"] = partial(vault.list_intern_effective_vault_secrets, intern_id=intern)
    return {name: partial(ask, **more) for name, ask in asks.items()}


def tried(asks: dict[str, Ask], names: Iterable[str] | None = None) -> dict[str, dict]:
    """Return how some routes refuse, or all of them."""
    return {name: refused(asks[name]) for name in names or asks}


def shown(secret) -> dict:
    """Return what the library parsed of a secret."""
    told = {
        "name": secret.name,
        "hosts": secret.hosts,
        "fingerprint": secret.fingerprint,
        "created_at": secret.created_at.isoformat(),
    }
    scope = getattr(secret, "scope", None)
    return told if scope is None else told | {"scope": scope}


def by_name(page) -> dict[str, dict]:
    return {each.name: shown(each) for each in page.data}


def refused(ask: Ask) -> dict:
    """Return what the library makes of a refusal."""
    try:
        ask()
    except errors.OpenRouterError as error:
        return told_by(error)
    return {"class": None}


def told_by(error) -> dict:
    told = error.data.error
    return {
        "class": type(error).__name__,
        "status": error.status_code,
        "code": told.code,
        "message": told.message,
        # Left out and null are told apart.
        "metadata": told.metadata if "metadata" in told.model_fields_set else "left out",
    }

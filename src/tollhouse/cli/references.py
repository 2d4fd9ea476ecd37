"""What people call things, and the ids by which the server knows them.

An id is passed on as it is: whether there is such a thing, the server says.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from tollhouse.cli.default_account import remembered
from tollhouse.cli.interns.lookup import find_intern, only
from tollhouse.cli.output import one_line
from tollhouse.cli.values import is_hash_prefix, is_whole_hash, segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tollhouse.cli.client import Server

ACCOUNT: Final = "TOLLHOUSE_ACCOUNT"
# As in `settings.environment`, whose import costs a remote command more than all the rest.
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


async def account_id(server: Server, reference: str) -> str:
    """Return the id of an account's id or name.

    Raises:
        CommandFailed: There is no such account, there are several, or the server refused.
    """
    if _is_id(reference):
        return reference
    return _id_of(await server.all_of("/accounts"), reference, "account")


async def chosen_account(server: Server, given: str | None) -> str | None:
    """Return the id of the account that a command means; None for the server's choice.

    Args:
        server: Who knows the accounts.
        given: The id or name on the command line. TOLLHOUSE_ACCOUNT stands for one that is not
            given, and behind that what was chosen for this server.

    Raises:
        CommandFailed: There is no such account, there are several, or the server refused.
    """
    named = given or os.environ.get(ACCOUNT, "").strip()
    return await account_id(server, named) if named else remembered(server.place)


async def user_id(server: Server, reference: str, account: str | None) -> str:
    """Return the id of a user's id or name.

    Raises:
        CommandFailed: There is no such user, there are several, or the server refused.
    """
    if _is_id(reference):
        return reference
    return _id_of(await server.all_of("/users", account_id=account), reference, "user")


async def workspace_id(server: Server, reference: str, account: str | None) -> str:
    """Return the id of a workspace's id, slug or name.

    Raises:
        CommandFailed: There is no such workspace, there are several, or the server refused.
    """
    if _is_id(reference):
        return reference
    found = await server.all_of("/workspaces", account_id=account)
    for each in found:
        if each["slug"] == reference:
            return each["id"]
    return _id_of(found, reference, "workspace")


async def key_hash(server: Server, reference: str, account: str | None) -> str:
    """Return the hash of a key's hash, the beginning of that, its name, or its label.

    Args:
        server: Who knows the keys.
        reference: What was typed.
        account: The id or name of the account that it has to be in; unless given, the chosen one
            is looked through first, and then every other that may be seen.

    Raises:
        CommandFailed: There is no such key, there are several, or the server refused.
    """
    segment(reference)  # refuses what nothing can be called
    if is_whole_hash(reference):
        return reference
    chosen = await chosen_account(server, account)
    if account is not None:
        places = [[chosen]]
    else:
        every = [each["id"] for each in await server.all_of("/accounts")]
        places = [[chosen] if chosen else [], [each for each in every if each != chosen]]
    for place in places:
        keys = [key for each in place for key in await all_keys(server, each)]
        if found := [key["hash"] for key in keys if _is_called(key, reference)]:
            break
    else:
        found = []
    return only(
        found,
        none=f"No such key: {one_line(reference)!r}; `tollhouse keys list --all` shows them by "
        "hash, name and label.",
        several=f"{len(found)} keys are called {one_line(reference)!r}, or have a hash that begins "
        "so: give more of the hash",
    )


def _is_called(key: dict[str, Any], reference: str) -> bool:
    begins = is_hash_prefix(reference.lower()) and key["hash"].startswith(reference.lower())
    return begins or reference in {key["name"], key["label"]}


async def all_keys(
    server: Server, account: str | None, workspace: str | None = None, *, every: bool = True
) -> list[dict[str, Any]]:
    """Return keys with the slug of their workspace; the API lists one workspace at a time.

    Args:
        server: Who knows them.
        account: The id of their account; None for the server's choice.
        workspace: Id, slug or name of their workspace; None for all of the account.
        every: Disabled and expired ones, too.

    Raises:
        CommandFailed: The server refused.
    """
    if workspace is None:
        workspaces = await server.all_of("/workspaces", account_id=account)
    else:
        path = f"/workspaces/{segment(await workspace_id(server, workspace, account))}"
        workspaces = [(await server.get(path, account_id=account))["data"]]
    found: list[dict[str, Any]] = []
    for each in workspaces:
        keys = await server.all_of(
            "/keys",
            workspace_id=each["id"],
            include_disabled=every,
            include_expired=every,
            account_id=account,
        )
        found += [{**key, "workspace": each["slug"]} for key in keys]
    return found


async def intern_id(server: Server, reference: str) -> str:
    """Return the id of an intern's id or name.

    Raises:
        CommandFailed: There is no such intern, there are several, or the server refused.
    """
    return reference if _is_id(reference) else (await find_intern(server, reference))["id"]


def _is_id(reference: str) -> bool:
    segment(reference)  # refuses what nothing can be called
    return _ID.fullmatch(reference) is not None


def _id_of(items: Iterable[dict[str, Any]], name: str, noun: str) -> str:
    found = [each["id"] for each in items if each["name"] == name]
    return only(
        found,
        none=f"No such {noun}: {one_line(name)!r}; `tollhouse {noun}s list` shows them.",
        several=f"several {noun}s are called {one_line(name)!r}: name one by its id",
    )

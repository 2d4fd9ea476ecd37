"""Names on the command line, resolved to the ids by which the server knows things.

An id is passed on as it is: the server says whether it exists. What asks the server raises
CommandFailed where there is no such thing, several have the name, or the server refused.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

import platformdirs

from tollhouse.cli.client import Server
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.values import is_hash_prefix, is_key_hash, object_fields, one_line, path_segment
from tollhouse.kernel.errors import StartError

T = TypeVar("T")
Noun = Literal["account", "user", "workspace"]
ACCOUNT: Final = "TOLLHOUSE_ACCOUNT"
# As in `settings.environment`, whose import costs a remote command more than all the rest.
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def default_account(place: str) -> str | None:
    """Return the id of the account that was chosen for a server; None where none was."""
    chosen = _chosen().get(place)
    return chosen if isinstance(chosen, str) else None


def set_default_account(place: str, account_id: str | None) -> None:
    """Choose an account for a server, or none; StartError where the choice cannot be kept."""
    chosen = {**_chosen(), place: account_id}
    file = _file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({name: each for name, each in chosen.items() if each}))
    except OSError as error:
        raise StartError(
            f"{file} cannot be written ({error.strerror}): set TOLLHOUSE_ACCOUNT instead"
        ) from None


def _chosen() -> dict[str, object]:
    try:
        return object_fields(cast("object", json.loads(_file().read_bytes())))
    except (OSError, ValueError):  # none was chosen yet, or somebody wrote something else there
        return {}


def _file() -> Path:
    return platformdirs.user_config_path("tollhouse", appauthor=False) / "accounts.json"


async def list_interns(server: Server, status: str | None = None) -> list[dict[str, Any]]:
    """Return the interns of the workspace, newest first; statuses are separated by commas."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = await server.get("/interns", limit=500, status=status, starting_after=after)
        found += page["data"]
        after = page.get("next_cursor")
        if after is None:
            return found


async def find_intern(server: Server, reference: str) -> dict[str, Any]:
    """Return the intern of a name or an id."""
    found = [each for each in await list_interns(server) if reference in {each["id"], each["name"]}]
    return exactly_one(
        found,
        none=f"there is no intern {reference} here: `tollhouse intern list` shows them",
        several=f"several interns are called {reference}: name one by its id",
    )


def exactly_one(found: Sequence[T], *, none: str, several: str) -> T:
    """Return the only one that was found; CommandFailed with one of the texts otherwise."""
    if len(found) == 1:
        return found[0]
    raise CommandFailed(several if found else none)


def intern_path(intern: dict[str, Any]) -> str:
    """Return where an intern's operations are."""
    return f"/interns/{path_segment(intern['id'])}"


async def chosen_account(server: Server, given: str | None) -> str | None:
    """Return the id of the account that a command means; None for the server's choice.

    That is the id or name on the command line, else that in TOLLHOUSE_ACCOUNT, else what was chosen
    for this server.
    """
    named = given or os.environ.get(ACCOUNT, "").strip()
    return await resource_id(server, "account", named) if named else default_account(server.place)


async def resource_id(
    server: Server, noun: Noun, reference: str, account: str | None = None
) -> str:
    """Return the id of an id or name; a workspace's slug comes before a name."""
    if _is_id(reference):
        return reference
    items = await server.list_all(f"/{noun}s", account_id=account)
    by_slug = [each["id"] for each in items if each.get("slug") == reference]
    return exactly_one(
        by_slug[:1] or [each["id"] for each in items if each["name"] == reference],
        none=f"No such {noun}: {one_line(reference)!r}; `tollhouse {noun}s list` shows them.",
        several=f"several {noun}s are called {one_line(reference)!r}: name one by its id",
    )


async def resource_path(
    server: Server, noun: Noun, reference: str, account: str | None = None
) -> str:
    """Return where the thing of an id, slug or name is."""
    return f"/{noun}s/{path_segment(await resource_id(server, noun, reference, account))}"


async def key_hash(server: Server, reference: str, account: str | None) -> str:
    """Return the hash of a key's hash, the beginning of that, its name, or its label.

    Without an account that it has to be in, the chosen one is looked through first, and then every
    other that may be seen.
    """
    path_segment(reference)  # refuses what nothing can be called
    if is_key_hash(reference):
        return reference
    chosen = await chosen_account(server, account)
    if account is not None:
        places = [[chosen]]
    else:
        every = [each["id"] for each in await server.list_all("/accounts")]
        places = [[chosen] if chosen else [], [each for each in every if each != chosen]]
    for place in places:
        keys = [key for each in place for key in await list_keys(server, each)]
        if found := [key["hash"] for key in keys if _is_called(key, reference)]:
            break
    else:
        found = []
    return exactly_one(
        found,
        none=f"No such key: {one_line(reference)!r}; `tollhouse keys list --all` shows them by "
        "hash, name and label.",
        several=f"{len(found)} keys are called {one_line(reference)!r}, or have a hash that begins "
        "so: give more of the hash",
    )


def _is_called(key: dict[str, Any], reference: str) -> bool:
    begins = is_hash_prefix(reference.lower()) and key["hash"].startswith(reference.lower())
    return begins or reference in {key["name"], key["label"]}


async def list_keys(
    server: Server, account: str | None, workspace: str | None = None, *, every: bool = True
) -> list[dict[str, Any]]:
    """Return keys of one workspace or of all, with its slug; the API lists one at a time.

    `every` has those in it that are disabled or expired.
    """
    if workspace is None:
        workspaces = await server.list_all("/workspaces", account_id=account)
    else:
        path = await resource_path(server, "workspace", workspace, account)
        workspaces = [(await server.get(path, account_id=account))["data"]]
    found: list[dict[str, Any]] = []
    for each in workspaces:
        keys = await server.list_all(
            "/keys",
            workspace_id=each["id"],
            include_disabled=every,
            include_expired=every,
            account_id=account,
        )
        found += [{**key, "workspace": each["slug"]} for key in keys]
    return found


async def intern_id(server: Server, reference: str) -> str:
    """Return the id of an intern's id or name."""
    return reference if _is_id(reference) else (await find_intern(server, reference))["id"]


def _is_id(reference: str) -> bool:
    path_segment(reference)  # refuses what nothing can be called
    return _ID.fullmatch(reference) is not None

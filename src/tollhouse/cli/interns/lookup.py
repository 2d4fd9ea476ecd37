"""Which intern a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.values import segment

if TYPE_CHECKING:
    from tollhouse.cli.client import Server


async def all_interns(server: Server, status: str | None = None) -> list[dict[str, Any]]:
    """Return the interns of the workspace, newest first.

    Args:
        server: Who knows them.
        status: Only those; several are separated by commas.

    Raises:
        CommandFailed: The server refused, or nobody answered.
    """
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = await server.get("/interns", limit=500, status=status, starting_after=after)
        found += page["data"]
        after = page.get("next_cursor")
        if after is None:
            return found


async def find_intern(server: Server, reference: str) -> dict[str, Any]:
    """Return the intern of a name or an id.

    Raises:
        CommandFailed: There is none, there are several of the name, or the server refused.
    """
    found = [each for each in await all_interns(server) if reference in {each["id"], each["name"]}]
    if len(found) == 1:
        return found[0]
    if not found:
        message = f"there is no intern {reference} here: `tollhouse intern list` shows them"
        raise CommandFailed(message)
    message = f"several interns are called {reference}: name one by its id"
    raise CommandFailed(message)


def path_of(intern: dict[str, Any]) -> str:
    """Return where an intern's operations are."""
    return f"/interns/{segment(intern['id'])}"

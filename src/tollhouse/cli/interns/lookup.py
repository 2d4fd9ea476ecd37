"""Which intern a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.values import segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.cli.client import Server

T = TypeVar("T")


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
    return only(
        found,
        none=f"there is no intern {reference} here: `tollhouse intern list` shows them",
        several=f"several interns are called {reference}: name one by its id",
    )


def only(found: Sequence[T], *, none: str, several: str) -> T:
    """Return the one that was found.

    Args:
        found: All of them.
        none: What to say where there is none.
        several: The same where there are more.

    Raises:
        CommandFailed: It is not one.
    """
    if len(found) == 1:
        return found[0]
    raise CommandFailed(several if found else none)


def path_of(intern: dict[str, Any]) -> str:
    """Return where an intern's operations are."""
    return f"/interns/{segment(intern['id'])}"

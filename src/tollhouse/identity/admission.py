"""Who may ask for interns and vaults at all, judged before anything of a request is looked at.

1  the key         a management key has no workspace of its own    401
2  the programme   who is outside learns nothing                   404
3  the intern      its own key asks for it alone                   404
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.identity.types import KeyKind
from tollhouse.kernel.errors import NotFound, NotOffered, Unauthenticated

if TYPE_CHECKING:
    from tollhouse.identity.service import IdentityService
    from tollhouse.identity.types import Subject, Switches
    from tollhouse.storage.transaction import Read


async def admit(
    identity: IdentityService, read: Read, caller: Subject, intern_id: str | None
) -> Switches:
    """Make sure that a caller may ask for interns or vaults of its workspace.

    Args:
        identity: Knows what workspaces may do.
        read: The transaction.
        caller: Who asks.
        intern_id: The intern that it asks for, as it was sent; None for what is its workspace's.

    Returns:
        What its workspace may do.

    Raises:
        Unauthenticated: Its key is a management key.
        NotFound: Its workspace is not in the programme, or its key is an intern's own and it asks
            for something else.
    """
    _check_key(caller)
    switches = await identity.switches(read, caller.workspace_id)
    check_programme(switches)
    _check_confinement(caller, intern_id)
    return switches


def _check_key(caller: Subject) -> None:
    if caller.kind is KeyKind.MANAGEMENT:
        message = "Invalid or missing API key: a management key cannot use interns and vaults."
        raise Unauthenticated(message)


def check_programme(switches: Switches) -> None:
    """Make sure that a workspace may have interns and vaults.

    Raises:
        NotOffered: It may not, and is not told more.
    """
    if not switches.intern_programme:
        message = "Not found."
        raise NotOffered(message)


def _check_confinement(caller: Subject, intern_id: str | None) -> None:
    if caller.kind is not KeyKind.INTERN:
        return
    if intern_id is None or intern_id.lower() != caller.intern_id:
        message = "Not found."
        raise NotFound(message)

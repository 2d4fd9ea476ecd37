"""The caller of an endpoint, and what its path names, which it asks for in its signature.

    async def list_keys(self, who: Managing) -> ...

Whoever may not call is refused before the body is looked at.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Path, Query, Request

from tollhouse.identity.access import billed_to, caller_of, key_holder, manager, operator
from tollhouse.identity.types import Manager, Subject
from tollhouse.kernel.errors import Unauthenticated
from tollhouse.kernel.wire import OTHER_ACCOUNT, Reference

T = TypeVar("T")


def _asking(find: Callable[[MutableMapping[str, Any]], T]) -> Callable[[Request], Awaitable[T]]:
    async def ask(request: Request) -> T:
        return find(request.scope)

    return ask


Billed = Annotated[Subject, Depends(_asking(billed_to))]
"""A caller whose key runs inference, and pays for it."""

Managing = Annotated[Manager, Depends(_asking(lambda scope: manager(caller_of(scope))))]
"""A caller that may manage; anybody else gets a 403."""

ManagingOr401 = Annotated[
    Manager, Depends(_asking(lambda scope: manager(caller_of(scope), Unauthenticated)))
]
"""The same, for operations whose published refusals have a 401 and no 403."""

Operating = Annotated[Manager, Depends(_asking(lambda scope: operator(caller_of(scope))))]
"""A caller that runs the installation; anybody else gets a 403."""

HoldingKey = Annotated[Subject, Depends(_asking(lambda scope: key_holder(caller_of(scope))))]
"""A caller that came with a key, of whatever kind."""

OfAccount = Annotated[Reference | None, Query(description=OTHER_ACCOUNT)]
"""The account that an operator means."""

UserId = Annotated[Reference, Path(description="Id of the user.")]
WorkspaceId = Annotated[Reference, Path(alias="id", description="Id or slug of the workspace.")]
KeyHash = Annotated[
    Reference, Path(alias="hash", description="The key's SHA-256: 64 lower-case hex digits.")
]

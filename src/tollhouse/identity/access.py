"""How an endpoint learns who calls: the front has authenticated and left the caller in the scope.

async def list_keys(self, who: Managing) -> ...       # refused before its body is looked at
"""

from collections.abc import MutableMapping
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request

from tollhouse.identity import policy
from tollhouse.identity.types import Caller, Manager, Subject
from tollhouse.kernel.errors import Unauthenticated
from tollhouse.kernel.wire import OTHER_ACCOUNT, Reference

CALLER: Final = "tollhouse.caller"
"""Where in an ASGI scope the caller is, once there is one."""


def set_caller(scope: MutableMapping[str, Any], caller: Caller) -> None:
    """Leave the authenticated caller in an ASGI scope."""
    scope[CALLER] = caller


def caller_of(scope: MutableMapping[str, Any]) -> Caller:
    """Return who calls; every route but the open ones has a caller.

    Raises:
        KeyError: The route is open and nobody was authenticated.
    """
    return scope[CALLER]


def billed_to(scope: MutableMapping[str, Any]) -> Subject:
    """Return the subject that an inference request is billed to.

    Raises:
        Forbidden: A management key, which never runs inference.
        Unauthenticated: The caller came without a key.
    """
    return policy.inference_subject(caller_of(scope))


async def _managing(request: Request) -> Manager:
    return policy.manager(caller_of(request.scope))


async def _managing_or_401(request: Request) -> Manager:
    return policy.manager(caller_of(request.scope), Unauthenticated)


async def _operating(request: Request) -> Manager:
    return policy.operator(caller_of(request.scope))


async def _holding_key(request: Request) -> Subject:
    return policy.key_holder(caller_of(request.scope))


async def _billed(request: Request) -> Subject:
    return billed_to(request.scope)


Billed = Annotated[Subject, Depends(_billed)]
"""A caller whose key runs inference, and pays for it."""

Managing = Annotated[Manager, Depends(_managing)]
"""A caller that may manage; anybody else gets a 403."""

ManagingOr401 = Annotated[Manager, Depends(_managing_or_401)]
"""The same, for operations whose published refusals have a 401 and no 403."""

Operating = Annotated[Manager, Depends(_operating)]
"""A caller that runs the installation; anybody else gets a 403."""

HoldingKey = Annotated[Subject, Depends(_holding_key)]
"""A caller that came with a key, of whatever kind."""

OfAccount = Annotated[Reference | None, Query(description=OTHER_ACCOUNT)]
"""The account that an operator means."""

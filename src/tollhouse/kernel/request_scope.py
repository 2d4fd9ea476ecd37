"""What the gate leaves in the ASGI scope of a request for its route.

set_origin, own_origin         the gateway's own address, as the caller reached it
set_deadline, lift_deadline    the time an operation has; a stream that has begun lifts it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import MutableMapping

_ORIGIN: Final = "tollhouse.origin"
_DEADLINE: Final = "tollhouse.deadline"


def set_origin(scope: MutableMapping[str, Any], origin: str) -> None:
    """Leave the origin in an ASGI scope: scheme, host and perhaps a port."""
    scope[_ORIGIN] = origin


def own_origin(scope: MutableMapping[str, Any]) -> str:
    """Return the origin that `set_origin` left."""
    origin: str = scope[_ORIGIN]
    return origin


def set_deadline(scope: MutableMapping[str, Any], limit: asyncio.Timeout) -> None:
    """Leave an operation's deadline in an ASGI scope."""
    scope[_DEADLINE] = limit


def lift_deadline(scope: MutableMapping[str, Any]) -> bool:
    """Let an operation take as long as it likes; False if its deadline passes in this moment."""
    limit: asyncio.Timeout | None = scope.get(_DEADLINE)
    if limit is None:
        return True
    if limit.expired():
        return False
    limit.reschedule(None)
    return True

"""The time that an operation has: the front sets it, a route whose answer has begun lifts it.

set_deadline(scope, limit)    around every operation that has one
lift_deadline(scope)          once a stream begins, which has a time of its own
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import MutableMapping

_DEADLINE: Final = "tollhouse.deadline"


def set_deadline(scope: MutableMapping[str, Any], limit: asyncio.Timeout) -> None:
    """Leave an operation's deadline in an ASGI scope."""
    scope[_DEADLINE] = limit


def lift_deadline(scope: MutableMapping[str, Any]) -> bool:
    """Let an operation take as long as it likes from here on.

    Returns:
        Whether it may: a deadline that has passed in this moment ends the operation.
    """
    limit: asyncio.Timeout | None = scope.get(_DEADLINE)
    if limit is None:
        return True
    if limit.expired():
        return False
    limit.reschedule(None)
    return True

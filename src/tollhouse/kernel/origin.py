"""The gateway's own address, as a caller reached it: the front sets it, a route may tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_ORIGIN: Final = "tollhouse.origin"


def set_origin(scope: MutableMapping[str, Any], origin: str) -> None:
    """Leave the origin in an ASGI scope: scheme, host and perhaps a port."""
    scope[_ORIGIN] = origin


def own_origin(scope: MutableMapping[str, Any]) -> str:
    """Return the origin that `set_origin` left."""
    origin: str = scope[_ORIGIN]
    return origin

"""Pieces of the hot routes' schemas."""

from __future__ import annotations

from typing import Any, Final

from tollhouse.kernel.wire import refusals

NUMBER_OR_NULL: Final = {"type": ["number", "null"]}
COUNT: Final = {"type": "integer", "minimum": 0}


def text(description: str, **more: object) -> dict[str, Any]:
    """Return the schema of a text."""
    return {"type": "string", "description": description, **more}


def whole(description: str, **more: object) -> dict[str, Any]:
    """Return the schema of a whole number or null."""
    return {"type": ["integer", "null"], "description": description, **more}


def number(description: str, **more: object) -> dict[str, Any]:
    """Return the schema of a number or null."""
    return {"type": ["number", "null"], "description": description, **more}


GENERATION_ID: Final = {
    "X-Generation-Id": {"schema": {"type": "string"}, "description": "The reply's id."}
}
REFUSALS: Final = {
    str(status): response
    for status, response in refusals(400, 401, 403, 404, 413, 429, 500, 502, 503, 504).items()
}

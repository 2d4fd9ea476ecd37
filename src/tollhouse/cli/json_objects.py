"""JSON that came from somewhere: its fields, whatever it turns out to be. Pure."""

from __future__ import annotations

import json
from typing import cast


def fields(value: object) -> dict[str, object]:
    """Return the fields of a JSON object; none where it is no object."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def parsed(text: str | bytes) -> dict[str, object]:
    """Return the fields of a JSON object; none where a text is no JSON, or no object."""
    try:
        return fields(json.loads(text))
    except (ValueError, RecursionError):
        return {}

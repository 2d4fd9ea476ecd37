"""How a result is written as a line of JSON. Pure.

tollhouse    as the server sends it
openai       as in OpenAI's output files: of an error only its code and message
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tollhouse.cli.batches.reading import Value


class Format(StrEnum):
    """The formats of results."""

    TOLLHOUSE = "tollhouse"
    OPENAI = "openai"


def line_of(result: Value, form: Format) -> str:
    """Return a result as one line.

    Source: OpenAI's batch output object, whose errors have a `code` and a `message`.
    """
    if form is Format.TOLLHOUSE or not is_failed(result.value):
        return result.text
    error: dict[str, Any] = result.value["error"]
    code = error.get("error_type") or error.get("type")
    return json.dumps(
        {**result.value, "error": {"code": code, "message": error.get("message")}},
        ensure_ascii=False,
        separators=(",", ":"),
    )


def is_failed(result: Any) -> bool:  # noqa: ANN401 - whatever the server sends
    """Tell whether a result is an error."""
    return isinstance(result, dict) and isinstance(result.get("error"), dict)  # pyright: ignore[reportUnknownMemberType]

"""Pieces of the hot routes' schemas."""

from __future__ import annotations

from typing import Any, Final

from tollhouse.kernel.wire import refusals

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
    for status, response in refusals(
        400, 401, 402, 403, 404, 413, 422, 429, 500, 502, 503, 504
    ).items()
}


def reference(name: str) -> dict[str, str]:
    """Return a reference to a schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def asks_for(name: str) -> dict[str, Any]:
    """Return the description of a body that is of a schema."""
    return {"required": True, "content": {"application/json": {"schema": reference(name)}}}


def answers(
    name: str, description: str, *, events: str | None = None, booked: bool = True
) -> dict[str, Any]:
    """Return the responses of an operation.

    Args:
        name: The schema of a whole reply.
        description: Of the reply.
        events: Describes the events of a streamed reply, where there is such.
        booked: Whether there is a generation to look up.
    """
    content: dict[str, Any] = {"application/json": {"schema": reference(name)}}
    if events is not None:
        content["text/event-stream"] = {"schema": text(events)}
    success: dict[str, Any] = {"description": description, "content": content}
    if booked:
        success["headers"] = GENERATION_ID
    return {"200": success, **REFUSALS}


def listed(description: str, **more: object) -> dict[str, Any]:
    """Return the schema of a list of objects, or null."""
    items = {"type": "object", "additionalProperties": True}
    return {"type": ["array", "null"], "items": items, "description": description, **more}


def extensible(
    title: str, description: str, required: list[str], **properties: object
) -> dict[str, Any]:
    """Return the schema of an object that may have further fields."""
    return {
        "title": title,
        "type": "object",
        "description": description,
        "required": required,
        "additionalProperties": True,
        "properties": properties,
    }


STREAM: Final = {
    "type": ["boolean", "null"],
    "default": False,
    "description": "Send the reply as events while it is made.",
}
MODEL: Final = text("Id of a model in the catalogue.", minLength=1)
ID: Final = text("Equals X-Generation-Id; `GET /generation` knows it.")
COST: Final = number("Credits charged; null where not known.")
IS_BYOK: Final = {"type": "boolean", "description": "Whether an own provider key was used."}

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
    "X-Generation-Id": {"schema": {"type": "string"}, "description": "The reply's id."},
    "X-Max-Tokens": {
        "schema": {"type": "integer"},
        "description": "The limit of output that the model was asked with, where the request sets "
        "none and what is left of its key's limit or of the balance pays for no more.",
    },
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
    "description": "true sends the reply piece by piece as server-sent events while the model "
    "writes it; false sends it whole at the end.",
}
MODEL: Final = text(
    "Which model answers: an id of `GET /models`, such as `simulated/echo`.", minLength=1
)
TEMPERATURE: Final = number(
    "How freely the model chooses its words: at 0 it takes the likeliest ones, so that replies "
    "vary little; higher values vary more. Most models take 0 to 1 or 0 to 2, and use 1 unless "
    "told otherwise. Change this or `top_p`, not both."
)
TOP_P: Final = number(
    "Consider only the likeliest next tokens whose probabilities add up to this share: 0.1 keeps "
    "the surest ones, 1 keeps all. Change this or `temperature`, not both."
)
MOST_OUTPUT: Final = (
    "The reply ends after this many output tokens, reasoning included, and then says that its "
    "length was the reason. It also bounds what the request can cost, so a small balance may "
    "need it. Unless given, the model's own limit holds"
)
TOOLS: Final = (
    "Functions that the model may ask you to call, each with a name, a description and a JSON "
    "schema of its arguments. The model answers with calls; you run them and send the results in "
    "the next request."
)
TOOL_CHOICE: Final = (
    "Whether the model decides itself if it calls a tool (auto), must not, must call one, or must "
    "call the one named here."
)
STOP: Final = (
    "The reply ends before the first of these texts that the model would write, and does not "
    "contain it."
)
END_USER: Final = (
    "An id of your own for the person behind the request. It is kept with the generation and "
    "passed on to the provider, which may use it against abuse."
)
ID: Final = text(
    "The reply's id, also in the header X-Generation-Id: `GET /generation?id=` tells its cost, "
    "provider and timings."
)
COST: Final = number(
    "Credits that were charged for the reply (one credit is one US dollar); null where the "
    "provider did not tell how many tokens it used."
)
IS_BYOK: Final = {
    "type": "boolean",
    "description": "Whether the provider was called with a key of your own, which it bills itself.",
}

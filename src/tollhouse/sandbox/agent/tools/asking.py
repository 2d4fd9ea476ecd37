"""Questions to people."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, Field
from pydantic_ai import RunContext
from pydantic_ai.exceptions import CallDeferred, ToolFailed

from tollhouse.sandbox.agent.tools.work import Work

MOST_FIELDS: Final = 20
_LONGEST: Final = 4000
_MOST_BYTES: Final = 64 * 1024
"""Of a question as a whole."""
Option: TypeAlias = Annotated[str, Field(max_length=500)]


class AskedField(BaseModel):
    """Something that an answer holds."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    type: Literal["string", "number", "integer", "boolean"] = "string"
    required: bool = True
    options: Annotated[list[Option], Field(max_length=100)] | None = None
    """Of a string: what may be chosen."""


async def ask_user(
    ctx: RunContext[Work],  # noqa: ARG001 - the library's
    message: Annotated[str, Field(min_length=1, max_length=_LONGEST)],
    fields: Annotated[list[AskedField], Field(max_length=MOST_FIELDS)] | None = None,
) -> str:
    """Ask the user something that you cannot find out, and wait for the answer.

    Args:
        ctx: Of the call.
        message: The question.
        fields: What the answer holds; without, it is a text.
    """
    asked = elicitation(message, fields or [AskedField(name="answer")])
    if len(json.dumps(asked)) > _MOST_BYTES:
        raise ToolFailed(f"The question has more than {_MOST_BYTES} bytes; ask a shorter one.")
    raise CallDeferred(metadata=asked, kind="question")


def elicitation(message: str, fields: list[AskedField]) -> dict[str, Any]:
    """Return a question as the daemon asks it."""
    return {"message": message, "fields": [_told(field) for field in fields]}


def _told(field: AskedField) -> dict[str, Any]:
    if field.options:  # which are texts, whatever the model takes them for
        return {**field.model_dump(), "type": "string"}
    return field.model_dump(exclude={"options"})

"""All tools together, the one that asks the user, and titles for calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, Field
from pydantic_ai import RunContext
from pydantic_ai.exceptions import CallDeferred, ToolFailed
from pydantic_ai.toolsets import FunctionToolset

from tollhouse.sandbox.agent.tools.context import ToolContext
from tollhouse.sandbox.agent.tools.files import edit_file, read_file, write_file
from tollhouse.sandbox.agent.tools.remote import call_mcp_tool, http_request, list_mcp_tools
from tollhouse.sandbox.agent.tools.shell import shell

LONGEST_TITLE: Final = 200
MOST_FIELDS: Final = 20
_LONGEST_QUESTION: Final = 4000
_MOST_BYTES: Final = 64 * 1024
"""Bytes of a question as JSON."""
Option: TypeAlias = Annotated[str, Field(max_length=500)]
_TITLES: Final[Mapping[str, str]] = {
    "shell": "Run {command}",
    "read_file": "Read {path}",
    "write_file": "Write {path}",
    "edit_file": "Edit {path}",
    "http_request": "{method} {url}",
    "ask_user": "Ask: {message}",
    "list_mcp_tools": "List the tools of {server}",
    "call_mcp_tool": "{server}: {tool}",
}


def title_of(tool: str, arguments: str | Mapping[str, Any] | None) -> str:
    """Return what a call does, in a line for people; the model may have given any arguments."""
    title = _TITLES.get(tool)
    words = tool if title is None else title.format_map(_Arguments(_read(arguments)))
    line = " ".join(words.split())
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1]}…"


def _read(arguments: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


class _Arguments(dict[str, Any]):
    """Arguments, of which some may be missing."""

    def __missing__(self, key: str) -> str:
        return "GET" if key == "method" else "…"


class QuestionField(BaseModel):
    """A field of the answer that the model asks for."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    type: Literal["string", "number", "integer", "boolean"] = "string"
    required: bool = True
    options: Annotated[list[Option], Field(max_length=100)] | None = None
    """Of a string: what may be chosen."""


async def ask_user(
    ctx: RunContext[ToolContext],  # noqa: ARG001 - the library's
    message: Annotated[str, Field(min_length=1, max_length=_LONGEST_QUESTION)],
    fields: Annotated[list[QuestionField], Field(max_length=MOST_FIELDS)] | None = None,
) -> str:
    """Ask the user something that you cannot find out, and wait for the answer.

    Args:
        ctx: Of the call.
        message: The question.
        fields: What the answer holds; without, it is a text.
    """
    asked = {
        "message": message,
        "fields": [_describe(field) for field in fields or [QuestionField(name="answer")]],
    }
    if len(json.dumps(asked)) > _MOST_BYTES:
        raise ToolFailed(f"The question has more than {_MOST_BYTES} bytes; ask a shorter one.")
    raise CallDeferred(metadata=asked, kind="question")


def _describe(field: QuestionField) -> dict[str, Any]:
    if field.options:  # which are texts, whatever the model takes them for
        return {**field.model_dump(), "type": "string"}
    return field.model_dump(exclude={"options"})


@cache
def toolset(*, with_servers: bool) -> FunctionToolset[ToolContext]:
    """Return all tools. They take time to build and keep no state, so runs share them."""
    found: FunctionToolset[ToolContext] = FunctionToolset(
        [shell, http_request, ask_user], docstring_format="google"
    )
    # One at a time: what is written by one call is what the next one reads.
    found.add_function(read_file, sequential=True)
    found.add_function(write_file, sequential=True)
    found.add_function(edit_file, sequential=True)
    if with_servers:
        found.add_function(list_mcp_tools)
        found.add_function(call_mcp_tool)
    return found

"""What a call does, in a line for people. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST: Final = 200
"""Characters of a line."""
_LINES: Final[Mapping[str, str]] = {
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
    """Return what a call does.

    Args:
        tool: Its name, as the model gives it.
        arguments: As the model gives them: they may be anything.
    """
    line = _LINES.get(tool)
    found = tool if line is None else line.format_map(_Shown(_read(arguments)))
    words = " ".join(found.split())
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def _read(arguments: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


class _Shown(dict[str, Any]):
    """Arguments, of which some may be missing."""

    def __missing__(self, key: str) -> str:
        return "GET" if key == "method" else "…"

"""What clients say, as values. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast
from unicodedata import category
from urllib.parse import unquote_to_bytes

from tollhouse.sandbox.daemon.errors import Refused
from tollhouse.sandbox.daemon.sessions.limits import LONGEST_NAME, MOST_INPUT

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST_BODY: Final = 1024 * 1024
"""Bytes."""
MODES: Final = ("self-drive", "manual")
_MOST_ANSWER: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a run is to do."""

    text: str = field(repr=False)
    mode: str


@dataclass(frozen=True, slots=True)
class Reply:
    """To a question."""

    interaction: str
    answer: str = field(repr=False)


def read_prompt(body: bytes) -> Prompt:
    """Read the body of a request for a run.

    Raises:
        Refused: It is wrong.
    """
    fields = _object(body)
    text = _text(fields.get("input"), "input", MOST_INPUT)
    mode = fields.get("approval_mode", MODES[0])
    if mode not in MODES:
        raise bad(f"approval_mode has to be {' or '.join(MODES)}.")
    return Prompt(text, mode)


def read_reply(body: bytes) -> Reply:
    """Read the body of an answer.

    Raises:
        Refused: It is wrong.
    """
    fields = _object(body)
    interaction = _text(fields.get("interaction"), "interaction", LONGEST_NAME)
    return Reply(interaction, _text(fields.get("answer"), "answer", _MOST_ANSWER))


def read_session(segment: bytes) -> str:
    """Read a session's name out of a path.

    Raises:
        Refused: It is none.
    """
    try:
        name = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise bad("A session's name has to be UTF-8.") from None
    if not 1 <= len(name) <= LONGEST_NAME or "Cc" in map(category, name):
        raise bad(f"A session's name has 1 to {LONGEST_NAME} characters, none that controls.")
    return name


def bad(message: str) -> Refused:
    """Return a refusal of what a client says."""
    return Refused(400, message, reason="bad_request")


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise bad("The body has to be JSON.") from None
    if not isinstance(found, dict):
        raise bad("The body has to be an object.")
    return cast("dict[str, Any]", found)


def _text(value: object, name: str, longest: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        raise bad(f"{name} has to be a text of 1 to {longest} characters.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise bad(f"{name} has half a character.") from None
    return value

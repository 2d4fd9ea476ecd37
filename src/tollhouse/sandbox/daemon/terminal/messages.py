"""What clients ask for and say, as values. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from tollhouse.sandbox.daemon.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_TEXT: Final = 4096
"""Characters of a control message."""
LARGEST_SIDE: Final = 4096
"""Rows or columns."""
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KIND: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}")
_POSITION: Final = re.compile(r"[0-9]{1,18}")


class BadMessage(Exception):
    """A client said what cannot be understood. The text is for the client."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a terminal, in characters."""

    rows: int = 24
    columns: int = 80


class Eof:
    """The client has sent all of the input."""


class HangUp:
    """The client wants the terminal to end."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The terminal that a client asks for."""

    session: str
    size: Size | None
    """None where the client says nothing of it."""
    kind: str
    """What `TERM` says."""
    tty: bool
    """A terminal; else two pipes, for a script."""
    create: bool
    """Whether a new one is meant where there is none."""
    position: int
    """From where on it wants the output; see `Replay`."""


def read_query(query: Mapping[str, str]) -> Wanted:
    """Read what stands behind `/terminal?`.

    Raises:
        Refused: A value is wrong.
    """
    session = query.get("session", "main")
    if not valid_session(session):
        raise Refused(400, "session has to be 1 to 64 letters, digits, '.', '_' and '-'.")
    kind = query.get("term", "xterm-256color")
    if not _KIND.fullmatch(kind):
        raise Refused(400, "term has to be the name of a kind of terminal.")
    position = query.get("from", "0")
    if not _POSITION.fullmatch(position):
        raise Refused(400, "from has to be a number of bytes.")
    return Wanted(
        session,
        _size(query.get("rows"), query.get("cols")),
        kind,
        tty=_flag(query, "tty"),
        create=_flag(query, "create"),
        position=int(position),
    )


def valid_session(name: str) -> bool:
    """Tell whether a terminal can have this name."""
    return _SESSION.fullmatch(name) is not None


def read_control(text: str) -> Size | Eof | HangUp:
    """Read a control message.

    Raises:
        BadMessage: It is none.
    """
    if len(text) > LONGEST_TEXT:
        raise BadMessage("a control message is too long")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise BadMessage("a control message is no JSON") from None
    if not isinstance(message, dict):
        raise BadMessage("a control message is no JSON object")
    fields = cast("dict[str, Any]", message)
    match fields.get("type"):
        case "resize":
            rows, columns = fields.get("rows"), fields.get("cols")
            if not _is_side(rows) or not _is_side(columns):
                raise BadMessage(f"rows and cols have to be numbers from 1 to {LARGEST_SIDE}")
            return Size(rows, columns)
        case "eof":
            return Eof()
        case "hangup":
            return HangUp()
        case _:
            raise BadMessage("the type of a control message is unknown")


def _is_side(value: object) -> TypeGuard[int]:
    return type(value) is int and 1 <= value <= LARGEST_SIDE


def _size(rows: str | None, columns: str | None) -> Size | None:
    if rows is None and columns is None:
        return None
    usual = Size()
    return Size(
        usual.rows if rows is None else _side(rows, "rows"),
        usual.columns if columns is None else _side(columns, "cols"),
    )


def _side(text: str, name: str) -> int:
    number = int(text) if _POSITION.fullmatch(text) else 0
    if not _is_side(number):
        raise Refused(400, f"{name} has to be a number from 1 to {LARGEST_SIDE}.")
    return number


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "true")
    if text not in {"true", "false"}:
        raise Refused(400, f"{name} has to be true or false.")
    return text == "true"

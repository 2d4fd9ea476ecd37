"""What a request's path names. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

from tollhouse.sandbox.daemon.errors import Refused

_LARGEST_MODE: Final = 0o777
_MOST_DIGITS: Final = 18


def read_path(raw: bytes) -> tuple[str, ...]:
    """Return the names of a path, from the workspace's folder on.

    Args:
        raw: Behind `/files`, as it was sent. One `/` at its end changes nothing.

    Raises:
        Refused: It is no path, or none of the workspace.
    """
    try:
        text = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Refused(400, "The path is not UTF-8.") from None
    if "\0" in text:
        raise Refused(400, "A name cannot hold a NUL.")
    text = text.removeprefix("/").removesuffix("/")
    names = tuple(text.split("/")) if text else ()
    if not all(names):
        raise Refused(400, "A name in the path is empty.")
    if "." in names or ".." in names:
        raise Refused(400, "The path may not hold '.' or '..'.")
    return names


def read_mode(text: str | None) -> int | None:
    """Return the permissions that a query asks for.

    Raises:
        Refused: They are no octal number, or more than permissions.
    """
    if text is None:
        return None
    try:
        mode = int(text, 8) if text.isdecimal() else -1
    except ValueError:
        mode = -1
    if not 0 <= mode <= _LARGEST_MODE:
        raise Refused(400, "mode has to be an octal number from 0 to 777.")
    return mode


def read_flag(text: str | None, name: str, *, default: bool) -> bool:
    """Return a query's yes or no.

    Raises:
        Refused: It is neither.
    """
    match text:
        case None:
            return default
        case "true":
            return True
        case "false":
            return False
        case _:
            raise Refused(400, f"{name} has to be true or false.")


def read_number(text: str | None, name: str, *, default: int, largest: int, least: int = 1) -> int:
    """Return a query's number, between two that it may be.

    Raises:
        Refused: It is none.
    """
    if text is None:
        return default
    # Zeros before it count, too: who reads a number of any length waits for it.
    fits = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    number = int(text) if fits else least - 1
    if not least <= number <= largest:
        raise Refused(400, f"{name} has to be a whole number from {least} to {largest}.")
    return number
